"""Arrays in chunks, as T5X cuts them."""

import json

import numpy as np
import pytest
from golden_data import golden_dir

from spanloom.conversion import zarr_write
from spanloom.conversion.zarr_arrays import folder_chunks, open_array
from spanloom.conversion.zarr_write import ChunkWriter, chunk_shape, put_metadata


@pytest.mark.parametrize(
    ("shape", "most", "expected"),
    [
        ((128, 132), 16384, (128, 66)),
        ((128, 256), 16384, (128, 128)),
        ((128, 256), 32768, (128, 256)),
        ((250112, 4096), 1 << 24, (3908, 4096)),
        ((7, 11), 10, (7, 1)),
        ((7,), 1, (1,)),
        ((), 1, ()),
    ],
)
def test_chunks_fill_the_array_and_are_small_enough(shape, most, expected):
    assert chunk_shape(shape, most) == expected


def test_golden_chunks():
    """All arrays that T5X itself has cut, in its own chunks, and their descriptions to the byte."""
    for name, limit in (("legacy_float32", 65536), ("scan_legacy", 8192), ("legacy_bfloat16", 1 << 26)):
        metas = list(golden_dir("t5x", "checkpoints", name).rglob(".zarray"))
        assert metas
        for path in metas:
            meta = json.loads(path.read_text())
            kind = {"<f4": "float32", "bfloat16": "bfloat16"}[meta["dtype"]]
            chunks = chunk_shape(meta["shape"], limit // (2 if kind == "bfloat16" else 4))
            assert list(chunks) == meta["chunks"], path
            assert zarr_write.metadata(meta["shape"], chunks, kind, meta["compressor"]) == path.read_bytes()


def test_written_chunks_are_read_whole_and_by_layers(tmp_path):
    array = np.random.default_rng(0).normal(size=(3, 5, 7)).astype(np.float32)
    chunks = (3, 2, 4)  # they do not divide the array
    put = lambda name, content: (tmp_path / name).write_bytes(content)  # noqa: E731
    put_metadata(put, array.shape, chunks, "float32", None)
    padded = np.zeros((3, 6, 8), np.float32)
    padded[:, :5, :7] = array
    with ChunkWriter(bytes) as writer:
        writer.write(padded, chunks, put)
    stored = open_array(folder_chunks(tmp_path))
    np.testing.assert_array_equal(stored.read(), array)
    for axis in range(3):
        for place in range(array.shape[axis]):
            np.testing.assert_array_equal(stored.take(axis, place), np.take(array, place, axis))


def test_what_a_thread_cannot_put_is_raised(tmp_path):
    def full(name: str, content: bytes) -> None:
        raise OSError(28, "No space left on device")

    def write() -> None:
        with ChunkWriter(bytes) as writer:
            for _ in range(100):
                writer.write(np.zeros((4, 4), np.float32), (2, 2), full)

    with pytest.raises(OSError, match="No space"):
        write()
