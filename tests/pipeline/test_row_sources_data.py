"""Every kind of row source, from what lies on disk to the tokens that a run trains on."""

import json

import pytest
from pipeline_data import tiny_run
from tfrecord_files import example, flip_bit, write_records

from spanloom.pipeline.data import open_data
from spanloom.settings.feature import Feature
from spanloom.settings.function import Function
from spanloom.settings.objectives import Supervised
from spanloom.settings.row_sources import (
    HuggingFaceDataset,
    PythonExamples,
    RecordFiles,
    RowFiles,
    SeqioCaches,
    TfdsFolder,
)
from spanloom.settings.task import Task
from spanloom.settings.vocabulary import Bytes, SentencePiece
from spanloom.tasks.read_report import BadInputError
from spanloom.tasks.text_preprocessors.rekeying import Rekey
from spanloom.vocabularies.bytes import ByteVocabulary

TRAIN = [{"q": f"Frage {n}", "a": f"Antwort {n}"} for n in range(30)]
HELD = [{"q": f"Probe {n}", "a": f"Lösung {n}"} for n in range(4)]
SPLITS = {"train": TRAIN, "test": HELD}
VOCABULARY = ByteVocabulary(Bytes())


def row_files(folder):
    for split, rows in SPLITS.items():
        (folder / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return RowFiles((f"{folder}/train.jsonl",), heldout_files=(f"{folder}/test.jsonl",))


def record_files(folder):
    for split, rows in SPLITS.items():
        write_records(folder / f"{split}.tfrecord", [example({k: [v] for k, v in row.items()}) for row in rows])
    return RecordFiles((f"{folder}/train.tfrecord",), heldout_files=(f"{folder}/test.tfrecord",))


def seqio_caches(folder):
    for split, rows in SPLITS.items():
        features = {name: {"dtype": "string", "shape": []} for name in rows[0]}
        info = {"features": features, "num_shards": 1, "seqio_version": "0.0.20"}
        (folder / f"info.{split}.json").write_text(json.dumps(info))
        payloads = [example({k: [v] for k, v in row.items()}) for row in rows]
        write_records(folder / f"{split}.tfrecord-00000-of-00001", payloads)
    (folder / "COMPLETED").write_text("")
    return SeqioCaches((str(folder),), heldout_split="test")


def tfds_folder(folder):
    splits = [{"name": split, "shardLengths": [str(len(rows))]} for split, rows in SPLITS.items()]
    (folder / "dataset_info.json").write_text(json.dumps({"name": "t", "fileFormat": "tfrecord", "splits": splits}))
    described = {"featuresDict": {"features": {name: {"text": {}} for name in TRAIN[0]}}}
    (folder / "features.json").write_text(json.dumps(described))
    for split, rows in SPLITS.items():
        payloads = [example({k: [v] for k, v in row.items()}) for row in rows]
        write_records(folder / f"t-{split}.tfrecord-00000-of-00001", payloads)
    return TfdsFolder(str(folder), heldout_split="test")


def python_examples(folder):
    (folder / "rows.py").write_text(f"ROWS = {SPLITS!r}\ndef rows(split):\n    return ROWS[split]\n")
    return PythonExamples(Function(f"{folder}/rows.py:rows"), split="train", heldout_split="test")


def hugging_face(folder):
    datasets = pytest.importorskip("datasets")
    splits = {split: datasets.Dataset.from_list(rows) for split, rows in SPLITS.items()}
    datasets.DatasetDict(splits).save_to_disk(folder / "saved")
    return HuggingFaceDataset(str(folder / "saved"), heldout_split="test")


KINDS = [row_files, record_files, seqio_caches, tfds_folder, python_examples, hugging_face]


def run_of(source):
    rekeyed = Rekey({"inputs": "q", "targets": "a"})
    return tiny_run(Task("pairs", source, Bytes(), Supervised(32, 32), preprocessors=(rekeyed,)))


def pairs_of(part):
    shown = part.text_examples(part.num_examples)
    return sorted((VOCABULARY.decode(one.inputs), VOCABULARY.decode(one.targets)) for one in shown)


@pytest.mark.parametrize("make", KINDS, ids=lambda make: make.__name__)
def test_a_run_learns_from_the_rows(make, tmp_path):
    (tmp_path / "source").mkdir()
    data = open_data(run_of(make(tmp_path / "source")), tmp_path)
    assert pairs_of(data.train) == sorted((row["q"], row["a"]) for row in TRAIN)
    assert pairs_of(data.heldout["pairs"]) == sorted((row["q"], row["a"]) for row in HELD)


@pytest.mark.parametrize("make", KINDS, ids=lambda make: make.__name__)
def test_all_kinds_give_the_same_data(make, tmp_path):
    """The same rows are the same store, whatever they lie in; and an open run builds nothing again."""
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    data = open_data(run_of(make(tmp_path / "a")), tmp_path / "run")
    other = open_data(run_of(row_files(tmp_path / "b")), tmp_path / "other")
    assert data.content == other.content
    shards = {path: path.stat().st_mtime_ns for path in (tmp_path / "run").rglob("*.arrow")}
    assert shards
    open_data(run_of(data.settings.source), tmp_path / "run")
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "run").rglob("*.arrow")} == shards


