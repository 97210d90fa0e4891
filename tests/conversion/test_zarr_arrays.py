import contextlib
import json
import random
import zlib

import ml_dtypes
import numpy as np
import pytest
import zstandard
from t5x_files import write_zarr

from spanloom.conversion.errors import ConversionError
from spanloom.conversion.zarr_arrays import folder_chunks, open_array


def read(folder, described=None):
    return open_array(folder_chunks(folder), described).read()


@pytest.mark.parametrize(("shape", "chunks"), [((5, 7), (2, 3)), ((4,), (4,)), ((), ()), ((3, 2, 5), (3, 1, 2))])
@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16, np.int32])
def test_chunks_make_the_array(tmp_path, shape, chunks, dtype):
    array = np.random.default_rng(0).integers(-100, 100, shape).astype(dtype)
    write_zarr(tmp_path / "a", array, chunks)
    found = read(tmp_path / "a")
    assert found.dtype == array.dtype
    np.testing.assert_array_equal(found, array)


def rewrite(folder, pack, compressor):
    import gzip

    meta = json.loads((folder / ".zarray").read_text()) | {"compressor": compressor}
    (folder / ".zarray").write_text(json.dumps(meta))
    for chunk in folder.glob("[0-9]*"):
        chunk.write_bytes(pack(gzip.decompress(chunk.read_bytes())))


def test_each_compression_that_is_met(tmp_path):
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    packs = {
        "zlib": (zlib.compress, {"id": "zlib", "level": 1}),
        "zstd": (zstandard.compress, {"id": "zstd", "level": 1}),
        "none": (bytes, None),
    }
    for name, (pack, compressor) in packs.items():
        write_zarr(tmp_path / name, array, (2, 2))
        rewrite(tmp_path / name, pack, compressor)
        np.testing.assert_array_equal(read(tmp_path / name), array)
        chunk = tmp_path / name / "1.1"
        chunk.write_bytes(chunk.read_bytes()[:-2])
        with pytest.raises(ConversionError, match="is damaged") as error:
            read(tmp_path / name)
        assert error.value.path == chunk


def test_a_chunk_that_unpacks_to_more_is_refused_before_it_fills_memory(tmp_path):
    write_zarr(tmp_path / "a", np.zeros(4, np.float32), (4,))
    for pack, compressor in ((zlib.compress, {"id": "zlib"}), (zstandard.compress, {"id": "zstd"})):
        rewrite(tmp_path / "a", bytes, compressor) if compressor["id"] == "zlib" else None
        meta = json.loads((tmp_path / "a" / ".zarray").read_text()) | {"compressor": compressor}
        (tmp_path / "a" / ".zarray").write_text(json.dumps(meta))
        (tmp_path / "a" / "0").write_bytes(pack(bytes(50_000_000)))
        with pytest.raises(ConversionError, match="more than 16 bytes"):
            read(tmp_path / "a")


@pytest.mark.parametrize("options", [{}, {"cname": "zstd", "shuffle": 2}, {"cname": "zlib", "shuffle": 0}])
def test_blosc_as_tensorstore_writes_it(tmp_path, options):
    import tensorstore

    array = np.random.default_rng(0).integers(0, 9, (5, 7)).astype(np.float32)
    meta = {"shape": [5, 7], "chunks": [3, 4], "dtype": "<f4", "compressor": {"id": "blosc", **options}}
    place = {"driver": "file", "path": str(tmp_path / "a")}
    store = tensorstore.open({"driver": "zarr", "kvstore": place, "metadata": meta, "create": True}).result()
    store[...] = array
    np.testing.assert_array_equal(read(tmp_path / "a"), array)
    chunk = tmp_path / "a" / "1.1"
    whole, draw = chunk.read_bytes(), random.Random(0)
    huge = whole[:4] + b"\xff\xff\xff\x7f" + whole[8:]
    for damaged in (b"", whole[:10], whole[:-3], huge):
        chunk.write_bytes(damaged)
        with pytest.raises(ConversionError, match="is damaged") as error:
            read(tmp_path / "a")
        assert error.value.path == chunk
    for _ in range(60):
        flipped = bytearray(whole)
        flipped[draw.randrange(len(whole))] ^= 1 << draw.randrange(8)
        chunk.write_bytes(flipped)
        with contextlib.suppress(ConversionError):
            assert read(tmp_path / "a").shape == (5, 7)


def test_a_missing_chunk_is_named(tmp_path):
    write_zarr(tmp_path / "a", np.ones((4, 4), np.float32), (2, 2))
    (tmp_path / "a" / "1.0").unlink()
    with pytest.raises(ConversionError, match="one of the 4 chunks") as error:
        open_array(folder_chunks(tmp_path / "a"))
    assert error.value.path == tmp_path / "a" / "1.0"
    with pytest.raises(ConversionError, match="is missing, though"):
        folder_chunks(tmp_path / "b")


def test_without_its_description_the_index_serves(tmp_path):
    array = np.ones((4, 4), np.float32)
    described = {"dtype": "float32", **write_zarr(tmp_path / "a", array, (2, 2))}
    with pytest.raises(ConversionError, match=r"says shape \[4, 4\], and the checkpoint's index \[4, 5\]"):
        read(tmp_path / "a", described | {"shape": [4, 5]})
    (tmp_path / "a" / ".zarray").unlink()
    np.testing.assert_array_equal(read(tmp_path / "a", described), array)
    with pytest.raises(ConversionError, match="is missing"):
        read(tmp_path / "a")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"shape": [10**12, 10**12]}, "is missing"),
        ({"shape": [-1, 4]}, "describes no array"),
        ({"shape": "44"}, "describes no array"),
        ({"chunks": [2]}, "describes no array"),
        ({"chunks": [0, 2]}, "describes no array"),
        ({"chunks": [10**9, 10**9], "shape": [10**9, 10**9]}, "larger than any"),
        ({"dtype": "|O"}, "has type"),
        ({"dtype": [["a", "<f4"]]}, "has type"),
        ({"compressor": {"id": "lzma"}}, "compressed by 'lzma'"),
        ({"order": "F"}, "C order"),
        ({"filters": [{"id": "delta"}]}, "filters"),
        ({"zarr_format": 3}, "zarr version 2"),
    ],
)
def test_descriptions_that_make_no_sense(tmp_path, change, message):
    write_zarr(tmp_path / "a", np.ones((4, 4), np.float32), (2, 2))
    file = tmp_path / "a" / ".zarray"
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    with pytest.raises(ConversionError, match=message):
        read(tmp_path / "a")
    file.write_text("[" * 100_000)
    with pytest.raises(ConversionError, match="not valid JSON"):
        read(tmp_path / "a")
