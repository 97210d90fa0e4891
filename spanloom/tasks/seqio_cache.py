"""Caches that SeqIO's `seqio_cache_tasks` wrote, the layout of bigscience/P3, read without TensorFlow.

A folder holds COMPLETED, and of each split `info.<split>.json` (features, number of shards), `stats.<split>.json`
(examples, tokens) and `<split>.tfrecord-0000i-of-0000N`. Nothing in it names the vocabulary.
"""

import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from spanloom.settings.nearest import did_you_mean
from spanloom.tasks.example_rows import Described, decode_rows, placed
from spanloom.tasks.file_system import exists, is_folder, list_folder, open_file
from spanloom.tasks.read_report import BadInputError, Intake
from spanloom.tasks.seqio_features import Feature, read_features
from spanloom.tasks.tfrecord import find_frames, read_records

_SHARD = re.compile(r"(.+)\.tfrecord-(\d{5,})-of-(\d{5,})$")
_CACHE_AGAIN = "Get the folder again, or cache the task again with seqio_cache_tasks"


@dataclass(frozen=True)
class SeqioCache:
    """One split of a cached task: its shards, the features of an example, and how many examples there should be."""

    folder: str
    split: str
    shards: tuple[str, ...]
    """Paths of the shards that are there, by number."""
    features: Mapping[str, Feature] = field(repr=False)
    examples: int | None
    """Examples in all shards, as the cache counted them when it was written; None where it did not."""


def open_cache(folder: str, split: str, intake: Intake) -> SeqioCache:
    """What a cache says of a split, with all its shards found; no shard is read.

    Raises BadInputError where the folder is no finished cache, lacks the split (naming those it has), or does not
    describe it; and for shards that are missing or of another count (errors=skip: counted).
    """
    if not is_folder(folder):
        raise BadInputError(folder, "there is no such folder", "Name the task's folder: the one that holds COMPLETED")
    if not exists(os.path.join(folder, "COMPLETED")):
        what = "no finished SeqIO cache: the file COMPLETED, which is written last, is not there"
        raise BadInputError(folder, what, _CACHE_AGAIN, reason="unfinished cache")
    info_path = os.path.join(folder, f"info.{split}.json")
    if not exists(info_path):
        splits = sorted({match[1] for match in map(_SHARD.match, list_folder(folder)) if match})
        raise BadInputError(folder, f"no split {split!r} here: no {info_path}{did_you_mean(split, splits)}")
    info = _read_json(info_path)
    count = info.get("num_shards")
    if type(count) is not int or not 0 < count < 100_000:
        what = f"num_shards is {count!r}, not a number of shards"
        raise BadInputError(info_path, what, _CACHE_AGAIN, reason="damaged cache")
    features = read_features(info_path, info)
    shards = _find_shards(folder, split, count, info_path, intake)
    return SeqioCache(folder, split, shards, features, _count_examples(folder, split))


def read_shard(cache: SeqioCache, shard: str, intake: Intake) -> Iterator[dict[str, Any]]:
    """The examples of one shard, in order, a few MB of it in memory at a time.

    Values are int, float, bool or str; NumPy arrays of the feature's dtype; lists of str; and of ragged features,
    nested lists of these. Raises BadInputError naming file and byte for damage and for records that do not hold
    what the cache says (errors=skip: counted, see `spanloom.tasks.tfrecord`).
    """
    with intake.file_errors():
        frames = find_frames(shard, intake.report)
        intake.report.files += 1
        for records in read_records(frames, intake):
            yield from decode_rows(_described(cache), placed(shard, records), intake)


def read_cache(cache: SeqioCache, intake: Intake) -> Iterator[dict[str, Any]]:
    """The examples of all shards, one shard after another; at the end, whether they are as many as the cache counted.

    Raises BadInputError as `read_shard`, and for another number of examples: only so is a shard noticed that was cut
    off just between two records (errors=skip: noted).
    """
    given = 0
    for shard in cache.shards:
        for example in read_shard(cache, shard, intake):
            given += 1
            yield example
    if cache.examples is None or given == cache.examples:
        return
    path = os.path.join(cache.folder, f"stats.{cache.split}.json")
    what = f"counts {cache.examples:,} examples, but the shards gave {given:,}"
    if intake.errors == "skip":
        intake.report.note("examples lost", f"{path}: {what}")
        return
    why = "A shard is cut off between two records, or comes from another cache. "
    raise BadInputError(path, what, why + _CACHE_AGAIN, reason="examples lost")


def _described(cache: SeqioCache) -> Described:
    return Described(cache.features, f"info.{cache.split}.json", _CACHE_AGAIN)


def _find_shards(folder: str, split: str, count: int, info_path: str, intake: Intake) -> tuple[str, ...]:
    present = {name for name in list_folder(folder) if (match := _SHARD.match(name)) and match[1] == split}
    expected = [f"{split}.tfrecord-{number:05}-of-{count:05}" for number in range(count)]
    if others := sorted(present.difference(expected)):
        what = f"not one of the {count} shards that {info_path} speaks of (and {len(others) - 1} more like it)"
        _refuse(os.path.join(folder, others[0]), what.replace(" (and 0 more like it)", ""), intake)
    for name in expected:
        if name not in present:
            _refuse(os.path.join(folder, name), f"this shard is missing: {info_path} speaks of {count}", intake)
    found = tuple(os.path.join(folder, name) for name in expected if name in present)
    if not found:
        raise BadInputError(folder, f"not one of the {count} shards of {split!r} is here", _CACHE_AGAIN)
    return found


def _refuse(path: str, what: str, intake: Intake) -> None:
    intake.refuse(BadInputError(path, what, _CACHE_AGAIN, reason="missing or foreign shard"))


def _count_examples(folder: str, split: str) -> int | None:
    path = os.path.join(folder, f"stats.{split}.json")
    if not exists(path):
        return None
    count = _read_json(path).get("examples")
    if count is not None and (type(count) is not int or count < 0):
        raise BadInputError(path, f"examples is {count!r}, not a count", _CACHE_AGAIN, reason="damaged cache")
    return count


def _read_json(path: str) -> dict[str, Any]:
    try:
        with open_file(path) as file:
            content = json.loads(file.read().decode("utf-8"))
    except OSError as error:
        raise BadInputError(path, f"cannot be read: {error.strerror or error}", reason="unreadable file") from error
    except (ValueError, RecursionError) as error:
        raise BadInputError(path, f"damaged: {error}", _CACHE_AGAIN, reason="damaged cache") from error
    if not isinstance(content, dict):
        raise BadInputError(path, "damaged: no JSON object", _CACHE_AGAIN, reason="damaged cache")
    return content
