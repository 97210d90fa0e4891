import json
import shutil

import numpy as np
import pytest
from tfrecord_files import example, flip_bit, write_records

from spanloom.settings.row_sources import TfdsFolder
from spanloom.tasks.read_report import BadInputError, ReadReport
from spanloom.tasks.row_sources import read_row_source, row_source_bytes, row_source_fingerprint

pytestmark = pytest.mark.short

LENGTHS = {"train": [3, 4, 3], "test": [2]}


def tensor(dtype, *shape, **more):
    dimensions = {"dimensions": [str(size) for size in shape]} if shape else {}
    return {"tensor": {"dtype": dtype, "encoding": "none", "shape": dimensions, **more}}


def sequence(feature, length=-1):
    return {"sequence": {"feature": feature, "length": str(length)}}


def features(**inner):
    return {"featuresDict": {"features": inner}}


# The descriptions and names in records are those that tensorflow_datasets 4.9.10 wrote for such features.
FEATURES = features(
    text={"text": {}},
    label={"classLabel": {"numClasses": "2"}},
    flag=tensor("bool"),
    vec=tensor("float32", 2, 3),
    ids=sequence(tensor("int32")),
    fixed=sequence(tensor("int64"), 2),
    answers=sequence(features(text={"text": {}}, start=tensor("int32"))),
    nested=features(a={"text": {}}, b=features(c=tensor("int64"))),
    ragged=sequence(sequence(tensor("int64"))),
    ragged_text=sequence(sequence({"text": {}})),
    translation={"translation": {"languages": ["de", "en"]}},
    langs={"translation": {"variableLanguagesPerExample": True}},
    image={"image": {"dtype": "uint8", "shape": {"dimensions": ["4", "4", "3"]}}},
    maybe=tensor("int64", optional=True),
)


def stored(n):
    many = n % 3
    return {
        "text": [f"größe {n}"],
        "label": [n % 2],
        "flag": [n % 2],
        "vec": [float(n)] * 6,
        "ids": list(range(many)),
        "fixed": [n, n + 1],
        "answers/text": [f"t{k}" for k in range(many)],
        "answers/start": list(range(many)),
        "nested/a": [f"a{n}"],
        "nested/b/c": [n],
        "ragged/ragged_flat_values": [n, n + 1, n + 2],
        "ragged/ragged_row_lengths_0": [2, 0, 1],
        "ragged_text/ragged_flat_values": ["x"] * many,
        "ragged_text/ragged_row_lengths_0": [many] if many else [],
        "translation/de": [f"de{n}"],
        "translation/en": [f"en{n}"],
        "langs/language": ["de", "en"],
        "langs/translation": [f"d{n}", f"e{n}"],
        "image": [b"\x89PNG\xff"],
        "maybe": [n] if n % 2 else [],
    }


def write(folder, kind="tfrecord", lengths=LENGTHS, described=FEATURES):
    folder.mkdir(parents=True)
    splits, number = [], 0
    for split, counts in lengths.items():
        splits.append(
            {
                "name": split,
                "shardLengths": [str(count) for count in counts],
                "filepathTemplate": "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}",
            }
        )
        for shard, count in enumerate(counts):
            payloads = [example(stored(n)) for n in range(number, number + count)]
            path = folder / f"tiny-{split}.{kind}-{shard:05}-of-{len(counts):05}"
            if kind == "tfrecord":
                write_records(path, payloads)
            else:
                module = pytest.importorskip("array_record.python.array_record_module")
                writer = module.ArrayRecordWriter(str(path), "group_size:1")
                for payload in payloads:
                    writer.write(payload)
                writer.close()
            number += count
    info = {"name": "tiny", "version": "1.0.0", "fileFormat": kind, "splits": splits}
    (folder / "dataset_info.json").write_text(json.dumps(info))
    (folder / "features.json").write_text(json.dumps(described))
    return folder


@pytest.fixture
def folder(tmp_path):
    return write(tmp_path / "tiny" / "1.0.0")


def read(source, split="train", report=None):
    return list(read_row_source(source, split, report or ReadReport()))


def numbers(source, **more):
    return [int(row["text"].split()[1]) for row in read(source, **more)]


@pytest.mark.parametrize("kind", ["tfrecord", "array_record"])
def test_rows_are_those_that_tfds_gives(tmp_path, kind):
    write(tmp_path / "t" / "1.0.0", kind)
    source = TfdsFolder(str(tmp_path / "t"), heldout_split="test")
    assert numbers(source) == list(range(10)) and numbers(source, split="heldout") == [10, 11]
    row = read(source)[5]
    arrays = {name: row.pop(name) for name in ("vec", "ids", "fixed")}
    assert arrays["vec"].tolist() == [[5.0] * 3] * 2 and arrays["vec"].dtype == np.float32
    assert arrays["ids"].tolist() == [0, 1] and arrays["ids"].dtype == np.int32
    assert arrays["fixed"].tolist() == [5, 6]
    assert row["answers"].pop("start").tolist() == [0, 1]
    assert [one.tolist() for one in row.pop("ragged")] == [[5, 6], [], [7]]
    assert row == {
        "text": "größe 5",
        "label": 1,
        "flag": True,
        "answers": {"text": ["t0", "t1"]},
        "nested": {"a": "a5", "b": {"c": 5}},
        "ragged_text": [["x", "x"]],
        "translation": {"de": "de5", "en": "en5"},
        "langs": {"language": ["de", "en"], "translation": ["d5", "e5"]},
        "image": b"\x89PNG\xff",
        "maybe": 5,
    }
    empty = read(source)[0]
    assert empty["ragged_text"] == [] and empty["maybe"] is None and empty["answers"]["text"] == []


