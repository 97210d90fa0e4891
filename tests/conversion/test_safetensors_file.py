"""Damaged safetensors files give errors that name the file, whatever the damage."""

import contextlib
import json
import random

import numpy as np
import pytest
from safetensors.numpy import save_file

from spanloom.conversion.errors import ConversionError
from spanloom.conversion.safetensors_file import load, load_rows, read_header

TENSORS = {
    "a": np.arange(12, dtype=np.float32).reshape(3, 4),
    "b": np.arange(5, dtype=np.float16),
    "c": np.array(2.5, np.float64),
    "d": np.zeros((0, 7), np.float32),
}


@pytest.fixture
def path(tmp_path):
    save_file(TENSORS, tmp_path / "x.safetensors", metadata={"format": "pt"})
    return tmp_path / "x.safetensors"


def write_header(path, header: object, data: bytes = b"") -> None:
    raw = json.dumps(header).encode()
    path.write_bytes(len(raw).to_bytes(8, "little") + raw + data)


@pytest.mark.short
def test_arrays_are_read_as_float32(path):
    entries = read_header(path)
    assert entries.keys() == TENSORS.keys()
    for name, expected in TENSORS.items():
        found = load(entries[name])
        assert found.dtype == np.float32
        assert np.array_equal(found, expected.astype(np.float32))
    assert np.array_equal(load_rows(entries["a"], 1, 3), TENSORS["a"][1:3])


def test_every_truncation_is_refused(path):
    content = path.read_bytes()
    for length in range(len(content)):
        path.write_bytes(content[:length])
        with pytest.raises(ConversionError, match=r"x\.safetensors"):
            read_header(path)


def test_flipped_bytes_never_crash(path):
    content = path.read_bytes()
    rng = random.Random(0)
    for _ in range(2000):
        changed = bytearray(content)
        for _ in range(rng.randint(1, 4)):
            changed[rng.randrange(len(content))] = rng.randrange(256)
        path.write_bytes(changed)
        with contextlib.suppress(ConversionError):
            for entry in read_header(path).values():
                load(entry)


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ([], "not a table"),
        ({"a": 3}, "entry of tensor 'a'"),
        ({"a": {"dtype": "F32", "shape": [2]}}, "entry of tensor 'a'"),
        ({"a": {"dtype": "F32", "shape": [-2], "data_offsets": [0, 8]}}, "entry of tensor 'a'"),
        ({"a": {"dtype": "F32", "shape": [True], "data_offsets": [0, 4]}}, "entry of tensor 'a'"),
        ({"a": {"dtype": "I64", "shape": [1], "data_offsets": [0, 8]}}, "type I64"),
        ({"a": {"dtype": ["F32"], "shape": [1], "data_offsets": [0, 4]}}, "tensor 'a'"),
        ({"a": {"dtype": "F32", "shape": [3], "data_offsets": [0, 8]}}, "takes 8 bytes instead of 12"),
        ({"a": {"dtype": "F32", "shape": [10**30], "data_offsets": [0, 8]}}, "entry of tensor 'a'"),
        ({"a": {"dtype": "F32", "shape": [2**40], "data_offsets": [0, 8]}}, "instead of"),
        ({"a": {"dtype": "F32", "shape": [0, 10**30], "data_offsets": [0, 0]}}, "entry of tensor 'a'"),
        ({"a": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}}, "cut short"),
        (
            {
                "a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},
                "b": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]},
            },
            "overlap",
        ),
    ],
)
def test_headers_that_lie_are_refused(path, header, message):
    write_header(path, header, b"\0" * 8)
    with pytest.raises(ConversionError, match=message):
        read_header(path)


def test_an_absurd_header_length_is_refused_unread(path):
    path.write_bytes((2**63).to_bytes(8, "little") + b"{}")
    with pytest.raises(ConversionError, match="not a whole safetensors file"):
        read_header(path)
