"""Pairs out of files as they come in the wild; tables themselves are tested in test_tables.py."""

import json

import pytest
from golden_data import shared_dir

from spanloom.settings.task import PairFiles
from spanloom.tasks.read_report import BadInputError, ReadReport
from spanloom.tasks.sources import check_heldout, read_examples


def read(source, split="train", report=None):
    return [(e["inputs"], e["targets"]) for e in read_examples(source, split, report or ReadReport())]


@pytest.mark.short
def test_json_lines(tmp_path):
    path = tmp_path / "a.jsonl"
    rows = [{"q": "1+1", "a": 2, "extra": [1]}, {"q": "2+2", "a": 4}]
    path.write_text("\n".join(map(json.dumps, rows)))
    source = PairFiles(files=(str(path),), inputs="add: {q}", targets="{a}", heldout_share=0.0)
    report = ReadReport()
    assert read(source, report=report) == [("add: 1+1", "2"), ("add: 2+2", "4")]
    assert report.documents == 2 and report.bytes == 18
    with pytest.raises(BadInputError, match=r"no field 'inputs'; the fields are 'q', 'a', 'extra'"):
        read(PairFiles(files=(str(path),), heldout_share=0.0))


@pytest.mark.short
def test_splits_are_disjoint_and_everything(tmp_path):
    path = tmp_path / "a.tsv"
    path.write_text("inputs\ttargets\n" + "".join(f"i{n}\tt{n}\n" for n in range(400)))
    everything = read(PairFiles(files=(str(path),), heldout_share=0.0))
    source = PairFiles(files=(str(path),), heldout_share=0.1)
    train, heldout = read(source), read(source, "heldout")
    assert not set(train) & set(heldout) and set(train) | set(heldout) == set(everything)
    assert 25 <= len(heldout) <= 55


def test_pairs_of_the_same_inputs_stay_together(tmp_path):
    path = tmp_path / "a.tsv"
    path.write_text("inputs\ttargets\n" + "".join(f"i{n % 100}\tt{n}\n" for n in range(400)))
    source = PairFiles(files=(str(path),), heldout_share=0.3)
    train, heldout = ({inputs for inputs, _ in read(source, split)} for split in ("train", "heldout"))
    assert not train & heldout and len(train | heldout) == 100 and 15 <= len(heldout) <= 45


def test_g2p_of_all_languages():
    folder = shared_dir("data", "labelled", "g2p")
    for path in sorted(folder.glob("train/*_train.tsv")):
        dev = str(path).replace("train", "dev")
        source = PairFiles(files=(str(path),), heldout_files=(dev,), inputs="0", targets="1")
        reports = {split: ReadReport() for split in ("train", "heldout")}
        counts = {split: len(read(source, split, reports[split])) for split in reports}
        lines = path.read_text(encoding="utf-8").splitlines()
        assert counts["train"] == len(lines), path
        assert counts["heldout"] > 0 and not reports["train"].skipped
        check_heldout(source, reports["train"], reports["heldout"])


def test_mrpc_with_a_mark_and_unbalanced_quotes():
    path = shared_dir("data", "labelled", "mrpc", "msr-para-train.tsv")
    source = PairFiles(files=(str(path),), inputs="{#1 String} = {#2 String}", targets="Quality", heldout_share=0.0)
    pairs = read(source)
    assert len(pairs) == len(path.read_bytes().splitlines()) - 1
    assert {target for _, target in pairs} == {"0", "1"}


def test_sick_by_column_names():
    path = shared_dir("data", "labelled", "sick", "SICK_train.txt")
    source = PairFiles(
        files=(str(path),), inputs="{sentence_A} | {sentence_B}", targets="entailment_judgment", format="tsv"
    )
    assert {target for _, target in read(source)} == {"NEUTRAL", "ENTAILMENT", "CONTRADICTION"}


def test_movie_reviews_are_not_utf8():
    from spanloom.settings.task import TextFiles

    path = str(shared_dir("data", "labelled", "movie_reviews", "rt-polarity.pos"))
    source = TextFiles(files=(path,), format="txt", heldout_share=0.0)
    with pytest.raises(BadInputError, match=r"rt-polarity.pos:\d+: invalid utf-8 at byte \d+.*--encoding cp1252"):
        list(read_examples(source, "train", ReadReport()))
    settings = {"files": (path,), "format": "txt", "heldout_share": 0.0}
    assert len(list(read_examples(TextFiles(**settings, encoding="cp1252"), "train", ReadReport()))) == 5331
    report = ReadReport()
    texts = list(read_examples(TextFiles(**settings, errors="skip"), "train", report))
    assert len(texts) + report.skipped["undecodable"] == 5331
    report = ReadReport()
    assert len(list(read_examples(TextFiles(**settings, errors="replace"), "train", report))) == 5331
    assert report.replaced > 0
