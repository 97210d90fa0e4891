import json
import shutil

import numpy as np
import pytest
from golden_data import golden_dir
from tfrecord_files import example, flip_bit, write_records

from spanloom.settings.row_sources import SeqioCaches
from spanloom.tasks.read_report import BadInputError, ReadReport
from spanloom.tasks.row_sources import read_row_source, row_source_bytes, row_source_fingerprint

FEATURES = {"inputs": {"dtype": "int32", "shape": [None]}, "targets_pretokenized": {"dtype": "string", "shape": []}}


def write_split(folder, split, numbers, shards=2):
    folder.mkdir(exist_ok=True)
    info = {"features": FEATURES, "num_shards": shards, "seqio_version": "0.0.20"}
    (folder / f"info.{split}.json").write_text(json.dumps(info))
    (folder / f"stats.{split}.json").write_text(json.dumps({"examples": len(numbers)}))
    payloads = [example({"inputs": [n], "targets_pretokenized": [f"Antwort {n}"]}) for n in numbers]
    for number in range(shards):
        write_records(folder / f"{split}.tfrecord-{number:05}-of-{shards:05}", payloads[number::shards])
    (folder / "COMPLETED").write_text("")


@pytest.fixture
def caches(tmp_path):
    for task, numbers in (("a", range(4)), ("b", range(10, 13))):
        write_split(tmp_path / task, "train", list(numbers))
        write_split(tmp_path / task, "validation", list(numbers)[:1])
    return tmp_path


def read(source, split="train", report=None):
    return [row["inputs"].item() for row in read_row_source(source, split, report or ReadReport())]


@pytest.mark.short
def test_every_split_of_every_cache(caches):
    source = SeqioCaches((f"{caches}/*",), heldout_split="validation")
    assert read(source) == [0, 2, 1, 3, 10, 12, 11]
    assert read(source, "heldout") == [0, 10]
    assert read(SeqioCaches((f"{caches}/b",), "validation")) == [10]
    row = next(read_row_source(source, "train", ReadReport()))
    assert row["targets_pretokenized"] == "Antwort 0" and row["inputs"].dtype == np.int32
    shards = list(caches.glob("*/*tfrecord*"))
    assert row_source_bytes(source, ["train", "heldout"]) == sum(shard.stat().st_size for shard in shards)


@pytest.mark.short
def test_damage_names_file_and_byte_or_is_counted(caches):
    shard = caches / "a" / "train.tfrecord-00001-of-00002"
    flip_bit(shard, 8 * 20)
    with pytest.raises(BadInputError, match=rf"{shard}: byte 0: record 0, which begins here, does not match its check"):
        read(SeqioCaches((f"{caches}/*",)))
    report = ReadReport()
    assert read(SeqioCaches((f"{caches}/*",), errors="skip"), report=report) == [0, 2, 3, 10, 12, 11]
    assert report.skipped == {"damaged record": 1} and "examples lost" in report.notes


@pytest.mark.short
@pytest.mark.parametrize(
    ("folders", "split", "message"),
    [
        (("a",), "validatoin", r"no split 'validatoin' here: .*; did you mean validation\?"),
        (("c",), "train", r"there is no such folder"),
        (("*.x",), "train", r"no folder that matches holds COMPLETED \(0 match\)"),
        ((), "train", r"no folder is named"),
        (("a",), "test", r"heldout_split: 'test' is the split to train on\. Name another"),
    ],
)
def test_what_is_not_there_says_what_is(caches, folders, split, message):
    source = SeqioCaches(tuple(f"{caches}/{name}" for name in folders), split, heldout_split="test")
    with pytest.raises(BadInputError, match=message):
        read(source)


@pytest.mark.short
def test_the_fingerprint_follows_shards_and_split(caches):
    source = SeqioCaches((f"{caches}/a",))
    before = row_source_fingerprint(source)
    assert row_source_fingerprint(SeqioCaches((f"{caches}/a",), "validation")) != before
    assert row_source_fingerprint(SeqioCaches((f"{caches}/b",))) != before
    shutil.copytree(caches / "a", caches / "moved" / "a", copy_function=shutil.copy2)
    assert row_source_fingerprint(SeqioCaches((f"{caches}/moved/a",))) == before
    write_split(caches / "a", "train", list(range(5)))
    assert row_source_fingerprint(source) != before


@pytest.mark.short
def test_a_cache_from_afar(caches):
    import fsspec

    system = fsspec.filesystem("memory")
    system.store.clear()
    system.put(str(caches), "/caches", recursive=True)
    for pattern in ("memory://caches/*", "memory://caches/[ab]"):
        source = SeqioCaches((pattern,), heldout_split="validation")
        assert read(source) == [0, 2, 1, 3, 10, 12, 11] and read(source, "heldout") == [0, 10]
    assert row_source_fingerprint(source) == row_source_fingerprint(source)
    assert row_source_bytes(source, ["train"]) == sum(f.stat().st_size for f in caches.glob("*/train.tf*"))
    system.store.clear()


@pytest.mark.golden
def test_golden_caches_give_the_rows_that_seqio_reads():
    folder = golden_dir("seqio", "cached_task")
    expected = [json.loads(line) for line in (folder / "expected.jsonl").read_text().splitlines()]
    tasks = sorted({(row["task"], row["split"]) for row in expected})
    assert tasks
    for task, split in tasks:
        rows = list(read_row_source(SeqioCaches((str(folder / task),), split), "train", ReadReport()))
        wanted = [row["example"] for row in expected if (row["task"], row["split"]) == (task, split)]
        plain = [{k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in row.items()} for row in rows]
        assert [{k: row[k] for k in one} for row, one in zip(plain, wanted, strict=True)] == wanted
