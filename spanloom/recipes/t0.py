"""T0's prompted mixtures, from data sets in a folder and promptsource's templates (Sanh et al. 2022).

    git clone --branch v0.1.0 https://github.com/bigscience-workshop/promptsource
    spanloom cache t0 --data DIR --prompts promptsource --start t5-lm-adapted/ --out runs/t0
    spanloom train t0 --data DIR --prompts promptsource --start t5-lm-adapted/ --slice v3-512 --out runs/t0
    spanloom show t0 --data DIR --prompts promptsource --start t5-lm-adapted/ --task glue_mrpc_equivalent -n 3
    spanloom eval runs/t0 t0 --data DIR --prompts promptsource --mixture t0_eval_score_eval --out runs/t0-judged

DIR holds the data sets: DIR/glue/mrpc or DIR/glue_mrpc, as `datasets` saved it (save_to_disk) or with train.jsonl and
validation.jsonl in it; or P3, a folder for each task. Mixture, rates and lengths are T0's, and so are Adafactor at a
constant 0.001, dropout 0.1, 2^20 tokens a batch and 12,200 steps. Inputs have no end of sequence; targets that are cut
keep theirs, unlike there. The size is that of --start: T5 1.1 xxl, LM-adapted, for T0 (11 billion parameters), xl for
T0-3B. Evaluation is of what T0 never learnt from, each template ranked; the table has what is published beside it.

Hardware: a v3-512 for 11B, as T0 had it, a v3-128 for 3B (--slice). Compiled for them (`spanloom plan t0 ... --slice
v3-512 --on v3-512`) a step takes 3.4 and 4.7 GiB of the 15.5 of a core; cost, counted and not measured: 4.5e16 and
1.2e16 FLOPs a step, at least 5.3 and 6.1 hours in all.
Expect rank accuracies, the mean over prompts and then over nine data sets, of 65.2 for 11B and 55.2 for 3B as
published, of 68.9 and 64.4 in a later rerun of 20,000 larger steps. Nobody has run these defaults to their end with
Spanloom.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from spanloom.model.sizes import named
from spanloom.recipes._data_sets import cached_task_in, data_set_in
from spanloom.recipes._fine_tuning import fine_tuning_run, told_by_start
from spanloom.recipes._slices import on_slice
from spanloom.recipes._start import model_and_vocabulary, needed
from spanloom.recipes._t0_published import PUBLISHED
from spanloom.settings.mesh import Mesh
from spanloom.settings.mixture import BySize, Mixture, Weighted
from spanloom.settings.model import Model
from spanloom.settings.objectives import Supervised
from spanloom.settings.packing import Packed
from spanloom.settings.row_sources import RowSource, SeqioCaches
from spanloom.settings.run import After, Evaluation, Run
from spanloom.settings.serialize import SettingsError
from spanloom.settings.task import Task
from spanloom.settings.vocabulary import Bytes, Vocabulary
from spanloom.tasks.prompts.prompted import CACHED_PROMPT, prompt, prompted_task
from spanloom.tasks.prompts.t0 import CAP, T0Mixture, T0Task, t0_tasks
from spanloom.tasks.prompts.template import shown_data_set
from spanloom.tasks.prompts.template_files import read_collection

__all__ = ["PUBLISHED", "SLICES", "example", "recipe"]

SLICES = {"v3-512": (Mesh(fsdp=64, tensor=8), 256), "v3-128": (Mesh(fsdp=32, tensor=4), 256)}
"""The mesh of a slice, and the sequences of a microbatch: of 11B, and of 3B."""
_NO_LABEL = "<NO LABEL>"  # what T0 writes where a template leaves the target empty


def recipe(
    data: str | None = None,
    prompts: tuple[str, ...] = (),
    start: str | None = None,
    mixture: T0Mixture = "t0_train",
    missing: Literal["error", "skip"] = "error",
    inputs_length: int = 1024,
    targets_length: int = 256,
    slice: Literal["v3-512", "v3-128"] | None = None,
) -> Run:
    """The run.

    Args:
      data: Folder of the data sets, see above. Must be given.
      prompts: Folders and files of templates: promptsource's (0.1.0 is T0's). Must be given.
      start: Checkpoint, run directory or Hugging Face folder to start from; T0's was T5 1.1, LM-adapted. Must be given.
      mixture: t0_train, t0+_train, t0++_train, their ablations, or the mixtures for evaluation (..._score_eval).
      missing: What to do where data sets are not there: stop and name them, or mix what is there, at the same rates.
      inputs_length: Encoder length in tokens; longer inputs are cut at the right.
      targets_length: Decoder length in tokens; longer targets are cut at the right.
      slice: The TPUs that it is to train on, v3-512 for 11B, v3-128 for 3B: decides mesh, microbatches, bfloat16 and
        what is computed again; unset: all devices that are there, and what the flags say.
    """
    if not data or not prompts:
        raise SettingsError("t0 needs --data, the folder of its data sets, and --prompts, promptsource's folder")
    if start is None:
        raise needed("t0")
    model, vocabulary = model_and_vocabulary(start)
    wanted = t0_tasks(mixture, read_collection(prompts))
    found = _sources(Path(data).expanduser(), wanted)
    if len(found) < len(wanted) and (missing == "error" or not found):
        raise SettingsError(_without(data, mixture, wanted, found))
    objective = Supervised(inputs_length, targets_length, too_long="trim")
    parts = tuple(
        Weighted(_task(one, found[one.name], vocabulary, objective), _rate(one)) for one in wanted if one.name in found
    )
    run = _run(Mixture(mixture, parts), model, start, Packed(inputs_length, targets_length))
    return on_slice(run, SLICES[slice] if slice else None)


def example() -> tuple[Run, dict[str, str]]:
    """The run as help shows it before --start is named, and the fields that only --start tells."""
    task = Task("t0_train", SeqioCaches(), Bytes(), Supervised(1024, 256, too_long="trim"))
    run = _run(task, named("byt5_small"), None, Packed(1024, 256))
    return run, told_by_start()


def _run(task: Task | Mixture, model: Model, start: str | None, packing: Packed) -> Run:
    return fine_tuning_run(
        "t0",
        task,
        model,
        start,
        batch_tokens=2**20,
        packing=packing,
        steps=12_200,
        eval=Evaluation(every=1000, max_batches=1, batch_size=64),  # of hundreds of tasks
        after=After(fills=0),
    )


def _sources(folder: Path, wanted: Sequence[T0Task]) -> dict[str, RowSource]:
    """The rows of each task that are there; P3's before those of its data set, as T0 saw exactly these."""
    if not folder.is_dir():
        raise SettingsError(f"--data {folder}: no such folder")
    found: dict[str, RowSource] = {}
    for task in wanted:
        name = task.name.removesuffix("_score_eval")
        judged = name != task.name
        source = cached_task_in(folder, name) or data_set_in(folder, task.data_set, task.round, judged=judged)
        if source is not None:
            found[task.name] = source
    return found


