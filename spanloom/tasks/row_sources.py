"""Rows of every kind of row source: one way in, whatever holds them."""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, fields
from itertools import islice
from typing import Any

from spanloom.settings.row_sources import (
    HuggingFaceDataset,
    PythonExamples,
    RecordFiles,
    RowFiles,
    RowSource,
    SeqioCaches,
    TfdsFolder,
)
from spanloom.tasks.file_lists import list_files
from spanloom.tasks.file_system import identity, size_of
from spanloom.tasks.heldout import Split
from spanloom.tasks.parts import files_of
from spanloom.tasks.read_report import BadInputError, Intake, ReadReport

_FORMAT = 1  # raised when the same source gives other rows


def read_row_source(source: RowSource, split: Split, report: ReadReport) -> Iterator[Mapping[str, Any]]:
    """The rows of what a source names for training, or for the held-out part; the same on every pass.

    Where no held-out files or split are named, those for training are all there are, and the caller divides them.
    Values are str, bytes, int, float, bool, None, lists, mappings and NumPy arrays. `report` counts files, and what is
    left out or mended. Raises BadInputError as `source.errors` says, and in any mode where there is no row.
    """
    check_settings(source)
    given, take = False, getattr(source, "take", None)
    rows = _rows(source, split, report)
    for row in rows if take is None else islice(rows, take):
        given = True
        yield row
    if not given:
        left = ", ".join(f"{count:,} {reason}" for reason, count in sorted(report.skipped.items()))
        what = f"no row for {'training' if split == 'train' else 'the held-out part'}"
        told = "; ".join(filter(None, [left, *report.messages[:3]])) or "it is empty"
        raise BadInputError(described(source), f"{what}: {told}", "Check what is named", reason="no rows")


def row_source_fingerprint(source: RowSource) -> str:
    """What decides the rows, as sha256 hex: settings, and versions of what they name; no row is read.

    Where files lie does not count, but their names, sizes and times do. Raises BadInputError for what is absent.
    """
    digest = hashlib.sha256(json.dumps([type(source).__name__, _FORMAT, _settings(source)], sort_keys=True).encode())
    for part in _identities(source):
        digest.update(hashlib.sha256(part).digest())
    return digest.hexdigest()


def row_source_bytes(source: RowSource, splits: Sequence[Split]) -> int:
    """Bytes that a pass over these parts reads; 0 where nobody can say. Raises BadInputError."""
    match source:
        case RowFiles() | RecordFiles():
            read = splits if source.heldout_files else splits[:1]
            return sum(size_of(path) for split in read for path in files_of(source, split, ReadReport()))
        case SeqioCaches():
            from spanloom.tasks.seqio_rows import seqio_caches_bytes

            return seqio_caches_bytes(source, _splits(source, splits))
        case TfdsFolder():
            from spanloom.tasks.tfds_folder import tfds_folder_bytes

            return tfds_folder_bytes(source, _splits(source, splits))
        case HuggingFaceDataset():
            from spanloom.tasks.hub_rows import hub_rows_bytes

            return hub_rows_bytes(source, _splits(source, splits))
        case PythonExamples():
            return 0


def described(source: RowSource) -> str:
    """What a source names, for messages."""
    match source:
        case RowFiles() | RecordFiles():
            return ", ".join(source.files)
        case SeqioCaches():
            return f"{', '.join(source.folders)} (split {source.split})"
        case TfdsFolder():
            return f"{source.folder} (split {source.split})"
        case HuggingFaceDataset():
            return f"{source.dataset} (split {source.split})"
        case PythonExamples():
            return source.function.name if source.function is not None else "rows"


def check_settings(source: RowSource) -> None:
    """Raises BadInputError for settings that make no sense."""
    take, split = getattr(source, "take", None), getattr(source, "split", None)
    if take is not None and take < 1:
        raise BadInputError("take", f"{take} is no number of rows", "Set it to 1 or more, or leave it unset")
    for name in ("shard_rows", "heldout_take"):
        if getattr(source, name, 1) < 1:
            raise BadInputError(name, f"{getattr(source, name)} is no number of rows", "Set it to 1 or more")
    if split is not None and split == getattr(source, "heldout_split", None):
        fix = "Name another held-out split, or none: a share of the rows is kept out then"
        raise BadInputError("heldout_split", f"{split!r} is the split to train on", fix)


def _rows(source: RowSource, split: Split, report: ReadReport) -> Iterator[Mapping[str, Any]]:
    match source:
        case RowFiles():
            from spanloom.tasks.row_files import read_row_files

            return read_row_files(source, split, report)
        case RecordFiles():
            from spanloom.tasks.record_files import read_record_files

            return read_record_files(source, split, report)
        case SeqioCaches():
            from spanloom.tasks.seqio_rows import read_seqio_caches

            return read_seqio_caches(source, _split_of(source, split), report)
        case TfdsFolder():
            from spanloom.tasks.tfds_folder import read_tfds_folder

            return read_tfds_folder(source, _split_of(source, split), report)
        case HuggingFaceDataset():
            from spanloom.tasks.hub_rows import read_hub_rows

            return read_hub_rows(source, _split_of(source, split), report)
        case PythonExamples():
            from spanloom.tasks.python_examples import read_python_examples

            return read_python_examples(source, source.heldout_split if split == "heldout" else source.split)


_WithSplits = SeqioCaches | TfdsFolder | HuggingFaceDataset


def _split_of(source: _WithSplits, split: Split) -> str:
    """The source's own name of a part's split; a held-out part without one stands in that for training."""
    return source.heldout_split if split == "heldout" and source.heldout_split else source.split


def _splits(source: _WithSplits, splits: Sequence[Split]) -> list[str]:
    return list(dict.fromkeys(_split_of(source, split) for split in splits))


def _settings(source: RowSource) -> dict[str, Any]:
    """The settings that decide the rows, without the places where they lie and what `_identities` tells better."""
    places = {"files", "heldout_files", "folders", "folder", "dataset", "function", "rows"}
    plain = asdict(source)
    return {f.name: plain[f.name] for f in fields(source) if f.name not in places}


def _identities(source: RowSource) -> Iterator[bytes]:
    every: tuple[Split, Split] = ("train", "heldout")
    match source:
        case RowFiles() | RecordFiles():
            for patterns in (source.files, source.heldout_files):
                for path in list_files(patterns, Intake(ReadReport(), source.errors)) if patterns else ():
                    yield identity(path, source.errors)
                yield b"|"
        case SeqioCaches():
            from spanloom.tasks.seqio_rows import identify_seqio_caches

            yield from identify_seqio_caches(source, _splits(source, every))
        case TfdsFolder():
            from spanloom.tasks.tfds_folder import identify_tfds_folder

            yield from identify_tfds_folder(source, _splits(source, every))
        case HuggingFaceDataset():
            from spanloom.tasks.hub_rows import identify_hub_rows

            yield from identify_hub_rows(source, _splits(source, every))
        case PythonExamples():
            from spanloom.tasks.python_examples import identify_python_examples

            yield from identify_python_examples(source)