@pytest.mark.short
def test_a_share_of_the_rows_is_held_out(tmp_path):
    rows = tuple({"q": f"q{n}", "a": f"a{n}"} for n in range(200))
    data = open_data(run_of(PythonExamples(rows=rows, heldout_share=0.1)), tmp_path)
    train, held = pairs_of(data.train), pairs_of(data.heldout["pairs"])
    assert sorted(train + held) == sorted((row["q"], row["a"]) for row in rows)
    assert 5 < len(held) < 40


@pytest.mark.short
@pytest.mark.parametrize("make", [seqio_caches, tfds_folder])
def test_damage_stops_the_build_or_is_counted(make, tmp_path):
    from dataclasses import replace

    (tmp_path / "source").mkdir()
    source = make(tmp_path / "source")
    (shard,) = (tmp_path / "source").glob("*train.tfrecord-00000-of-00001")
    flip_bit(shard, 8 * 40)
    with pytest.raises(BadInputError, match=rf"{shard}: byte 0: record 0, which begins here"):
        open_data(run_of(source), tmp_path)
    data = open_data(run_of(replace(source, errors="skip")), tmp_path)
    assert data.train.num_examples == len(TRAIN) - 1
    assert data.tasks[0].reports["train"].skipped == {"damaged record": 1}


@pytest.mark.golden
def test_a_run_learns_from_a_golden_cache(tmp_path):
    from golden_data import golden_dir

    folder = golden_dir("seqio", "cached_task")
    lines = [json.loads(line) for line in (folder / "expected.jsonl").read_text().splitlines()]
    source = SeqioCaches((str(folder / "prompted"),), heldout_split="validation")
    rekeyed = Rekey({"inputs": "inputs_pretokenized", "targets": "targets_pretokenized"})
    task = Task("prompted", source, Bytes(), Supervised(), preprocessors=(rekeyed,))
    data = open_data(tiny_run(task), tmp_path)
    for part, split in ((data.train, "train"), (data.heldout["prompted"], "validation")):
        wanted = [row["example"] for row in lines if (row["task"], row["split"]) == ("prompted", split)]
        pairs = sorted((one["inputs_pretokenized"], one["targets_pretokenized"]) for one in wanted)
        assert pairs and pairs_of(part) == pairs


@pytest.mark.golden
def test_token_ids_of_a_golden_cache_are_taken_as_they_are_stored(tmp_path):
    from golden_data import golden_dir, shared_dir

    folder, model = golden_dir("seqio", "cached_task"), shared_dir("data", "tokenizers", "t5", "spiece.model")
    lines = [json.loads(line) for line in (folder / "expected.jsonl").read_text().splitlines()]
    source = SeqioCaches((str(folder / "prompted"),), heldout_split="validation")
    features = (Feature("inputs"), Feature("targets", add_eos=False))  # these targets end in EOS already
    task = Task("p3", source, SentencePiece(str(model), "appended"), Supervised(), features=features)
    data = open_data(tiny_run(task, vocab_size=32128), tmp_path)
    made = data.train.text_examples(data.train.num_examples)
    wanted = [row["example"] for row in lines if (row["task"], row["split"]) == ("prompted", "train")]
    assert wanted and sorted((one.inputs.tolist(), one.targets.tolist()) for one in made) == sorted(
        ([*one["inputs"], 1], one["targets"]) for one in wanted
    )
