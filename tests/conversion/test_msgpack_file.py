import contextlib
import random
from pathlib import Path

import msgpack
import numpy as np
import pytest
from t5x_files import extension

from spanloom.conversion.errors import ConversionError
from spanloom.conversion.msgpack_file import read_tree


def packed(tmp_path: Path, value: object) -> Path:
    path = tmp_path / "file.msgpack"
    path.write_bytes(value if isinstance(value, bytes) else msgpack.packb(value))
    return path


def test_values_are_those_of_the_library(tmp_path):
    value = {
        "small": 5,
        "negative": [-1, -33, -200, -70_000, -(2**40)],
        "large": [200, 70_000, 2**33, 2**63],
        "reals": 1.5,
        "words": ["", "x" * 31, "y" * 300, "z" * 70_000, "Straße"],
        "others": [None, True, False],
        "long": [*list(range(20)), {str(i): i for i in range(20)}],
    }
    assert read_tree(packed(tmp_path, value)) == value


def test_arrays_are_read_when_asked_for(tmp_path):
    weights = np.arange(12, dtype=np.float32).reshape(3, 4)
    tree = {"a": {"kernel": extension(weights)}, "step": extension(np.int32(7)), "none": extension(np.zeros((0, 3)))}
    found = read_tree(packed(tmp_path, tree))
    kernel = found["a"]["kernel"]
    assert (kernel.shape, kernel.dtype) == ((3, 4), "float32")
    np.testing.assert_array_equal(kernel.read(), weights)
    assert found["step"].read() == 7
    assert found["none"].read().shape == (0, 3)


def test_an_array_in_pieces_is_one(tmp_path):
    whole = np.arange(10, dtype=np.float32)
    pieces = {str(i): extension(part) for i, part in enumerate(np.split(whole, [4, 8]))}
    tree = {"w": {"__msgpack_chunked_array__": True, "shape": {"0": 2, "1": 5}, "chunks": pieces}}
    np.testing.assert_array_equal(read_tree(packed(tmp_path, tree))["w"].read(), whole.reshape(2, 5))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"\xc1", "begins nothing"),
        (b"\x93\x01", "a list of 3 entries"),
        (b"\xdf\xff\xff\xff\xff", "a map of 4294967295 entries"),
        (b"\xdb\x7f\xff\xff\xffab", "cut short"),
        (b"\x91" * 100 + b"\x01", "deeper than"),
        (b"\x81\xa1a\x01\x01", "left over"),
        (b"\x82\xa1a\x01\xa1a\x02", "a name is 'a'"),
        (b"\x01", "holds no tree"),
        (msgpack.packb({"a": msgpack.ExtType(2, b"\x01")}), "an extension 2"),
        (msgpack.packb({"a": msgpack.ExtType(1, msgpack.packb([[2**40], "float32", b"1234"]))}), "in 4 bytes"),
        (msgpack.packb({"a": msgpack.ExtType(1, msgpack.packb([[1], "object", b"1234"]))}), "of type 'object'"),
        (msgpack.packb({"a": msgpack.ExtType(1, msgpack.packb([[-1], "float32", b"1234"]))}), "of type"),
    ],
)
def test_what_is_wrong_is_said_and_the_file_named(tmp_path, content, message):
    with pytest.raises(ConversionError, match=message) as error:
        read_tree(packed(tmp_path, content))
    assert error.value.path == tmp_path / "file.msgpack"


def test_any_damage_is_an_error_or_another_tree(tmp_path):
    tree = {"a": {"b": extension(np.ones((2, 3), np.float32)), "c": [1, "two", None]}, "v": 3}
    whole = msgpack.packb(tree)
    for length in range(len(whole)):
        with pytest.raises(ConversionError):
            read_tree(packed(tmp_path, whole[:length]))
    draw = random.Random(0)
    for _ in range(300):
        damaged = bytearray(whole)
        for _ in range(draw.randint(1, 3)):
            damaged[draw.randrange(len(whole))] = draw.randrange(256)
        with contextlib.suppress(ConversionError):
            read_tree(packed(tmp_path, bytes(damaged)))
