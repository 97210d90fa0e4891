"""SeqIO's data sources as Spanloom's; a function is run, with stand-ins, until it asks for the first row."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from spanloom.migration.draft import Asked, Parameter
from spanloom.migration.fates import Note
from spanloom.migration.hub_shape import HubData, RowAskedError
from spanloom.migration.recipe_code import Expressions
from spanloom.migration.seqio_shape import DataSource, RegisteredTask
from spanloom.migration.stand_ins import Called, place_of, unwrapped
from spanloom.migration.t5_tasks import TFDS, tfds_folder
from spanloom.migration.tracing import Field, Row
from spanloom.settings.row_sources import HuggingFaceDataset, RecordFiles, TfdsFolder
from spanloom.settings.task import Source, TextFiles

_GENERATOR = "tensorflow.data.Dataset.from_generator"
_LINES = "tensorflow.data.TextLineDataset"
TEXT = Parameter("text", "tuple[str, ...]", "()", "Files or globs that stand for the task's source. Must be given.")


@dataclass(frozen=True)
class FoundSource:
    """A source, and what its elements are to the first preprocessor."""

    source: Source
    element: Any
    """A Row of the source's fields; a Field where an element is one text; or a dict of such."""
    parameters: tuple[Parameter, ...] = ()
    notes: tuple[Note, ...] = ()


def source_of(task: RegisteredTask, asked: Asked) -> FoundSource:
    """The source of a task."""
    source = task.source
    kind = source.kind if isinstance(source, DataSource) else type(source).__name__
    arguments = source.arguments if isinstance(source, DataSource) else {}
    if kind == "TfdsDataSource":
        return _tfds(task, arguments, asked)
    if kind == "TextLineDataSource":
        return _lines(task, arguments, asked)
    if kind == "TFExampleDataSource":
        patterns = arguments.get("split_to_filepattern") or {}
        files = RecordFiles(_files(patterns, asked.split), _files(patterns, asked.heldout_split), format="tfrecord")
        return FoundSource(files, Row())
    if kind == "FunctionDataSource":
        return _function(task, arguments, asked)
    return _unknown(task, f"{kind} is no source that Spanloom knows")


def _tfds(task: RegisteredTask, arguments: Mapping[str, Any], asked: Asked) -> FoundSource:
    splits = arguments.get("splits")
    mapped = splits if isinstance(splits, Mapping) else {}
    names = [mapped.get(one, one) for one in (asked.split, asked.heldout_split)]
    notes: list[Note] = []
    if isinstance(splits, list | tuple | Mapping) and asked.heldout_split not in splits:
        names[1] = None
        why = f"the task has no split {asked.heldout_split}: a share of the rows is held out"
        notes.append(Note("changed", task.place, f"task {task.name}", why))
    if odd := [one for one in names if one is not None and not isinstance(one, str)]:
        notes.append(Note("lost", task.place, f"task {task.name}", f"a split is {odd[0]!r}: name it in the recipe"))
        names = [one if isinstance(one, str) else None for one in names]
    name = str(arguments.get("tfds_name", ""))
    folder = tfds_folder(name, names[0] or "train", names[1])
    if where := arguments.get("tfds_data_dir"):
        folder = TfdsFolder(f"{where}/{name.replace(':', '/')}", names[0] or "train", names[1])
        return FoundSource(folder, Row(), (), tuple(notes))
    return FoundSource(folder, Row(), (TFDS,), tuple(notes))


def _lines(task: RegisteredTask, arguments: Mapping[str, Any], asked: Asked) -> FoundSource:
    patterns = arguments.get("split_to_filepattern") or {}
    notes: tuple[Note, ...] = ()
    if arguments.get("skip_header_lines"):
        why = "header lines are read as text: cut them from the files"
        notes = (Note("lost", task.place, f"skip_header_lines of {task.name}", why),)
    files = _text_files(_files(patterns, asked.split), _files(patterns, asked.heldout_split))
    return FoundSource(files, Field(("text",)), (), notes)


def _text_files(files: tuple[str, ...], heldout_files: tuple[str, ...]) -> TextFiles:
    """Files of lines, whatever they are called: a table, too, is lines to TensorFlow."""
    named = all(name.endswith(".txt") for name in (*files, *heldout_files))
    return TextFiles(files, heldout_files, format="auto" if named else "txt")


