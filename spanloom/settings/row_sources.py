"""Sources of rows with fields: what a task with preprocessors, or with features of its own, learns from, as settings.

Every one gives the rows of one split to training, and keeps out those of `heldout_split` (`heldout_files`) or, where
none is named, a share of the rows.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from spanloom.settings.function import Function, as_function, as_plain

Errors = Literal["strict", "replace", "skip"]


def in_memory(dataset: object) -> str:
    """Why no setting can be a data set that is in memory, and what to give instead."""
    return (
        f"a {type(dataset).__name__} in memory cannot be written down with a run: give PythonExamples a function that "
        "returns it, or save_to_disk it and name the folder in HuggingFaceDataset"
    )


@dataclass(frozen=True)
class RowFiles:
    """Files of rows with every column they have: jsonl, csv, tsv or parquet; local, or at s3://, gs://, https://."""

    files: tuple[str, ...] = ()
    """Paths or globs; compressed ones too."""
    heldout_files: tuple[str, ...] = ()
    """Paths or globs of the held-out part; empty: a share of the rows is kept out."""
    heldout_share: float = 0.01
    """Share of the rows kept out of training when no held-out files are named; one where it comes to none."""
    header: Literal["yes", "no"] = "yes"
    """Whether the first row of a table names its columns; no: they are called 0, 1, 2 and so on."""
    format: Literal["auto", "jsonl", "csv", "tsv", "parquet"] = "auto"
    """Format of the files; auto goes by the name."""
    encoding: str = "utf-8"
    """Text encoding of the files."""
    errors: Errors = "strict"
    """What to do with bad input: stop, replace bytes, or skip the row and count it."""


@dataclass(frozen=True)
class SeqioCaches:
    """Tasks that SeqIO cached (seqio_cache_tasks; the layout of bigscience/P3), read without TensorFlow.

    Token ids are taken as they are stored. Where they end in EOS already, as P3's targets do, name the task's features:
    (Feature("inputs"), Feature("targets", add_eos=False)).
    """

    folders: tuple[str, ...] = ()
    """Folders of finished caches: those that hold COMPLETED."""
    split: str = "train"
    """Split to train on."""
    heldout_split: str | None = None
    """Split that is held out; unset: a share of the rows is kept out."""
    heldout_share: float = 0.01
    """Share of the rows kept out of training when no held-out split is named; one where it comes to none."""
    errors: Errors = "strict"
    """What to do with damaged records and missing shards: stop, replace undecodable bytes, or skip and count."""


@dataclass(frozen=True)
class HuggingFaceDataset:
    """A data set that the `datasets` library reads: of the Hub, saved on disk, or arrow files (extra: hub).

    A private one is read with the token of HF_TOKEN or of huggingface_hub's login; no setting holds a token.
    """

    dataset: str = ""
    """Name on the Hub, a folder that save_to_disk wrote, a folder of data files, or an .arrow file or glob."""
    config: str | None = None
    """Configuration (subset) of a data set that has several."""
    split: str = "train"
    """Split to train on; slices such as train[:10%] work, too."""
    heldout_split: str | None = None
    """Split that is held out; unset: a share of the rows is kept out."""
    heldout_share: float = 0.01
    """Share of the rows kept out of training when no held-out split is named; one where it comes to none."""
    revision: str | None = None
    """Commit, tag or branch on the Hub; unset: the newest, looked up each time."""
    streaming: bool = False
    """Read rows as they come, without a copy of the whole data set on disk. With `take` those become a store; without
    it shards of rows are made as the run needs them, and dropped once no checkpoint needs them any more."""
    take: int | None = None
    """Rows read at most, from the first; unset: all, and of a stream endlessly: at its end it begins again."""
    shard_rows: int = 16_384
    """Rows of a stream that are shuffled among themselves and kept together; fewer where they reach 32 MiB."""
    heldout_take: int = 10_000
    """Rows of a stream among which the held-out part is found: the first so many of `heldout_split`, if that is set;
    else `heldout_share` of the first so many. Whatever row of the stream falls into that share is not trained on."""

    def __post_init__(self) -> None:
        """Raises TypeError for a data set in memory, which no other process could find."""
        if not isinstance(self.dataset, str):
            raise TypeError(f"HuggingFaceDataset: {in_memory(self.dataset)}")


