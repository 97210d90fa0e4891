"""HuggingFaceDataset: rows of what the `datasets` library reads, from the Hub, from disk or from arrow files.

Tokens of private data sets are found by the library itself (HF_TOKEN, or huggingface_hub's login); none is asked for
here, and none may stand in what is written down.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from spanloom.settings.nearest import did_you_mean
from spanloom.settings.row_sources import HuggingFaceDataset
from spanloom.tasks import hub_token
from spanloom.tasks.file_lists import list_files
from spanloom.tasks.file_system import exists, identity, is_folder
from spanloom.tasks.read_report import BadInputError, Intake, ReadReport
from spanloom.tasks.split_slices import parse, saved_split

T = TypeVar("T")

_BATCH = 1000
_INSTALL = "pip install 'spanloom[hub]'"


def read_hub_rows(source: HuggingFaceDataset, split: str, report: ReadReport) -> Iterator[dict[str, Any]]:
    """The rows of a split in its own order; files of images and audio are not decoded.

    Raises BadInputError for a data set, configuration or split that does not exist, naming those that do, and where the
    library is not installed.
    """
    dataset = open_dataset(source, split)
    report.files += 1
    yield from rows_of_dataset(dataset, _named(source), report)


def identify_hub_rows(source: HuggingFaceDataset, splits: list[str]) -> Iterator[bytes]:
    """What tells these rows from any others: of a stream the commit on the Hub, of files theirs, else the fingerprint
    that the library keeps with a data set. Raises BadInputError.
    """
    kind = _kind(source)
    if kind == "arrow":
        for path in _arrow_files(source):
            yield identity(path, "strict")
    elif kind == "folder":
        for folder, _, names in sorted(os.walk(os.path.expanduser(source.dataset))):
            for name in sorted(names):
                yield identity(os.path.join(folder, name), "strict")
    elif kind == "hub" and source.streaming:
        yield f"{source.dataset} {_commit(source)}".encode()
    else:
        for split in splits:
            yield f"{source.dataset if kind == 'hub' else kind} {open_dataset(source, split)._fingerprint}".encode()


def hub_rows_bytes(source: HuggingFaceDataset, splits: list[str]) -> int:
    """Bytes of these splits in memory; 0 where nobody can say."""
    if source.streaming:
        return 0
    return sum(int(open_dataset(source, split).data.nbytes) for split in splits)


def rows_of_dataset(dataset: Any, name: str, report: ReadReport | None = None) -> Iterator[dict[str, Any]]:
    """The rows of a Dataset, whose bytes `report` counts, or an IterableDataset.

    Raises BadInputError for a dict of splits.
    """
    kind = type(dataset).__name__
    if isinstance(dataset, Mapping):
        splits = ", ".join(map(str, dataset))
        raise BadInputError(name, f"is a {kind} of the splits {splits}, not rows", "Return one of its splits")
    if kind == "Dataset":
        for batch in dataset.with_format("arrow").iter(batch_size=_BATCH):
            yield from _rows_of(batch, name)
            if report is not None:
                report.file_bytes += batch.nbytes
        return
    for row in undecoded(dataset):
        yield dict(row)


def _rows_of(batch: Any, name: str) -> list[dict[str, Any]]:
    try:
        found: list[dict[str, Any]] = batch.to_pylist()
    except (ValueError, SystemError) as error:  # offsets or text that were changed on disk: Arrow has no checksums
        fix = "Get it again, or save it again"
        raise BadInputError(name, f"the data set is damaged ({error})", fix, reason="damaged data set") from error
    return found


def undecoded(dataset: Any) -> Any:
    """An IterableDataset that leaves files of images and audio as they are."""
    return dataset.decode(False) if hasattr(dataset, "decode") and dataset.features else dataset


def open_dataset(source: HuggingFaceDataset, split: str) -> Any:
    """The split as a Dataset, or an IterableDataset where it is a stream. Raises BadInputError."""
    library = _library()
    kind = _kind(source)
    if source.streaming and kind in ("arrow", "saved"):
        raise BadInputError(_named(source), "is on disk already: there is nothing to stream", "Set streaming to False")
    if kind == "arrow":
        _check_whole(source, split)
        parts = [library.Dataset.from_file(path) for path in _arrow_files(source)]
        return _taken(library.concatenate_datasets(parts), source)
    if kind == "saved":
        return _taken(_of_saved(asked(source, lambda: library.load_from_disk(source.dataset)), source, split), source)
    return _taken(_loaded(library, source, split), source)


def _loaded(library: Any, source: HuggingFaceDataset, split: str) -> Any:
    path = os.path.expanduser(source.dataset) if _kind(source) == "folder" else source.dataset
    options: dict[str, Any] = {"revision": source.revision} if source.revision else {}

    def load() -> Any:
        return library.load_dataset(path, source.config, split=split, streaming=source.streaming, **options)

    try:
        return asked(source, load)
    except BadInputError as error:
        splits = _splits(library, path, source.config, options) if "split" in error.what.lower() else []
        if splits:
            what = f"no split {split!r}{did_you_mean(split, splits)}"
            raise BadInputError(_named(source), what, f"Name one that exists: {', '.join(splits)}") from error.__cause__
        raise


def _splits(library: Any, path: str, config: str | None, options: dict[str, Any]) -> list[str]:
    try:
        return list(library.get_dataset_split_names(path, config, **options))
    except Exception:  # only for a message
        return []


def _of_saved(saved: Any, source: HuggingFaceDataset, split: str) -> Any:
    """Part of what save_to_disk wrote: a dict of splits, or one split."""
    try:
        parts = parse(split)
    except ValueError as error:
        raise BadInputError("split", str(error)) from error
    chosen = []
    for part in parts:
        if isinstance(saved, Mapping):
            if part.split not in saved:
                near = did_you_mean(part.split, saved)
                raise BadInputError(source.dataset, f"no split {part.split!r} here{near}", "Name one that exists")
            whole = saved[part.split]
        else:
            whole = saved
            own = saved_split(str(saved.split or ""))
            if part.split not in (own, "train"):
                raise BadInputError(source.dataset, f"holds the split {own!r} alone, not {part.split!r}", "Name that")
        first, stop = part.bounds(len(whole))
        chosen.append(whole if (first, stop) == (0, len(whole)) else whole.select(range(first, stop)))
    return chosen[0] if len(chosen) == 1 else _library().concatenate_datasets(chosen)


def _taken(dataset: Any, source: HuggingFaceDataset) -> Any:
    return dataset if source.take is None else dataset.take(source.take)


def _kind(source: HuggingFaceDataset) -> str:
    """'arrow' (files), 'saved' (by save_to_disk), 'folder' (of data files) or 'hub'. Raises BadInputError."""
    if not source.dataset:
        fix = "Name one of the Hub, or a folder that save_to_disk wrote"
        raise BadInputError("dataset", "no data set is named", fix)
    path = os.path.expanduser(source.dataset)
    if path.endswith(".arrow"):
        return "arrow"
    if any(exists(os.path.join(path, name)) for name in ("state.json", "dataset_dict.json")):
        return "saved"
    if is_folder(path):
        return "folder"
    if "://" in path or path.startswith(("/", ".", "~")) or path.count("/") > 1:
        raise BadInputError(source.dataset, "there is no such folder", "Check the path")
    return "hub"


def _check_whole(source: HuggingFaceDataset, split: str) -> None:
    if split != "train":
        what = f"arrow files have no splits, and {split!r} is asked for"
        raise BadInputError(source.dataset, what, "Leave split as it is, and heldout_split unset")


def _arrow_files(source: HuggingFaceDataset) -> list[str]:
    return list_files((source.dataset,), Intake(ReadReport()))


def _commit(source: HuggingFaceDataset) -> str:
    """The commit that a revision stands for now. Raises BadInputError where the Hub cannot be asked."""
    _library()
    from huggingface_hub import HfApi

    return str(asked(source, lambda: HfApi().dataset_info(source.dataset, revision=source.revision).sha))


def asked(source: HuggingFaceDataset, act: Callable[[], T]) -> T:
    """What the library gives. Raises BadInputError for its complaints, without any token that may stand in them."""
    try:
        return act()
    except Exception as error:  # the library raises errors of many kinds of its own, of HTTP and of file formats
        if hub_token.is_odd(error):
            raise BadInputError(_named(source), hub_token.ODD, hub_token.FIX, reason="data set not read") from None
        said = " ".join(str(error).split()) or type(error).__name__
        fix = "Check the name, the configuration and the revision; private ones need HF_TOKEN or `hf auth login`"
        what = _without_token(said)
        # the cause is left out: it may hold the request with its headers
        raise BadInputError(_named(source), what, fix, reason="data set not read") from None


def _without_token(text: str) -> str:
    from huggingface_hub import get_token

    token = get_token()
    return text.replace(token, "<token>") if token else text


def _named(source: HuggingFaceDataset) -> str:
    return source.dataset + (f" ({source.config})" if source.config else "")


def _library() -> Any:
    try:
        import datasets
    except ImportError as error:
        what = f"data sets of Hugging Face need the package `datasets`: {error}"
        raise BadInputError("HuggingFaceDataset", what, _INSTALL, reason="missing package") from error
    return datasets
