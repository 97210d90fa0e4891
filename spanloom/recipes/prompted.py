"""Data sets of one's own with prompt templates: a task for each template, mixed with T0's cap, packed.

    spanloom train prompted --data rotten_tomatoes=reviews.jsonl glue/mrpc=mrpc.tsv --prompts promptsource mine.yaml \\
        --start runs/a --out runs/b --judge 'glue_mrpc_*'
    spanloom show prompted --data rotten_tomatoes=reviews.jsonl --prompts mine.yaml --start runs/a -n 1

A data set is called as its templates call it, and has the columns that these name. FILES are jsonl, csv, tsv or
parquet, or a folder: one that `datasets` saved, or with train.jsonl and validation.jsonl in it. Templates are
promptsource's, or in a YAML or TOML file of one's own: `dataset`, and `templates` with name, inputs, targets and
answer_choices each. Adafactor at a constant 0.001 (narrow models: 0.01), dropout 0.1; cost depends on the model.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path

from spanloom.model.sizes import named
from spanloom.recipes._data_sets import source_of
from spanloom.recipes._files import by_name
from spanloom.recipes._fine_tuning import fine_tuning_run, told_by_start
from spanloom.recipes._start import model_and_vocabulary, needed
from spanloom.settings.mixture import Mixture, Weighted
from spanloom.settings.model import Model
from spanloom.settings.nearest import did_you_mean
from spanloom.settings.objectives import Supervised
from spanloom.settings.packing import Packed
from spanloom.settings.row_sources import RowFiles, RowSource
from spanloom.settings.run import After, Checkpoints, Evaluation, Run
from spanloom.settings.serialize import SettingsError
from spanloom.settings.task import Task
from spanloom.settings.vocabulary import Bytes
from spanloom.tasks.prompts.prompted import prompted_parts
from spanloom.tasks.prompts.template import DataSetName, DataSetTemplates, PromptTemplate, shown_data_set, task_name
from spanloom.tasks.prompts.template_files import read_collection


def recipe(
    data: tuple[str, ...] = (),
    prompts: tuple[str, ...] = (),
    start: str | None = None,
    learn: tuple[str, ...] = ("*",),
    judge: tuple[str, ...] = (),
    maximum: int = 500_000,
    inputs_length: int = 1024,
    targets_length: int = 256,
    inputs_eos: bool = False,
    own_metrics: bool = False,
) -> Run:
    """The run.

    Args:
      data: NAME=FILES of each data set, such as glue/mrpc=mrpc.jsonl, see above; a name may come again with more files.
        Must be given.
      prompts: Files and folders of templates. Must be given.
      start: Checkpoint, run directory or Hugging Face folder to start from. Must be given.
      learn: Tasks to learn: their names, or patterns with *; a task is called as its data set and template,
        glue_mrpc_equivalent.
      judge: Tasks whose held-out parts are measured, and that are not learnt, likewise: held-out templates. The
        folder of a data set that is only judged may hold validation.jsonl alone (extra: hub).
      maximum: Cap on the examples of a data set, which its templates share above it.
      inputs_length: Encoder length in tokens; longer inputs are cut at the right.
      targets_length: Decoder length in tokens; longer targets are cut at the right.
      inputs_eos: Whether an end of sequence follows the inputs; T0's have none.
      own_metrics: Judge what is written by the metrics that its template names, where that has no answer choices
        (ROUGE, BLEU and so on: pip install 'spanloom[eval]'); else by exact match.
    """
    if not data or not prompts:
        raise SettingsError("prompted needs --data NAME=FILES ... and --prompts, files or folders of templates")
    if start is None:
        raise needed("prompted")
    model, vocabulary = model_and_vocabulary(start)
    objective = Supervised(inputs_length, targets_length, too_long="trim")
    learnt: list[Weighted] = []
    judged: list[Task] = []
    sets = list(_data_sets(data, prompts))
    _refuse_patterns_of_none(sets, {"--learn": learn, "--judge": judge})
    _refuse_one_name_for_two(sets, (*learn, *judge))
    for templates, name, files in sets:
        both = _chosen(templates, learn, judge)
        source = _source(name, files, judged=not both[0].templates)
        for chosen, is_learnt in zip(both, (True, False), strict=True):
            parts = prompted_parts(
                chosen,
                source,
                vocabulary,
                objective,
                inputs_eos=inputs_eos,
                maximum=maximum,
                own_metrics=own_metrics,
            )
            if is_learnt:
                learnt += parts
            else:
                judged += [part.part for part in parts if isinstance(part.part, Task)]
    if not learnt:
        raise SettingsError(f"--learn {' '.join(learn)}: --judge {' '.join(judge)} takes all of them")
    run = _run(Mixture("prompted", tuple(learnt)), model, start, Packed(inputs_length, targets_length))
    return replace(run, eval=replace(run.eval, also=tuple(judged)))


def example() -> tuple[Run, dict[str, str]]:
    """The run as help shows it before --start is named, and the fields that only --start tells."""
    task = Task("prompted", RowFiles(), Bytes(), Supervised(1024, 256, too_long="trim"))
    run = _run(task, named("byt5_small"), None, Packed(1024, 256))
    return run, told_by_start()


def _run(task: Task | Mixture, model: Model, start: str | None, packing: Packed) -> Run:
    return fine_tuning_run(
        "prompted",
        task,
        model,
        start,
        packing=packing,
        batch_size=64,
        steps=1000,
        checkpoint=Checkpoints(every=200),
        eval=Evaluation(every=200, max_batches=5, answers="ranks"),
        after=After(fills=1),
    )


def _data_sets(
    data: tuple[str, ...], prompts: tuple[str, ...]
) -> Iterator[tuple[DataSetTemplates, str, tuple[str, ...]]]:
    """The templates, the name and the files of each data set. Raises SettingsError for one without templates."""
    collection = read_collection(prompts)
    known = {shown_data_set(name): name for name in collection}
    for name, files in by_name("--data", data).items():
        if name not in known:
            near = did_you_mean(name, known)
            raise SettingsError(f"--data {name}: no templates for it in {', '.join(prompts)}{near}")
        yield collection[known[name]], name, files


def _refuse_patterns_of_none(
    sets: Sequence[tuple[DataSetTemplates, str, tuple[str, ...]]], given: Mapping[str, Sequence[str]]
) -> None:
    """Raises SettingsError for a pattern that no task is called by: a held-out template would be learnt."""
    names = [task_name(templates.name, one.name) for templates, _, _ in sets for one in templates.templates]
    for flag, patterns in given.items():
        for pattern in patterns:
            if not any(fnmatchcase(name, pattern) for name in names):
                raise SettingsError(f"{flag} {pattern}: no task is called so{did_you_mean(pattern, names)}")


def _refuse_one_name_for_two(
    sets: Sequence[tuple[DataSetTemplates, str, tuple[str, ...]]], chosen: Sequence[str]
) -> None:
    """Raises SettingsError for two of the chosen templates whose tasks are called alike, as of 'a b' and 'a_b'."""
    seen: dict[str, str] = {}
    for templates, name, _ in sets:
        for one in templates.templates:
            if not _matches(templates.name, one, chosen):
                continue
            task, template = task_name(templates.name, one.name), f"{one.name!r} of {name}"
            if task in seen:
                raise SettingsError(f"templates {seen[task]} and {template} would both be task {task}: rename one")
            seen[task] = template


def _source(name: str, files: tuple[str, ...], *, judged: bool) -> RowSource:
    """The rows of one data set. `judged`: nothing is learnt from them, so that a folder needs no train.jsonl."""
    place = Path(files[0]).expanduser()
    if len(files) > 1 or not place.is_dir():
        return RowFiles(files, heldout_share=0.05)
    source = source_of(place, judged=judged)
    if source is None:
        raise SettingsError(
            f"--data {name}={place}: nothing to learn in it, neither a split called train that `datasets` saved, nor a "
            "train.jsonl"
        )
    return source


def _chosen(
    templates: DataSetTemplates, learn: Sequence[str], judge: Sequence[str]
) -> tuple[DataSetTemplates, DataSetTemplates]:
    """The templates to learn, and those to judge alone."""
    judged = tuple(one for one in templates.templates if _matches(templates.name, one, judge))
    learnt = (one for one in templates.templates if one not in judged and _matches(templates.name, one, learn))
    return replace(templates, templates=tuple(learnt)), replace(templates, templates=judged)


def _matches(data_set: DataSetName, template: PromptTemplate, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(task_name(data_set, template.name), pattern) for pattern in patterns)
