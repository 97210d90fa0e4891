"""How good a finished run is: what was measured of the checkpoint that is its result, and measured only once.

OUT/results.json holds the results (of a mixture, a file for each task) under a hash of all that decides them;
OUT/metrics.jsonl gets their numbers.
"""

import contextlib
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

from spanloom import __version__
from spanloom.conversion.trained_model import TrainedModel
from spanloom.evaluation.measure import measure
from spanloom.evaluation.results import Results, key_of, read_results, write_results
from spanloom.pipeline.data import Data, data_of, store_directories
from spanloom.settings.function import Function
from spanloom.settings.run import Run
from spanloom.settings.serialize import to_json
from spanloom.tasks.functions import described
from spanloom.training.checkpoint_paths import latest
from spanloom.training.facts import read_facts, vocabulary_of
from spanloom.training.integrity import fingerprint
from spanloom.training.loggers import METRICS_FILE, MetricsFile, read_events
from spanloom.training.same_data import stores_learnt_from


def results_of(run: Run, directory: Path, checkpoint: Path, model: Callable[[], TrainedModel]) -> dict[str, Results]:
    """Results by task of `checkpoint`, of the run in `directory`, whose lock must be held; the text of one
    without a name may say that there are none, and why.

    They are measured on the stores that the run learnt from, whatever became of the text since, and none is built.
    `model` reads the checkpoint; it is not called while checkpoint, data and settings are what was measured before.
    """
    facts = read_facts(checkpoint)
    stores = stores_learnt_from(facts, run, directory)
    if any(stores[task.name].keys() != store_directories(task, directory).keys() for task in run.tasks):
        text = "the stores no longer hold the text that the run learnt from, so nothing is measured on them"
        return {"": Results(text)}
    data = data_of(run, stores, vocabulary_of(checkpoint, facts), facts.resumption)
    if not data.heldout:
        return {"": Results("nothing was held out of training, so there is nothing to measure the model on")}
    key, found = _key(run, checkpoint, data), {}
    last = latest(directory)
    end = facts.step if last is None else int(last.name)  # of a run that was ended early, the best comes before it
    with contextlib.closing(MetricsFile(directory / METRICS_FILE, end)) as metrics:
        for one in data.tasks:
            if one.heldout is None:
                continue
            name = one.task.name
            path = directory / results_file(name if len(data.tasks) > 1 else "")
            results = read_results(path, key)
            if results is None:
                logged = _logged(directory / METRICS_FILE, name, facts.step)
                results = measure(run, data, one, model().model, model().params, logged)
                write_results(path, key, results)
            if results.kind:
                of_step = {} if end == facts.step else {"of_step": facts.step}
                metrics.write(results.kind, end, {"task": name, **of_step, **results.values})
            found[name] = results
    return found


def results_file(task: str) -> str:
    """Name of the file that keeps the results of a task; an only task is not named."""
    return f"results-{quote(task, safe=' ')}.json" if task else "results.json"


def _key(run: Run, checkpoint: Path, data: Data) -> str:
    """What decides the results: the very bytes of the checkpoint, the data, settings."""
    return key_of(
        step=int(checkpoint.name),
        checkpoint=fingerprint(checkpoint),
        data=data.content,
        lengths=data.lengths,
        settings=[to_json(part) for part in (run.task, run.model, run.eval, run.batch_size, run.after)],
        code=[described(function) for task in run.tasks for function in (*task.metrics, *_present(task.postprocess))],
        version=__version__,
    )


def _present(function: Function | None) -> tuple[Function, ...]:
    return () if function is None else (function,)


def _logged(metrics: Path, task: str, step: int) -> dict[str, float] | None:
    """The held-out losses that the loop wrote down at this step; None if there are none that can be read."""
    for event in read_events(metrics):
        if (event["kind"], event["step"], event.get("task")) == ("eval", step, task):
            with contextlib.suppress(ValueError, KeyError, TypeError, OverflowError):
                return {name: float(event[name]) for name in ("heldout_loss", "heldout_text_loss", "heldout_tokens")}
    return None