@pytest.mark.parametrize(
    ("split", "expected"),
    [
        ("train[:4]", [0, 1, 2, 3]),
        ("train[30%:70%]", [3, 4, 5, 6]),
        ("train[-2:]+test", [8, 9, 10, 11]),
        ("test[1:]+train[:1]", [11, 0]),
        ("train[7:]", [7, 8, 9]),
    ],
)
@pytest.mark.parametrize("kind", ["tfrecord", "array_record"])
def test_slices(tmp_path, kind, split, expected):
    assert numbers(TfdsFolder(str(write(tmp_path / "t", kind)), split)) == expected


def test_only_the_files_of_a_slice_are_read(folder):
    report = ReadReport()
    assert numbers(TfdsFolder(str(folder), "train[3:7]"), report=report) == [3, 4, 5, 6]
    assert report.files == 1


def test_damage_names_file_and_byte_or_is_counted(folder):
    shard = folder / "tiny-train.tfrecord-00001-of-00003"
    flip_bit(shard, 8 * 30)
    with pytest.raises(BadInputError, match=rf"{shard}: byte 0: record 0, which begins here, does not match its check"):
        read(TfdsFolder(str(folder)))
    report = ReadReport()
    assert numbers(TfdsFolder(str(folder), errors="skip"), report=report) == [0, 1, 2, 4, 5, 6, 7, 8, 9]
    assert report.skipped == {"damaged record": 1} and "examples lost" in report.notes


def test_a_shard_that_lost_records_or_is_absent(folder):
    shard = folder / "tiny-train.tfrecord-00002-of-00003"
    write_records(shard, [example(stored(7))])
    with pytest.raises(BadInputError, match=r"speaks of 3 examples, but the file gave 1\. Get the folder again"):
        read(TfdsFolder(str(folder)))
    shard.unlink()
    with pytest.raises(BadInputError, match=rf"{shard}: cannot be opened: No such file"):
        read(TfdsFolder(str(folder)))
    report = ReadReport()
    assert numbers(TfdsFolder(str(folder), errors="skip"), report=report) == list(range(7))
    assert report.skipped == {"unreadable file": 1}


def test_what_is_not_there_says_what_is(folder, tmp_path):
    for named, split, message in [
        ("", "train", "no folder is named"),
        (tmp_path / "none", "train", "there is no such folder"),
        (folder, "trian", r"no split 'trian' here; did you mean train\?"),
        (folder, "train[:x]", "is no split: write train"),
        (folder, "test[5:]", "no row for training: it is empty"),
    ]:
        with pytest.raises(BadInputError, match=message):
            read(TfdsFolder(str(named), split))
    shutil.copytree(folder, folder.parent / "2.0.0")
    with pytest.raises(BadInputError, match=r"2 folders below \(1\.0\.0, 2\.0\.0\)\. Name the folder of one version"):
        read(TfdsFolder(str(folder.parent)))
    (folder / "features.json").unlink()
    with pytest.raises(BadInputError, match=r"features\.json is missing"):
        read(TfdsFolder(str(folder)))


@pytest.mark.parametrize(
    ("described", "message"),
    [
        ({}, "feature '' .* is not read"),
        (features(x={"pythonClassName": "a.b.Graph", "jsonFeature": {}}), r"feature 'x' \(Graph\) is not read"),
        (features(x=tensor("complex64")), "feature 'x' has the unknown dtype 'complex64'"),
        (features(x={"tensor": {}}), "feature 'x' has the unknown dtype ''"),
        (features(x={"text": {}}, text=3), "feature 'text' is 3"),
        (features(label={"text": {}}), "feature 'label' holds integers, not text"),
        (features(absent={"text": {}}), "feature 'absent' holds 0 values, not one"),
    ],
)
def test_descriptions_that_do_not_fit(tmp_path, described, message):
    folder = write(tmp_path / "t", described=described)
    with pytest.raises(BadInputError, match=message):
        read(TfdsFolder(str(folder)))


def test_damaged_descriptions(folder):
    for name, content in [("dataset_info.json", "{"), ("dataset_info.json", "[]"), ("features.json", "\x00")]:
        whole = (folder / name).read_text()
        (folder / name).write_text(content)
        with pytest.raises(BadInputError, match=f"{name}: damaged"):
            read(TfdsFolder(str(folder)))
        (folder / name).write_text(whole)
    info = json.loads((folder / "dataset_info.json").read_text())
    (folder / "dataset_info.json").write_text(json.dumps({**info, "fileFormat": "parquet"}))
    with pytest.raises(BadInputError, match=r"are of format 'parquet'\. Prepare the data set as"):
        read(TfdsFolder(str(folder)))


def test_fingerprint_and_size(folder, tmp_path):
    source = TfdsFolder(str(folder), heldout_split="test")
    before = row_source_fingerprint(source)
    assert row_source_bytes(source, ["train", "heldout"]) == sum(f.stat().st_size for f in folder.glob("*tfrecord*"))
    shutil.copytree(folder, tmp_path / "moved", copy_function=shutil.copy2)
    assert row_source_fingerprint(TfdsFolder(str(tmp_path / "moved"), heldout_split="test")) == before
    flip_bit(folder / "tiny-test.tfrecord-00000-of-00001", 8 * 30)
    assert row_source_fingerprint(source) != before