@dataclass(frozen=True)
class PythonExamples:
    """Rows that a Python function gives, or that stand here. A data set in memory: a function that returns it."""

    function: Function | None = None
    """Function that returns rows, any iterable of mappings; it is called more than once, and must give the same rows
    each time. The callable itself may be given, with further arguments by functools.partial."""
    rows: tuple[Mapping[str, Any], ...] = ()
    """Rows as they are, instead of a function: texts, numbers, booleans, None, lists and dicts."""
    split: str | None = None
    """Given to the function as `split` for the rows to train on; unset: it takes no such argument."""
    heldout_split: str | None = None
    """Given to the function as `split` for those held out; unset: a share of the rows is kept out."""
    heldout_share: float = 0.01
    """Share of the rows kept out of training when no held-out split is named; one where it comes to none."""
    take: int | None = None
    """Rows read at most, from the first; unset: all. A function that never ends needs it, or `streaming`."""
    streaming: bool = False
    """Without `take`: the rows may never end, and shards of them are made as the run needs them. What begins in the
    middle calls the function anew and passes over rows, at once where it takes `skip` (how many) or returns an object
    with state_dict and load_state_dict (of JSON data); at its end it begins again."""
    shard_rows: int = 16_384
    """Rows of a stream that are shuffled among themselves and kept together; fewer where they reach 32 MiB."""
    heldout_take: int = 10_000
    """Rows of a stream among which the held-out part is found: the first so many of `heldout_split`, if that is set;
    else `heldout_share` of the first so many. Whatever row of the stream falls into that share is not trained on."""

    def __post_init__(self) -> None:
        """A callable becomes its name, lists tuples. Raises FunctionError for code that a run cannot write down."""
        if self.function is not None:
            object.__setattr__(self, "function", as_function(self.function))
        object.__setattr__(self, "rows", as_plain(self.rows, "rows of PythonExamples"))


@dataclass(frozen=True)
class RecordFiles:
    """ArrayRecord and TFRecord files: of tf.train.Example, msgpack or JSON objects, or plain bytes."""

    files: tuple[str, ...] = ()
    """Paths or globs."""
    heldout_files: tuple[str, ...] = ()
    """Paths or globs of the held-out part; empty: a share of the rows is kept out."""
    heldout_share: float = 0.01
    """Share of the rows kept out of training when no held-out files are named; one where it comes to none."""
    format: Literal["auto", "array_record", "tfrecord"] = "auto"
    """Format of the files; auto goes by the name."""
    records: Literal["example", "msgpack", "json", "bytes"] = "example"
    """What a record is: a tf.train.Example, a msgpack map, a JSON object, or bytes (the row's field `record`)."""
    features: tuple[str, ...] = ()
    """Features of a tf.train.Example, such as text:string, label:int64, tokens:int32[], image:bytes; empty: all there
    are, one text as str, more as a list, numbers as an array."""
    errors: Errors = "strict"
    """What to do with damaged records: stop, replace undecodable bytes, or skip and count."""


@dataclass(frozen=True)
class TfdsFolder:
    """A data set that TensorFlow Datasets wrote (tfrecord or array_record), read without TensorFlow."""

    folder: str = ""
    """Folder with dataset_info.json, or one above it that holds a single version."""
    split: str = "train"
    """Split to train on; slices such as train[:10%] or train[1000:] work, too."""
    heldout_split: str | None = None
    """Split that is held out; unset: a share of the rows is kept out."""
    heldout_share: float = 0.01
    """Share of the rows kept out of training when no held-out split is named; one where it comes to none."""
    errors: Errors = "strict"
    """What to do with damaged records and missing files: stop, replace undecodable bytes, or skip and count."""


RowSource = RowFiles | SeqioCaches | HuggingFaceDataset | PythonExamples | RecordFiles | TfdsFolder


Streamed = HuggingFaceDataset | PythonExamples
"""Sources that can be streams."""


def is_stream(source: object) -> bool:
    """Whether the rows of a source are kept some at a time, as a run needs them, and not all of them in a store."""
    return isinstance(source, Streamed) and source.streaming and source.take is None
