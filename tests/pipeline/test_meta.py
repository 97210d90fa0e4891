import json

import numpy as np
import pytest
from pipeline_data import ragged_of

from spanloom.pipeline.meta import META, check_file, read_meta, shard_entry, total_counts, write_meta
from spanloom.pipeline.shards import DamagedStoreError, write_shard


def entry_of(path, *lengths):
    columns = {"tokens": ragged_of([range(length) for length in lengths], np.uint16)}
    write_shard(path, columns)
    told = {"examples": len(lengths), "text_bytes": 10, "characters": 9, "text_hash": "hash"}
    return shard_entry(path, columns, {"tokens": 2}, **told)


@pytest.mark.short
def test_counts_add_up_over_shards(tmp_path):
    entries = [entry_of(tmp_path / "a", 0, 1, 2, 3), entry_of(tmp_path / "b", 4, 5, 1000)]
    assert total_counts(entries, ["tokens"]) == {
        "examples": 7,
        "text_bytes": 20,
        "characters": 18,
        "columns": {
            "tokens": {
                "rows": 7,
                "tokens": 1015,
                "unknown": 4,
                "longest": 1000,
                "histogram": {"0": 1, "1": 1, "2": 1, "4": 2, "8": 1, "1024": 1},
            }
        },
    }


def test_counts_of_nothing():
    assert total_counts([], ["tokens"])["columns"]["tokens"] == {
        "rows": 0,
        "tokens": 0,
        "unknown": 0,
        "longest": 0,
        "histogram": {},
    }


def test_meta_is_read_as_written(tmp_path):
    meta = {"a": [1, {"b": "日本"}], "c": None}
    write_meta(tmp_path, meta)
    assert read_meta(tmp_path) == meta


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[:-10],
        lambda text: text.replace("1", "2"),
        lambda text: "[]",
        lambda text: "[" * 200_000,
        lambda text: text.replace("1", "1" * 5_000),
    ],
    ids=["cut off", "altered", "no object", "nested without end", "a number without end"],
)
def test_a_changed_meta_is_refused(tmp_path, damage):
    write_meta(tmp_path, {"rows": 1})
    path = tmp_path / META
    path.write_text(damage(path.read_text()))
    with pytest.raises(DamagedStoreError, match=META):
        read_meta(tmp_path)


def test_files_are_checked_against_their_description(tmp_path):
    path = tmp_path / "a"
    entry = json.loads(json.dumps(entry_of(path, 5, 6)))
    check_file(path, entry, checksum=True)
    content = bytearray(path.read_bytes())
    content[-40] ^= 1
    path.write_bytes(content)
    check_file(path, entry, checksum=False)
    with pytest.raises(DamagedStoreError, match="checksum"):
        check_file(path, entry, checksum=True)
    path.write_bytes(content[:-1])
    with pytest.raises(DamagedStoreError, match="bytes where"):
        check_file(path, entry, checksum=False)
    path.unlink()
    with pytest.raises(DamagedStoreError, match="missing"):
        check_file(path, entry, checksum=False)