def _files(patterns: Mapping[str, Any], split: str | None) -> tuple[str, ...]:
    found = patterns.get(split or "", ())
    return (found,) if isinstance(found, str) else tuple(map(str, found))


def _function(task: RegisteredTask, arguments: Mapping[str, Any], asked: Asked) -> FoundSource:
    code, given = unwrapped(arguments.get("dataset_fn"))
    template = given.get("template")
    if template is not None and hasattr(template, "jinja"):
        return _prompted(task, given, asked)
    try:
        train, element = _rows(arguments["dataset_fn"], asked.split)
        heldout = None if asked.heldout_split is None else _rows(arguments["dataset_fn"], asked.heldout_split)[0]
    except (Exception, SystemExit) as error:
        return _unknown(task, f"{type(error).__name__}: {error}", place_of(code))
    if isinstance(train, tuple):
        files = _text_files(train, heldout if isinstance(heldout, tuple) else ())
        return FoundSource(files, Field(("text",)))
    notes: tuple[Note, ...] = ()
    if train.done:
        why = f"its rows go through {', '.join(train.done)} of the datasets library: write these as preprocessors"
        notes = (Note("lost", place_of(code), f"source of {task.name}", why),)
    split = None if not isinstance(heldout, HubData) else heldout.split
    source = HuggingFaceDataset(
        train.dataset,
        train.config,
        train.split or asked.split,
        split if split != train.split else None,
        revision=train.revision,
        streaming=train.streaming,
    )
    return FoundSource(source, element, (), notes)


def _rows(dataset_fn: Any, split: str) -> tuple[Any, Any]:
    """What a source's function reads, a HubData or the names of files, and what its elements are."""
    try:
        made = dataset_fn(split=split, shuffle_files=False, seed=None)
    except TypeError:
        made = dataset_fn(split=split, shuffle_files=False)
    if isinstance(made, HubData):
        return made, Row()
    if isinstance(made, Called) and made._name == _LINES:
        files = made._args[0] if made._args else made._kwargs.get("filenames")
        return ((files,) if isinstance(files, str) else tuple(map(str, files))), Field(("text",))
    if isinstance(made, Called) and made._name == _GENERATOR:
        generator = made._args[0] if made._args else made._kwargs["generator"]
        return _first(generator, made._kwargs.get("args") or ())
    raise TypeError(f"it returns {made!r}, and only from_generator over a data set of the Hub is followed")


def _first(generator: Any, args: Any) -> tuple[HubData, Any]:
    """The data set over whose rows a generator loops, and what it makes of a row."""
    asked: list[HubData] = []
    try:
        next(iter(generator(*args)))
    except RowAskedError as error:
        asked.append(error.data)
    if not asked:
        raise TypeError("it reads something else than a data set of the Hub")
    log = asked[0].log
    assert log is not None
    log.gives_row = True
    try:
        return asked[0], next(iter(generator(*args)))
    finally:
        log.gives_row = False


def _prompted(task: RegisteredTask, given: Mapping[str, Any], asked: Asked) -> FoundSource:
    """T0's shape: a data set, its subset, and a template of promptsource."""
    splits = given.get("split_mapping") or {}
    mapped = splits if isinstance(splits, Mapping) else {}
    heldout = None if asked.heldout_split is None else str(mapped.get(asked.heldout_split, asked.heldout_split))
    subset = given.get("subset_name")
    subset = None if subset is None else str(subset)
    split = str(mapped.get(asked.split, asked.split))
    source = HuggingFaceDataset(str(given.get("dataset_name")), subset, split, heldout)
    return FoundSource(source, given["template"])


def _unknown(task: RegisteredTask, why: str, place: str = "") -> FoundSource:
    """A source that is not followed: files take its place."""
    fix = (
        "the recipe reads --text instead. Write it as a plain function that yields rows (dicts), and give that as "
        "PythonExamples(function), with streaming=True where it never ends"
    )
    note = Note("lost", place or task.place, f"source of {task.name}", f"{why}; {fix}")
    return FoundSource(TextFiles(Expressions((), "text")), Field(("text",)), (TEXT,), (note,))
