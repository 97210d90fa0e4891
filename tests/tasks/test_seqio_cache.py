import json
import shutil
from itertools import chain

import numpy as np
import pytest
from golden_data import golden_dir
from hypothesis import given, settings
from hypothesis import strategies as st
from tfrecord_files import example, flip_bit, golden_rows, write_records

from spanloom.tasks.read_report import BadInputError, Intake, ReadReport
from spanloom.tasks.seqio_cache import open_cache, read_cache, read_shard
from spanloom.tasks.tfrecord import find_frames

FEATURES = {
    "inputs": {"dtype": "int32", "shape": [None]},
    "inputs_pretokenized": {"dtype": "string", "shape": []},
}


def write_cache(folder, count=10, shards=3, split="train"):
    folder.mkdir(exist_ok=True)
    info = {"features": FEATURES, "num_shards": shards, "seqio_version": "0.0.20"}
    (folder / f"info.{split}.json").write_text(json.dumps(info))
    (folder / f"stats.{split}.json").write_text(json.dumps({"examples": count, "inputs_tokens": 2 * count}))
    payloads = [example({"inputs": [n, n + 300], "inputs_pretokenized": [f"número {n}"]}) for n in range(count)]
    for number in range(shards):
        name = f"{split}.tfrecord-{number:05}-of-{shards:05}"
        write_records(folder / name, payloads[number::shards])
    (folder / "COMPLETED").write_text("tfrecord")
    return folder


def read(folder, errors="strict", split="train"):
    intake = Intake(ReadReport(), errors)
    return list(read_cache(open_cache(str(folder), split, intake), intake)), intake.report


@pytest.fixture
def folder(tmp_path):
    return write_cache(tmp_path / "task")


@pytest.mark.short
def test_a_cache_is_read_shard_by_shard(folder):
    examples, report = read(folder)
    numbers = [0, 3, 6, 9, 1, 4, 7, 2, 5, 8]
    assert [one["inputs_pretokenized"] for one in examples] == [f"número {n}" for n in numbers]
    assert [one["inputs"].tolist() for one in examples] == [[n, n + 300] for n in numbers]
    assert examples[0]["inputs"].dtype == np.int32
    assert report.files == 3 and report.file_bytes == sum(f.stat().st_size for f in folder.glob("*tfrecord*"))


@pytest.mark.short
def test_folders_that_are_no_finished_cache(folder, tmp_path):
    with pytest.raises(BadInputError, match="nowhere: there is no such folder"):
        read(tmp_path / "nowhere")
    with pytest.raises(BadInputError, match=r"no split 'trian' here: no .*info\.trian\.json; did you mean train\?"):
        read(folder, split="trian")
    (folder / "COMPLETED").unlink()
    with pytest.raises(BadInputError, match="no finished SeqIO cache: the file COMPLETED"):
        read(folder)


@pytest.mark.short
def test_missing_shards_and_shards_of_another_count(folder):
    missing = folder / "train.tfrecord-00001-of-00003"
    missing.rename(folder / "kept")
    with pytest.raises(BadInputError, match=r"00001-of-00003: this shard is missing: .*info\.train\.json speaks of 3"):
        read(folder)
    examples, report = read(folder, "skip")
    assert len(examples) == 7 and report.skipped == {"missing or foreign shard": 1}
    assert "counts 10 examples, but the shards gave 7" in report.notes["examples lost"]
    (folder / "kept").rename(missing)
    shutil.copy(missing, folder / "train.tfrecord-00001-of-00004")
    with pytest.raises(BadInputError, match=r"00001-of-00004: not one of the 3 shards that"):
        read(folder)
    assert len(read(folder, "skip")[0]) == 10


def test_descriptions_that_are_damaged(folder):
    path = folder / "info.train.json"
    good = json.loads(path.read_text())
    for change, message in [
        ({"num_shards": "3"}, "num_shards is '3'"),
        ({"num_shards": 2}, "not one of the 2 shards"),
        ({"features": {}}, "features is {}"),
        ({"features": {"a": {"dtype": "complex64", "shape": []}}}, "feature 'a' has the unknown dtype 'complex64'"),
        ({"features": {"a": {"dtype": "int32", "shape": 3}}}, "feature 'a' has 3 for a shape"),
    ]:
        path.write_text(json.dumps(good | change))
        with pytest.raises(BadInputError, match=message):
            read(folder)
    for content in ("{", "[]", "\udcff"):
        path.write_text(content, errors="surrogateescape")
        with pytest.raises(BadInputError, match=r"info\.train\.json: damaged"):
            read(folder)
    path.write_text(json.dumps(good))
    (folder / "stats.train.json").write_text('{"examples": -1}')
    with pytest.raises(BadInputError, match="examples is -1"):
        read(folder)


