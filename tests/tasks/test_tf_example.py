import numpy as np
import pytest
from golden_data import golden_dir
from hypothesis import given, settings
from hypothesis import strategies as st
from tfrecord_files import example, golden_rows, part

from spanloom.tasks.read_report import Intake, ReadReport
from spanloom.tasks.tf_example import parse_examples
from spanloom.tasks.tfrecord import find_frames, read_records
from spanloom.vocabularies import wire


def parse(*payloads):
    return parse_examples([memoryview(payload) for payload in payloads])


@pytest.mark.short
def test_the_three_kinds_of_values():
    [found] = parse(example({"i": [1, -1, 1 << 62, 300], "f": [0.5, -2.0], "s": ["ü", b"\xff", ""], "none": []}))
    assert found["i"].dtype == np.int64 and found["i"].tolist() == [1, -1, 1 << 62, 300]
    assert found["f"].dtype == np.float32 and found["f"].tolist() == [0.5, -2.0]
    assert found["s"] == ["ü".encode(), b"\xff", b""] and found["none"] == []
    assert parse(b"") == [{}]


@pytest.mark.short
def test_numbers_that_are_not_packed():
    ints = part(3, wire.key(1, wire.VARINT) + wire.varint(300) + part(1, b"\x07\x08") + wire.key(1, 0) + b"\x09")
    floats = part(2, wire.key(1, wire.FIXED32) + np.float32(1.5).tobytes() + wire.key(1, 5) + b"\0\0\0\0")
    entries = [part(1, part(1, name) + part(2, values)) for name, values in [(b"i", ints), (b"f", floats)]]
    [found] = parse(part(1, b"".join(entries)))
    assert found["i"].tolist() == [300, 7, 8, 9] and found["f"].tolist() == [1.5, 0.0]


@pytest.mark.short
def test_what_is_no_example_says_why_and_spoils_no_other():
    good = example({"i": [5, 300]})
    cut, number, open_end = good[:-1], b"\x08\x01", example({"i": [5]})[:-1] + b"\x80"
    long = example({"i": [5] * 11}).replace(b"\x05" * 11, b"\x80" * 10 + b"\x01")
    found = parse(good, cut, number, open_end, long, b"text", good)
    assert [str(one) for one in found if isinstance(one, ValueError)] == [
        f"cut short at byte {len(cut)}",
        "a number where features should be",
        "the last number of feature 'i' is cut off",
        "feature 'i' has a number of more than 64 bits",
        "wire type 4 before byte 1",
    ]
    assert found[0]["i"].tolist() == found[6]["i"].tolist() == [5, 300]


values = st.one_of(
    st.lists(st.integers(-(1 << 63), (1 << 63) - 1)),
    st.lists(st.floats(width=32, allow_nan=False)),
    st.lists(st.binary(max_size=20)),
)


@settings(deadline=None)
@given(st.lists(st.dictionaries(st.text(max_size=5), values, max_size=4), max_size=5))
def test_any_examples_at_once(examples):
    for found, wanted in zip(parse(*map(example, examples)), examples, strict=True):
        assert {name: list(value) for name, value in found.items()} == wanted


@settings(deadline=None)
@given(st.binary(max_size=40), st.integers(0, 60), st.integers(0, 255))
def test_any_bytes_are_parsed_or_refused(data, place, value):
    good = bytearray(example({"i": [1, 300], "s": ["text"], "f": [1.0]}))
    good[place % len(good)] = value
    for found in parse(data, bytes(good)):
        assert isinstance(found, dict | ValueError)


@pytest.mark.golden
def test_golden_examples():
    for path, rows in golden_rows(golden_dir("seqio", "cached_task")).items():
        frames, intake = find_frames(str(path)), Intake(ReadReport())
        records = [record.payload for block in read_records(frames, intake) for record in block]
        for found, row in zip(parse_examples(records), rows, strict=True):
            wanted = row["example"]
            assert found.keys() == wanted.keys()
            for name, value in wanted.items():
                flat = value if isinstance(value, list) else [value]
                assert [v.decode() if isinstance(v, bytes) else v for v in found[name]] == flat
