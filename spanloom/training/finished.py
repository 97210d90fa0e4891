"""How good a finished run is: what was measured of its last checkpoint, kept beside it and measured only once.

OUT/results.json holds the results under a hash of all that decides them; OUT/metrics.jsonl gets their numbers.
"""

import contextlib
import json
from collections.abc import Callable
from pathlib import Path

from spanloom import __version__
from spanloom.conversion.trained_model import TrainedModel
from spanloom.evaluation.measure import measure
from spanloom.evaluation.results import Results, key_of, read_results, write_results
from spanloom.pipeline.data import Data, data_of, store_directories
from spanloom.settings.run import Run
from spanloom.settings.serialize import to_json
from spanloom.training.facts import read_facts, vocabulary_of
from spanloom.training.integrity import fingerprint
from spanloom.training.loggers import METRICS_FILE, MetricsFile
from spanloom.training.same_data import stores_learnt_from

RESULTS_FILE = "results.json"


def results_of(run: Run, directory: Path, checkpoint: Path, model: Callable[[], TrainedModel]) -> Results:
    """Results of `checkpoint`, the last of the run in `directory`, whose lock must be held; their text may say that
    there are none, and why.

    They are measured on the stores that the run learnt from, whatever became of the text since, and none is built.
    `model` reads the checkpoint; it is not called while checkpoint, data and settings are what was measured before.
    """
    facts = read_facts(checkpoint)
    stores = stores_learnt_from(facts, run, directory)
    if stores.keys() != store_directories(run.task, directory).keys():
        return Results("the stores no longer hold the text that the run learnt from, so nothing is measured on them")
    data = data_of(run, stores, vocabulary_of(checkpoint, facts))
    if data.heldout is None:
        return Results("nothing was held out of training, so there is nothing to measure the model on")
    path, key = directory / RESULTS_FILE, _key(run, checkpoint, data)
    results = read_results(path, key)
    with contextlib.closing(MetricsFile(directory / METRICS_FILE, facts.step)) as metrics:
        if results is None:
            logged = _logged(directory / METRICS_FILE, run.task.name, facts.step)
            results = measure(run, data, model().model, model().params, logged)
            write_results(path, key, results)
        if results.kind:
            metrics.write(results.kind, facts.step, {"task": run.task.name, **results.values})
    return results


def _key(run: Run, checkpoint: Path, data: Data) -> str:
    """What decides the results: the very bytes of the checkpoint, the data, settings."""
    return key_of(
        step=int(checkpoint.name),
        checkpoint=fingerprint(checkpoint),
        data=data.content,
        lengths=data.lengths,
        settings=[to_json(part) for part in (run.task, run.model, run.eval, run.batch_size, run.after)],
        version=__version__,
    )


def _logged(metrics: Path, task: str, step: int) -> dict[str, float] | None:
    """The held-out losses that the loop wrote down at this step; None if there are none that can be read."""
    for line in metrics.read_bytes().splitlines():
        try:
            event = json.loads(line)
            if (event["kind"], event["step"], event["task"]) == ("eval", step, task):
                return {name: float(event[name]) for name in ("heldout_loss", "heldout_text_loss", "heldout_tokens")}
        except (ValueError, KeyError, TypeError, RecursionError):
            continue  # another kind of line, or a damaged one
    return None