def test_a_shard_cut_off_between_two_records_is_noticed_by_the_count(folder):
    path = folder / "train.tfrecord-00002-of-00003"
    path.write_bytes(path.read_bytes()[: int(find_frames(str(path)).offsets[1])])
    with pytest.raises(BadInputError, match=r"stats\.train\.json: counts 10 examples, but the shards gave 8"):
        read(folder)
    (folder / "stats.train.json").unlink()
    assert len(read(folder)[0]) == 8


def test_records_of_another_form(folder):
    path = folder / "train.tfrecord-00000-of-00003"
    good = example({"inputs": [1], "inputs_pretokenized": ["x"]})
    for wrong, message in [
        (b"no message", "no tf.train.Example: "),
        (example({"inputs": [1]}), "'inputs_pretokenized' holds 0 values, not one"),
        (example({"inputs": ["text"], "inputs_pretokenized": ["x"]}), r"'inputs' holds text, not integers \(int32\)"),
        (example({"inputs": [1 << 31], "inputs_pretokenized": ["x"]}), "'inputs' holds 2147483648, which is no int32"),
        (example({"inputs": [1], "inputs_pretokenized": [b"a\xff"]}), "feature 'inputs_pretokenized': invalid utf-8"),
    ]:
        begin = len(write_records(path, [good]))
        write_records(path, [good, wrong, good])
        with pytest.raises(BadInputError, match=rf"00000-of-00003: byte {begin}.*{message}"):
            read(folder)
        intake = Intake(ReadReport(), "skip")
        cache = open_cache(str(folder), "train", intake)
        assert len(list(read_shard(cache, cache.shards[0], intake))) == 2
        assert sum(intake.report.skipped.values()) == 1
    replacing = Intake(ReadReport(), "replace")
    [_, mended, _] = read_shard(cache, cache.shards[0], replacing)
    assert mended["inputs_pretokenized"] == "a\ufffd" and replacing.report.replaced == 1


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_any_single_flipped_bit_of_a_cache_is_noticed(tmp_path_factory, draw):
    folder = write_cache(tmp_path_factory.mktemp("cache") / "task", count=3, shards=2)
    path = draw.draw(st.sampled_from(sorted(folder.glob("train.tfrecord*"))))
    flip_bit(path, draw.draw(st.integers(0, 8 * path.stat().st_size - 1)))
    with pytest.raises(BadInputError, match=rf"{path.name}: byte \d+: "):
        read(folder)
    examples, report = read(folder, "skip")
    assert len(examples) < 3 and sum(report.skipped.values()) == 1 and "examples lost" in report.notes


def plain(one):
    return {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in one.items()}


@pytest.mark.golden
def test_golden_caches():
    root = golden_dir("seqio", "cached_task")
    expected = {}
    for row in chain.from_iterable(golden_rows(root).values()):
        expected.setdefault((row["task"], row["split"]), []).append(row)
    for (task, split), rows in expected.items():
        rows.sort(key=lambda row: (row["file"], row["record"]))
        examples, _ = read(root / task, split=split)
        for found, row in zip(examples, rows, strict=True):
            wanted = {name: bool(v) if name == "is_correct" else v for name, v in row["example"].items()}
            assert plain(found) == wanted, (task, row["file"], row["record"])


@pytest.mark.golden
def test_golden_damaged_copies():
    root = golden_dir("seqio", "cached_task")
    for folder in {path.parent for path in root.glob("*/damage.json")}:
        whole, intake = folder.parent / folder.name.removesuffix("-corrupt"), Intake(ReadReport(), "skip")
        cache, twin = (open_cache(str(one), "train", intake) for one in (folder, whole))
        for name, damage in json.loads((folder / "damage.json").read_text()).items():
            before = damage["tensorflow_reader"]["records_before_error"]
            wanted = list(map(plain, read_shard(twin, str(whole / name), intake)))
            found = []
            if damage["damage"] == "none":
                assert list(map(plain, read_shard(cache, str(folder / name), Intake(ReadReport())))) == wanted
                continue
            with pytest.raises(BadInputError, match=rf"{name}: byte \d+: "):
                found.extend(map(plain, read_shard(cache, str(folder / name), Intake(ReadReport()))))
            assert found == wanted[:before]
            skipped = list(map(plain, read_shard(cache, str(folder / name), intake)))
            if "may report and skip just this record" in damage.get("detectable_by", ""):
                wanted = wanted[:before] + wanted[before + 1 :]
            else:
                wanted = wanted[:before]
            assert skipped == wanted
