import os
import re
from dataclasses import replace

import pytest
from golden_data import shared_dir

from spanloom.settings.task import PairFiles, PythonDocs, TextFiles
from spanloom.tasks.read_report import BadInputError, ReadReport
from spanloom.tasks.sources import (
    check_heldout,
    has_heldout,
    read_examples,
    read_parts,
    source_bytes,
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
    with pytest.raises(BadInputError, match=r"there is 1 document alone.*--task\.source\.heldout-share 0\."):
        check_heldout(source, reports["train"], reports["heldout"])
    (tmp_path / "a.txt").write_text("one\ntwo\nthree\n")
    _, reports = parts(source)
    check_heldout(source, reports["train"], reports["heldout"])
    assert reports["heldout"].documents == 1
    (tmp_path / "a.txt").write_text("one\none\none\n")
    _, reports = parts(source)
    with pytest.raises(BadInputError, match=r"all 3 documents are one and the same text") as failure:
        check_heldout(source, reports["train"], reports["heldout"])
    for flag in re.findall("--[a-z.-]+", str(failure.value)):
        assert flag in ("--task.source.heldout-files", "--task.source.heldout-share"), "names that every command has"
    with pytest.raises(BadInputError, match=r"a share of 1e-11 is none"):
        check_heldout(replace(source, heldout_share=1e-11), reports["train"], ReadReport())
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
def test_a_held_out_part_that_took_all_is_said(tmp_path):
    (tmp_path / "a.txt").write_text("one\none\n")
    source = TextFiles((f"{tmp_path}/a.txt",), heldout_share=0.9999)
    with pytest.raises(BadInputError, match=r"all 2 documents are one and the same text, .*heldout-share 0"):
        parts(source)
    (tmp_path / "a.txt").write_text("one\ntwo\n")
    with pytest.raises(BadInputError, match=r"took all 2 documents\. Lower --task\.source\.heldout-share"):
        parts(source)
    (tmp_path / "a.tsv").write_text("one\tx\none\ty\n")
    pairs = PairFiles((f"{tmp_path}/a.tsv",), inputs="0", targets="1", heldout_share=0.9999)
    with pytest.raises(BadInputError, match="all 2 pairs have one and the same inputs"):
        parts(pairs)


@pytest.mark.short
def test_files_that_cannot_be_read_are_skipped_and_counted_in_every_part(tmp_path):
    for name in ("a.txt", "dev.txt"):
        (tmp_path / name).write_text(f"{name}\n")
    (tmp_path / "broken.txt").symlink_to("absent")
    (tmp_path / "empty.txt").write_text("")
    absent = f"{tmp_path}/*.csv"
    apart = TextFiles((f"{tmp_path}/*.txt", absent), (f"{tmp_path}/dev.txt", absent), errors="skip")
    for source in (apart, replace(apart, heldout_files=(), heldout_share=0.1)):
        examples, reports = parts(source)
        assert sum(map(len, examples.values())) == 2
        assert reports["train"].skipped == {"broken link": 1, "nothing found": 1, "empty file": 1}
        assert reports["heldout"].skipped == ({"nothing found": 1} if source.heldout_files else {})
        assert source_fingerprint(source) and source_bytes(source, ("train", "heldout"))
        with pytest.raises(BadInputError, match=r"(no file matches|is a link).*--errors skip"):
            parts(replace(source, errors="strict"))


def note_of(reports) -> str:
    assert "held-out share" not in reports["train"].notes
    return reports["heldout"].notes.get("held-out share", "")


@pytest.mark.short
def test_a_held_out_part_that_is_another_share_of_the_text_is_said(tmp_path):
    novels = [f"{number}\n" * (400 if number == 17 else 20) for number in range(30)]
    for number, novel in enumerate(novels):
        (tmp_path / f"{number:02}.txt").write_text(novel)
    source = TextFiles((f"{tmp_path}/*.txt",), heldout_share=0.1, unit="document")
    found, reports = parts(source)
    of_text = reports["heldout"].bytes / sum(report.bytes for report in reports.values())
    assert len(found["heldout"]) == 2 and 0.03 < of_text < 0.05
    said = note_of(reports)
    assert said.startswith(f"{100 * of_text:.3g}% of the text is held out; 10% was asked for, a share of the documents")
    assert (
        "--task.source.heldout-share" in said
        and "--task.source.unit line" in said
        and said in reports["heldout"].describe()
    )
    (tmp_path / "17.txt").write_text("17\n" * 20)
    assert not note_of(parts(source)[1]), "2 of 30 documents of one length are no less than half of 10%"


@pytest.mark.short
def test_one_document_held_out_of_few_is_said(tmp_path):
    (tmp_path / "a.txt").write_text("one\ntwo\nthree\n")
    _, reports = parts(TextFiles((f"{tmp_path}/a.txt",)))
    said = note_of(reports)
    assert "none of the 3 documents fell into the share of 1%" in said and "% of the text is held out" in said
    assert "--task.source.unit" not in said, "they are lines already"


@pytest.mark.short
def test_a_held_out_part_as_asked_for_needs_no_words(tmp_path):
    for source in sources(tmp_path):
        assert not note_of(parts(source)[1])
    (tmp_path / "a.txt").write_text("one\n")
    for share in (0.01, 0.0):
        assert not note_of(parts(TextFiles((f"{tmp_path}/a.txt",), heldout_share=share))[1])


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
