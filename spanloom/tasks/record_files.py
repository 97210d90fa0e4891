"""RecordFiles: rows out of ArrayRecord and TFRecord files."""

import json
import os
import re
from collections.abc import Iterator
from typing import Any

from spanloom.settings.row_sources import RecordFiles
from spanloom.tasks.array_records import read_array_records
from spanloom.tasks.example_rows import Described, Placed, decode_rows, placed
from spanloom.tasks.heldout import Split
from spanloom.tasks.parts import files_of
from spanloom.tasks.read_report import BadInputError, Intake, ReadReport
from spanloom.tasks.seqio_features import DTYPES, TEXTS, Feature
from spanloom.tasks.tfrecord import find_frames, read_records

RECORD = "record"
"""Field of rows that are plain bytes."""

_OTHER_KIND = "Set `records` to what they are: example, msgpack, json or bytes"
_FEATURE = re.compile(r"(.+):(\w+)(\[\d*\])?$")


def read_record_files(source: RecordFiles, split: Split, report: ReadReport) -> Iterator[dict[str, Any]]:
    """The rows in the order of the files. Raises BadInputError for damage, and for records of another kind."""
    intake = Intake(report, source.errors)
    described = Described(features_named(source.features), fix="Set `records` and `features` to what the file holds")
    for path in files_of(source, split, report):
        with intake.file_errors():
            for payloads in read_payloads(path, _format(path, source.format), intake):
                if source.records == "example":
                    yield from decode_rows(described, payloads, intake)
                else:
                    yield from _plain_rows(source.records, payloads, intake)


def read_payloads(path: str, kind: str, intake: Intake, first: int = 0, stop: int | None = None) -> Iterator[Placed]:
    """The records first <= number < stop of a file, some at a time. Raises BadInputError."""
    if kind == "array_record":
        yield from read_array_records(path, intake, first, stop)
        return
    frames = find_frames(path, intake.report)
    intake.report.files += 1
    for records in read_records(frames, intake, first, stop):
        yield placed(path, records)


def features_named(named: tuple[str, ...]) -> dict[str, Feature] | None:
    """The features that settings name: text:string, label:int64, tokens:int32[], pair:float32[2]; None for none.

    Raises BadInputError for what is none.
    """
    features = {}
    for one in named:
        match = _FEATURE.fullmatch(one)
        known = sorted(DTYPES) + list(TEXTS)
        if not match or match[2] not in known:
            fix = f"Write name:dtype, such as text:string or tokens:int32[]; dtypes are {', '.join(known)}"
            raise BadInputError("features", f"{one!r} is no feature", fix)
        size = (match[3] or "").strip("[]")
        shape: tuple[int | None, ...] = () if match[3] is None else (int(size) if size else None,)
        features[match[1]] = Feature(match[1], match[2], shape)
    return features or None


def _format(path: str, asked: str) -> str:
    if asked != "auto":
        return asked
    name = os.path.basename(path).lower()
    if "array_record" in name or "arrayrecord" in name or name.endswith((".array", ".riegeli")):
        return "array_record"
    if "tfrecord" in name:
        return "tfrecord"
    what = "the name does not tell whether this is an ArrayRecord or a TFRecord file"
    raise BadInputError(path, what, "Say it: format array_record, or tfrecord", reason="unknown format")


def _plain_rows(kind: str, payloads: Placed, intake: Intake) -> Iterator[dict[str, Any]]:
    import msgpack

    for where, payload in payloads:
        if kind == "bytes":
            yield {RECORD: bytes(payload)}
            continue
        try:
            row = msgpack.unpackb(payload) if kind == "msgpack" else json.loads(bytes(payload))
        except (ValueError, RecursionError, msgpack.UnpackException) as error:
            said = str(error) or type(error).__name__
            intake.refuse(BadInputError(where, f"the record is no {kind}: {said}", _OTHER_KIND, reason=f"no {kind}"))
            continue
        if isinstance(row, dict):
            yield row
        else:
            what = f"the record is a {type(row).__name__}, where fields by name are expected"
            intake.refuse(BadInputError(where, what, _OTHER_KIND, reason=f"no {kind} object"))