def _task(one: T0Task, source: RowSource, vocabulary: Vocabulary, objective: Supervised) -> Task:
    render = CACHED_PROMPT if isinstance(source, SeqioCaches) else prompt(one.template, empty_target=_NO_LABEL)
    has_choices = bool(one.template.answer_choices)
    return prompted_task(one.name, source, (render,), vocabulary, objective, has_choices=has_choices)


def _rate(one: T0Task) -> float | BySize:
    """T0's own figure; where it has none, what is there, with its cap."""
    return BySize(maximum=CAP) if one.rate is None else one.rate


def _without(data: str, mixture: str, wanted: Sequence[T0Task], found: Mapping[str, RowSource]) -> str:
    """Which data sets are not there, and what is left without them."""
    lacking: dict[str, list[T0Task]] = {}
    for task in wanted:
        if task.name not in found:
            lacking.setdefault(shown_data_set(task.data_set), []).append(task)
    has_rates = all(task.rate is not None for task in wanted)  # the mixtures that are only judged lack some or all
    names = ", ".join(
        f"{name} ({_count(tasks)}{f', rate {_total(tasks):,}' if has_rates else ''})" for name, tasks in lacking.items()
    )
    left = [task for task in wanted if task.name in found]
    all_sets = {task.data_set for task in wanted}
    one = next(iter(lacking))
    what = (
        f"{len(left):,} of {_count(wanted)}"
        f"{f', with {_total(left):,} of a total rate of {_total(wanted):,}' if has_rates else ''}; "
        "--missing skip goes on with these"
        if left
        else "no task"
    )
    return (
        f"--data {data} lacks {len(lacking)} of the {len(all_sets)} data sets of {mixture}: {names}. Looked for are "
        f"{data}/{one} and {data}/{one.replace('/', '_')}, saved by `datasets` or with train.jsonl in it, or P3's "
        f"folder of each task. What is there makes {what}"
    )


def _count(tasks: Sequence[T0Task]) -> str:
    return "1 task" if len(tasks) == 1 else f"{len(tasks):,} tasks"


def _total(tasks: Sequence[T0Task]) -> int:
    return sum(task.rate or 0 for task in tasks)
