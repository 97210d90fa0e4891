"""TfdsFolder: data sets that TensorFlow Datasets wrote to disk, read without it.

A folder holds dataset_info.json (splits, the number of examples in each shard, the names of files), features.json and
`<name>-<split>.<tfrecord|array_record>-0000i-of-0000N`.
"""

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from spanloom.settings.nearest import did_you_mean
from spanloom.settings.row_sources import TfdsFolder
from spanloom.tasks.file_system import exists, identity, is_folder, list_folder, open_file, size_of
from spanloom.tasks.read_report import BadInputError, Intake, ReadReport
from spanloom.tasks.record_files import read_payloads
from spanloom.tasks.split_slices import Part, parse
from spanloom.tasks.tf_example import parse_examples
from spanloom.tasks.tfds_features import Leaf, build_row, read_leaves

_INFO, _FEATURES = "dataset_info.json", "features.json"
_TEMPLATE = "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}"
_FORMATS = ("tfrecord", "array_record")
_GET_AGAIN = "Get the folder again, or prepare the data set again with TFDS"


@dataclass(frozen=True)
class _Dataset:
    folder: str
    kind: str
    leaves: list[Leaf] = field(repr=False)
    shards: dict[str, list[tuple[str, int]]] = field(repr=False)
    """Of each split the path of every shard, and how many examples it holds."""


def read_tfds_folder(source: TfdsFolder, split: str, report: ReadReport) -> Iterator[dict[str, Any]]:
    """The rows of a split, or of parts of splits, in order.

    Raises BadInputError for a folder, a split or a shard that is missing, for damage, and where a shard holds another
    number of records than the data set says.
    """
    intake = Intake(report, source.errors)
    dataset = _open(source.folder)
    for part, shards in _parts(dataset, split):
        first, stop = part.bounds(sum(count for _, count in shards))
        for path, count in shards:
            with intake.file_errors():
                if first < count and stop > 0:
                    yield from _read_shard(dataset, path, count, max(first, 0), min(stop, count), intake)
            first, stop = first - count, stop - count


def identify_tfds_folder(source: TfdsFolder, splits: Sequence[str]) -> Iterator[bytes]:
    """What tells the files of these splits from any others. Raises BadInputError."""
    dataset = _open(source.folder)
    for name in (_INFO, _FEATURES):
        yield identity(os.path.join(dataset.folder, name), "strict")
    for path in _paths(dataset, splits):
        yield identity(path, source.errors)


def tfds_folder_bytes(source: TfdsFolder, splits: Sequence[str]) -> int:
    """Bytes of the shards of these splits. Raises BadInputError."""
    return sum(size_of(path) for path in _paths(_open(source.folder), splits) if exists(path))


def _paths(dataset: _Dataset, splits: Sequence[str]) -> list[str]:
    return sorted({path for split in splits for _, shards in _parts(dataset, split) for path, _ in shards})


def _parts(dataset: _Dataset, split: str) -> Iterator[tuple[Part, list[tuple[str, int]]]]:
    try:
        parts = parse(split)
    except ValueError as error:
        raise BadInputError("split", str(error)) from error
    for part in parts:
        if part.split not in dataset.shards:
            near = did_you_mean(part.split, dataset.shards)
            raise BadInputError(dataset.folder, f"no split {part.split!r} here{near}", "Name one that exists")
        yield part, dataset.shards[part.split]


def _read_shard(
    dataset: _Dataset, path: str, count: int, first: int, stop: int, intake: Intake
) -> Iterator[dict[str, Any]]:
    found = 0
    for payloads in read_payloads(path, dataset.kind, intake, first, None if stop == count else stop):
        parsed = parse_examples([payload for _, payload in payloads])
        for (where, _), example in zip(payloads, parsed, strict=True):
            found += 1
            row = _build(dataset, example, where, intake)
            if row is not None:
                yield row
    if found == stop - first:
        return
    what = f"{_INFO} speaks of {count:,} examples, but the file gave {first + found:,}"
    if intake.errors != "skip":
        raise BadInputError(path, what, _GET_AGAIN, reason="examples lost")
    intake.report.note("examples lost", f"{path}: {what}")


