import os

import pytest
from golden_data import shared_dir

from spanloom.settings.task import PairFiles, PythonDocs, TextFiles
from spanloom.tasks.sources import (
    BadInputError,
    ReadReport,
    check_heldout,
    has_heldout,
    read_examples,
    read_parts,
    source_fingerprint,
)


def parts(source):
    reports = {"train": ReadReport(), "heldout": ReadReport()}
    examples = {split: list(read_examples(source, split, report)) for split, report in reports.items()}
    return examples, reports


def sources(folder):
    (folder / "a.txt").write_text("".join(f"{n}\n" for n in range(3000)) + "\n")
    (folder / "dev.txt").write_text("dev\n")
    (folder / "a.tsv").write_text("".join(f"{n}\t{n}\n" for n in range(3000)))
    return (
        TextFiles((f"{folder}/a.txt",)),
        TextFiles((f"{folder}/*.txt",), heldout_files=(f"{folder}/dev.txt",)),
        PairFiles((f"{folder}/a.tsv",), inputs="0", targets="1"),
        PythonDocs(),
    )


@pytest.mark.short
def test_one_pass_gives_both_parts_as_a_pass_for_each_does(tmp_path):
    for source in sources(tmp_path):
        apart, reports_apart = parts(source)
        together = {"train": [], "heldout": []}
        reports = {"train": ReadReport(), "heldout": ReadReport()}
        for split, columns in read_parts(source, reports):
            for texts in zip(*columns.values(), strict=True):
                together[split].append({name: text.decode() for name, text in zip(columns, texts, strict=True)})
        assert together == apart and all(apart.values())
        assert reports == reports_apart
        assert [report.documents for report in reports.values()] == [len(found) for found in apart.values()]


@pytest.mark.short
def test_what_is_left_out_is_counted_once(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"".join(b"%d\n" % n for n in range(200)) + b"\n\xff\n")
    source = TextFiles((f"{tmp_path}/a.txt",), heldout_share=0.1, errors="skip")
    _, reports = parts(source)
    assert reports["train"].skipped == {"empty": 1, "undecodable": 1} and not reports["heldout"].skipped
    assert reports["train"].files == reports["heldout"].files == 1


@pytest.mark.short
def test_more_files_move_no_document(tmp_path):
    """What was held out of a run is held out of one that goes on with more text."""
    (tmp_path / "m.txt").write_text("".join(f"old {n}\n" for n in range(2000)))
    source = TextFiles((f"{tmp_path}/*",), heldout_share=0.05)
    before, _ = parts(source)
    (tmp_path / "a.txt").write_text("new\n" * 7 + "".join(f"new {n}\nold {n}\n" for n in range(1000)))
    (tmp_path / "b.jsonl").write_text("".join(f'{{"text": "old {n}"}}\n' for n in range(1999, -1, -1)))
    after, _ = parts(source)
    for split in ("train", "heldout"):
        texts = {example["text"] for example in after[split]}
        assert {example["text"] for example in before[split]} == {text for text in texts if text.startswith("old")}
    assert not {e["text"] for e in after["train"]} & {e["text"] for e in after["heldout"]}


@pytest.mark.short
def test_an_empty_heldout_part_is_an_error_that_counts(tmp_path):
    (tmp_path / "a.txt").write_text("one\n")
    source = TextFiles((f"{tmp_path}/a.txt",))
    _, reports = parts(source)
    with pytest.raises(BadInputError, match=r"none of the 1 documents fell into the held-out share of 0\.01"):
        check_heldout(source, reports["train"], reports["heldout"])
    (tmp_path / "a.txt").write_text("one\ntwo\nthree\n")
    _, reports = parts(source)
    check_heldout(source, reports["train"], reports["heldout"])
    assert reports["heldout"].documents == 1
    (tmp_path / "a.txt").write_text("one\none\none\n")
    _, reports = parts(source)
    with pytest.raises(BadInputError, match=r"same text.*--heldout-share 0\.5.*--heldout-files.*--heldout-share 0\b"):
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
