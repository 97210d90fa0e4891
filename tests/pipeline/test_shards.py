import os

import numpy as np
import pyarrow as pa
import pytest
from pipeline_data import ragged_of

from spanloom.pipeline.shards import DamagedStoreError, RaggedBuilder, read_shard, token_dtype, write_shard

ROWS = [np.array([3, 4, 65535], np.int32), np.array([], np.int32), np.array([7], np.int32)]


def test_ids_take_two_bytes_where_the_vocabulary_fits():
    assert token_dtype(384) == token_dtype(65536) == np.uint16
    assert token_dtype(65537) == token_dtype(250112) == np.uint32


@pytest.mark.parametrize("expected", [0, 3, 6, 100])
def test_rows_are_joined_in_order(expected):
    builder = RaggedBuilder(np.dtype(np.uint16), expected)
    for rows in (ROWS, [], [[]], [[9, 9]]):
        builder.add(ragged_of(rows, np.uint16))
    whole = builder.finish()
    assert (whole.values.tolist(), whole.offsets.tolist()) == ([3, 4, 65535, 7, 9, 9], [0, 3, 3, 4, 4, 6])
    assert (whole.values.dtype, whole.offsets.dtype) == (np.uint16, np.int64)


@pytest.mark.short
@pytest.mark.parametrize("dtype", [np.uint16, np.uint32])
def test_what_was_written_is_read_and_mapped(tmp_path, dtype):
    path = tmp_path / "a.arrow"
    write_shard(path, {"tokens": ragged_of(ROWS, np.dtype(dtype))})
    column = read_shard(path)["tokens"]
    np.testing.assert_array_equal(column.values, [3, 4, 65535, 7])
    np.testing.assert_array_equal(column.offsets, [0, 3, 3, 4])
    assert column.values.dtype == dtype
    assert not column.values.flags.owndata and not column.values.flags.writeable


def test_the_value_buffer_is_the_file(tmp_path):
    path = tmp_path / "a.arrow"
    ids = np.arange(50_000) % 60_000
    before = pa.total_allocated_bytes()
    write_shard(path, {"tokens": ragged_of([ids], np.dtype(np.uint16))})
    column = read_shard(path)["tokens"]
    assert pa.total_allocated_bytes() - before < 10_000  # nothing but metadata is in memory
    assert column.values.tobytes() in path.read_bytes()


def test_pyarrow_reads_it(tmp_path):
    path = tmp_path / "a.arrow"
    write_shard(
        path, {"inputs": ragged_of(ROWS, np.dtype(np.uint16)), "targets": ragged_of(ROWS[::-1], np.dtype(np.uint16))}
    )
    with pa.memory_map(str(path)) as file, pa.ipc.open_stream(file) as stream:
        table = stream.read_all()
    assert table.schema.field("inputs").type == pa.large_list(pa.uint16())
    assert table.column("inputs").to_pylist() == [[3, 4, 65535], [], [7]]
    assert table.column("targets").to_pylist() == [[7], [], [3, 4, 65535]]


def test_hugging_face_datasets_reads_it(tmp_path):
    datasets = pytest.importorskip("datasets", reason="the hub extra is not installed")
    write_shard(tmp_path / "a.arrow", {"tokens": ragged_of(ROWS, np.dtype(np.uint16))})
    rows = datasets.Dataset.from_file(str(tmp_path / "a.arrow"))
    assert rows["tokens"][:] == [[3, 4, 65535], [], [7]]


def test_open_shards_hold_no_file_descriptors(tmp_path):
    write_shard(tmp_path / "a.arrow", {"tokens": ragged_of(ROWS, np.dtype(np.uint16))})
    before = len(os.listdir("/proc/self/fd"))
    kept = [read_shard(tmp_path / "a.arrow") for _ in range(50)]
    assert len(os.listdir("/proc/self/fd")) - before < 5
    np.testing.assert_array_equal(kept[0]["tokens"].values, [3, 4, 65535, 7])


@pytest.mark.parametrize("content", [b"", b"not arrow at all", b"\xff\xff\xff\xff\x00\x10\x00\x00" + bytes(100)])
def test_other_files_are_refused(tmp_path, content):
    path = tmp_path / "a.arrow"
    path.write_bytes(content)
    with pytest.raises(DamagedStoreError, match=r"a\.arrow"):
        read_shard(path)


def test_a_truncated_shard_is_refused(tmp_path):
    path = tmp_path / "a.arrow"
    write_shard(path, {"tokens": ragged_of([np.arange(1000)], np.dtype(np.uint16))})
    whole = path.read_bytes()
    for size in range(0, len(whole) - 500, 97):
        path.write_bytes(whole[:size])
        with pytest.raises(DamagedStoreError):
            read_shard(path)


def test_columns_that_hold_no_tokens_are_refused(tmp_path):
    path = tmp_path / "a.arrow"
    batch = pa.record_batch({"tokens": pa.array(["a text"])})
    with pa.ipc.new_stream(str(path), batch.schema) as writer:
        writer.write_batch(batch)
    with pytest.raises(DamagedStoreError, match="string"):
        read_shard(path)