def _build(dataset: _Dataset, example: Any, where: str, intake: Intake) -> dict[str, Any] | None:
    if isinstance(example, ValueError):
        what = f"the record is no tf.train.Example: {example}"
        intake.refuse(BadInputError(where, what, _GET_AGAIN, reason="no tf.train.Example"))
        return None
    try:
        return build_row(dataset.leaves, example, where, intake)
    except ValueError as error:
        if isinstance(error, BadInputError):
            raise
        what = f"the record is not what {_FEATURES} says: {error}"
        intake.refuse(BadInputError(where, what, _GET_AGAIN, reason="example of another form"))
        return None


def _open(named: str) -> _Dataset:
    """What a data set says of itself; no shard is read."""
    folder = _find(os.path.expanduser(named))
    info_path, features_path = os.path.join(folder, _INFO), os.path.join(folder, _FEATURES)
    info = _read_json(info_path)
    if not exists(features_path):
        what = f"{_FEATURES} is missing, which says what an example holds"
        raise BadInputError(folder, what, "Prepare the data set again with TFDS 4.3 or later")
    kind = info.get("fileFormat", _FORMATS[0])
    if kind not in _FORMATS:
        what = f"the files are of format {kind!r}"
        raise BadInputError(info_path, what, f"Prepare the data set as {' or '.join(_FORMATS)}")
    try:
        shards = {one["name"]: _shards(folder, info, one, kind) for one in info.get("splits", ())}
    except (KeyError, TypeError, ValueError) as error:
        raise BadInputError(info_path, f"damaged: {error!r}", _GET_AGAIN, reason="damaged data set") from error
    return _Dataset(folder, kind, read_leaves(features_path, _read_json(features_path)), shards)


def _find(named: str) -> str:
    """The folder that holds dataset_info.json: this one, or the only one below it."""
    if not named:
        raise BadInputError("folder", "no folder is named", f"Name the folder of a data set: it holds {_INFO}")
    if not is_folder(named):
        raise BadInputError(named, "there is no such folder", f"Name the folder that holds {_INFO}")
    folder = named
    while not exists(os.path.join(folder, _INFO)):
        inner = [path for name in list_folder(folder) if is_folder(path := os.path.join(folder, name))]
        if len(inner) != 1:
            names = ", ".join(os.path.basename(path) for path in inner[:5])
            what = f"no {_INFO} in {folder}" + (f", and {len(inner)} folders below ({names})" if inner else "")
            raise BadInputError(named, what, "Name the folder of one version, such as name/config/1.0.0")
        folder = inner[0]
    return folder


def _shards(folder: str, info: dict[str, Any], split: dict[str, Any], kind: str) -> list[tuple[str, int]]:
    lengths = [int(length) for length in split.get("shardLengths", ())]
    template = split.get("filepathTemplate") or _TEMPLATE
    shards = []
    for number, length in enumerate(lengths):
        names = {
            "DATASET": info["name"],
            "SPLIT": split["name"],
            "FILEFORMAT": kind,
            "SHARD_INDEX": f"{number:05}",
            "NUM_SHARDS": f"{len(lengths):05}",
            "SHARD_X_OF_Y": f"{number:05}-of-{len(lengths):05}",
        }
        shards.append((os.path.join(folder, template.format(**names)), length))
    return shards


def _read_json(path: str) -> dict[str, Any]:
    try:
        with open_file(path) as file:
            content = json.loads(file.read().decode("utf-8"))
    except (ValueError, RecursionError) as error:
        if isinstance(error, BadInputError):
            raise
        raise BadInputError(path, f"damaged: {error}", _GET_AGAIN, reason="damaged data set") from error
    if not isinstance(content, dict):
        raise BadInputError(path, "damaged: no JSON object", _GET_AGAIN, reason="damaged data set")
    return content
