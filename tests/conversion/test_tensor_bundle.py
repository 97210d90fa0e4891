import random
import struct

import ml_dtypes
import numpy as np
import pytest
from tensor_bundles import entry, message, number, table, write_bundle

from spanloom.conversion.errors import ConversionError
from spanloom.conversion.tensor_bundle import is_index, read_arrays

DRAW = np.random.default_rng(0)
ARRAYS = {
    "decoder/block_000/layer_000/SelfAttention/k": DRAW.random((3, 4)).astype(ml_dtypes.bfloat16),
    "decoder/block_000/layer_000/SelfAttention/k_slot_v": DRAW.random((3, 4), np.float32),
    "global_step": np.asarray(7, np.int64),
    "scale": DRAW.random(5, np.float32),
}


@pytest.mark.parametrize("shards", [1, 2])
def test_tensors_of_each_file(tmp_path, shards):
    index = write_bundle(tmp_path / "model.ckpt-7", ARRAYS, shards)
    assert is_index(index) and not is_index(tmp_path / "model.ckpt-7")
    found = read_arrays(index)
    assert found.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        assert (found[name].dtype, found[name].shape) == (array.dtype.name, array.shape)
        np.testing.assert_array_equal(found[name].read(), array)


def test_a_lost_or_changed_file_is_named(tmp_path):
    index = write_bundle(tmp_path / "model.ckpt-7", ARRAYS)
    data = tmp_path / "model.ckpt-7.data-00000-of-00001"
    content = bytearray(data.read_bytes())
    content[-1] ^= 1
    data.write_bytes(content)
    with pytest.raises(ConversionError, match="is damaged: scale is not what was written") as error:
        read_arrays(index)["scale"].read()
    assert error.value.path == data
    data.write_bytes(content[:-1])
    with pytest.raises(ConversionError, match="cut short: scale"):
        read_arrays(index)
    data.unlink()
    with pytest.raises(ConversionError, match=r"is missing, and model\.ckpt-7\.index has"):
        read_arrays(index)


@pytest.mark.parametrize(
    ("entries", "message_"),
    [
        ({"a": entry(np.zeros(3, np.float32), 0, 0)}, ""),  # no header
        ({"": number(1, 0)}, "no files"),
        ({"": number(1, 1) + number(2, 1)}, "big-endian"),
        ({"": number(1, 1), "a": number(1, 7)}, "a is no array"),
        ({"": number(1, 1), "a": number(1, 1) + number(5, 4)}, ""),  # no CRC
        ({"": number(1, 1), "a": number(1, 1) + message(7, b"")}, "in one piece"),
        ({"": number(1, 1), "a": number(1, 1) + message(2, message(2, number(1, 2**40)))}, "in 0 bytes"),
    ],
)
def test_an_index_that_makes_no_sense(tmp_path, entries, message_):
    index = tmp_path / "model.ckpt-7.index"
    index.write_bytes(table(entries))
    with pytest.raises(ConversionError, match=f"is not a whole index of a TensorFlow checkpoint.*{message_}"):
        read_arrays(index)


def test_any_damage_is_an_error(tmp_path):
    """Every block has its CRC; what is between them and the end decides nothing."""
    index = write_bundle(tmp_path / "model.ckpt-7", ARRAYS)
    whole, draw = index.read_bytes(), random.Random(0)
    for length in range(0, len(whole), 7):
        index.write_bytes(whole[:length])
        with pytest.raises(ConversionError):
            read_arrays(index)
    places = len(whole) - 48
    for _ in range(150):
        content = bytearray(whole)
        content[draw.randrange(places)] ^= 1 << draw.randrange(8)
        index.write_bytes(content)
        try:
            found = read_arrays(index)
        except ConversionError:
            continue
        for name, array in ARRAYS.items():
            np.testing.assert_array_equal(found[name].read(), array)
    index.write_bytes(whole[:-48] + b"\xff" * 40 + struct.pack("<Q", 0xDB4775248B80FB57))
    with pytest.raises(ConversionError, match="more than 64 bits"):
        read_arrays(index)
