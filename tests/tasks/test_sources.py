import os

import pytest
from golden_data import shared_dir

from spanloom.settings.task import PairFiles, PythonDocs, TextFiles
from spanloom.tasks.sources import (
    BadInputError,
    ReadReport,
    check_heldout,
    has_heldout,
    read_batches,
    read_examples,
    source_fingerprint,
)


def parts(source):
    reports = {"train": ReadReport(), "heldout": ReadReport()}
    examples = {split: list(read_examples(source, split, report)) for split, report in reports.items()}
    return examples, reports


@pytest.mark.short
def test_batches_are_the_examples(tmp_path):
    (tmp_path / "a.txt").write_text("".join(f"{n}\n" for n in range(3000)))
    (tmp_path / "a.tsv").write_text("".join(f"{n}\t{n}\n" for n in range(3000)))
    for source in (
        TextFiles((f"{tmp_path}/a.txt",)),
        PairFiles((f"{tmp_path}/a.tsv",), inputs="0", targets="1"),
        PythonDocs(),
    ):
        for split in ("train", "heldout"):
            batches = [example for batch in read_batches(source, split, ReadReport()) for example in batch]
            report = ReadReport()
            assert list(read_examples(source, split, report)) == batches and batches
            assert report.documents == len(batches)


@pytest.mark.short
def test_an_empty_heldout_part_is_an_error_that_counts(tmp_path):
    (tmp_path / "a.txt").write_text("one\n")
    source = TextFiles((f"{tmp_path}/a.txt",))
    _, reports = parts(source)
    with pytest.raises(BadInputError, match=r"none of the 1 documents fell into the held-out share of 0\.01"):
        check_heldout(source, reports["train"], reports["heldout"])
    (tmp_path / "a.txt").write_text("one\ntwo\nthree\n")
    _, reports = parts(source)
    if not reports["heldout"].documents:
        with pytest.raises(BadInputError, match=r"--heldout-share 0\.5.*--heldout-files.*--heldout-share 0\b"):
            check_heldout(source, reports["train"], reports["heldout"])
    none = TextFiles((f"{tmp_path}/a.txt",), heldout_share=0.0)
    _, reports = parts(none)
    check_heldout(none, reports["train"], reports["heldout"])
    assert not has_heldout(none) and has_heldout(source)
    (tmp_path / "dev.txt").write_text("\n")
    source = TextFiles((f"{tmp_path}/a.txt",), (f"{tmp_path}/dev.txt",))
    _, reports = parts(source)
    with pytest.raises(BadInputError, match=r"dev\.txt: the held-out part has no document: 1 empty"):
        check_heldout(source, reports["train"], reports["heldout"])


@pytest.mark.short
def test_fingerprint_follows_content_and_settings(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("one\ntwo\n")
    source = TextFiles((f"{tmp_path}/*.txt",))
    before = source_fingerprint(source)
    assert source_fingerprint(source) == before and len(before) == 64
    stat = path.stat()
    path.write_text("one\ntwx\n")
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert source_fingerprint(source) != before, "same size and time, other text"
    path.write_text("one\ntwo\n")
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert source_fingerprint(source) == before
    os.utime(path, ns=(0, 0))
    assert source_fingerprint(source) != before
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    (tmp_path / "b.txt").write_text("")
    assert source_fingerprint(source) != before
    assert source_fingerprint(TextFiles((f"{tmp_path}/*.txt",), errors="skip")) != before
    with pytest.raises(BadInputError, match="no file matches"):
        source_fingerprint(TextFiles((f"{tmp_path}/*.csv",)))


def test_novels_of_six_languages():
    folder = shared_dir("data", "corpora", "eltec")
    source = TextFiles((f"{folder}/*.jsonl.gz",), heldout_share=0.1)
    examples, reports = parts(source)
    check_heldout(source, reports["train"], reports["heldout"])
    texts = {split: {e["text"] for e in found} for split, found in examples.items()}
    assert not texts["train"] & texts["heldout"]
    assert reports["train"].bytes + reports["heldout"].bytes > 10_000_000
    assert not reports["train"].skipped
    titled = TextFiles((f"{folder}/en.jsonl.gz",), field=r"{title} ({year})\n{text}", heldout_share=0.0)
    assert "\n" in next(read_examples(titled, "train", ReadReport()))["text"]
