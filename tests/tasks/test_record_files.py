import json

import msgpack
import numpy as np
import pytest
from tfrecord_files import example, write_records

from spanloom.settings.row_sources import RecordFiles
from spanloom.tasks.read_report import BadInputError, ReadReport
from spanloom.tasks.row_sources import read_row_source

pytestmark = pytest.mark.short

FEATURES = {"text": ["größe"], "choices": ["a", "b"], "one": ["x"], "n": [3], "scores": [0.5, 1.5], "none": []}


def read(source, report=None):
    return list(read_row_source(source, "train", report or ReadReport()))


def array_records(path, payloads):
    module = pytest.importorskip("array_record.python.array_record_module")
    writer = module.ArrayRecordWriter(str(path), "group_size:1")
    for payload in payloads:
        writer.write(payload)
    writer.close()


@pytest.mark.parametrize("kind", ["tfrecord", "array_record"])
def test_examples_of_any_features(tmp_path, kind):
    write = write_records if kind == "tfrecord" else array_records
    write(tmp_path / f"a.{kind}-00000-of-00001", [example(FEATURES)])
    (row,) = read(RecordFiles((f"{tmp_path}/*",)))
    assert row["text"] == "größe" and row["choices"] == ["a", "b"] and row["one"] == "x" and row["none"] == []
    assert row["n"].tolist() == [3] and row["n"].dtype == np.int64
    assert row["scores"].tolist() == [0.5, 1.5] and row["scores"].dtype == np.float32


def test_features_that_are_named(tmp_path):
    write_records(tmp_path / "a.tfrecord", [example(FEATURES)])
    named = ("one:string[]", "n:int32", "scores:float32[2]", "text:bytes")
    (row,) = read(RecordFiles((f"{tmp_path}/a.tfrecord",), features=named))
    assert row["one"] == ["x"] and row["n"] == 3 and row["text"] == "größe".encode()
    assert row["scores"].tolist() == [0.5, 1.5] and "choices" not in row


@pytest.mark.parametrize(
    ("features", "message"),
    [
        (("text",), "'text' is no feature. Write name:dtype"),
        (("text:strnig",), "'text:strnig' is no feature"),
        (("text:int64",), r"byte 0: the record .* is not what the features set says: feature 'text' holds text"),
        (("n:int64[2]",), "feature 'n' holds 1 values"),
        (("absent:int64",), "feature 'absent' holds 0 values, not one"),
    ],
)
def test_features_that_are_not_so(tmp_path, features, message):
    write_records(tmp_path / "a.tfrecord", [example(FEATURES)])
    with pytest.raises(BadInputError, match=message):
        read(RecordFiles((f"{tmp_path}/a.tfrecord",), features=features))


def test_objects_and_bytes(tmp_path):
    rows = [{"text": "größe", "n": [1, None]}, {"text": "b", "n": []}]
    array_records(tmp_path / "m.array_record", [msgpack.packb(row) for row in rows])
    write_records(tmp_path / "j.tfrecord", [json.dumps(row).encode() for row in rows])
    assert read(RecordFiles((f"{tmp_path}/m.*",), records="msgpack")) == rows
    assert read(RecordFiles((f"{tmp_path}/j.*",), records="json")) == rows
    assert read(RecordFiles((f"{tmp_path}/j.*",), records="bytes"))[1] == {"record": json.dumps(rows[1]).encode()}


def test_records_of_another_kind(tmp_path):
    write_records(tmp_path / "j.tfrecord", [b'{"a": 1}', b"[1]", b"\xff{", b'{"a": 2}'])
    with pytest.raises(BadInputError, match=r"byte 24: the record is a list, where fields by name are expected"):
        read(RecordFiles((f"{tmp_path}/j.*",), records="json"))
    report = ReadReport()
    assert read(RecordFiles((f"{tmp_path}/j.*",), records="json", errors="skip"), report) == [{"a": 1}, {"a": 2}]
    assert report.skipped == {"no json object": 1, "no json": 1}
    with pytest.raises(BadInputError, match=r"byte 0: .* is no tf\.train\.Example: .*Set `records` and `features` to"):
        read(RecordFiles((f"{tmp_path}/j.*",)))
    with pytest.raises(BadInputError, match=r"the record is no msgpack: .*Set `records` to"):
        read(RecordFiles((f"{tmp_path}/j.*",), records="msgpack"))


def test_a_name_that_tells_nothing(tmp_path):
    write_records(tmp_path / "part-0", [example(FEATURES)])
    with pytest.raises(BadInputError, match="does not tell whether this is an ArrayRecord or a TFRecord file"):
        read(RecordFiles((f"{tmp_path}/part-0",)))
    assert len(read(RecordFiles((f"{tmp_path}/part-0",), format="tfrecord"))) == 1
