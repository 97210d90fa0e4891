import csv
import json
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spanloom.settings.task import PairFiles, TextFiles
from spanloom.tasks.blank import is_blank, is_blank_utf8
from spanloom.tasks.read_report import ReadReport
from spanloom.tasks.sources import read_examples

pytestmark = pytest.mark.short

SPACES = [character for character in map(chr, range(sys.maxunicode + 1)) if character.isspace()]
BLANK = ["", " \t ", "\u00a0", "\u3000\u2003 ", "\u0085\u2028\x1c"]
NOT_BLANK = ["\u200b", "\ufeff", "\0", " \u00a0x ", "\u3000\u6c34", "\u200a\u200b"]
FORMATS = ["txt", "jsonl", "csv", "tsv", "parquet"]


def write(path: Path, rows: list[tuple[str, ...]], names: tuple[str, ...]) -> str:
    """A file of any format with these rows; in txt each is a line."""
    columns = dict(zip(names, zip(*rows, strict=True), strict=True))
    if path.suffix == ".parquet":
        pq.write_table(pa.table({name: list(texts) for name, texts in columns.items()}), path)
        return str(path)
    with path.open("w", encoding="utf-8", newline="") as file:
        if path.suffix == ".txt":
            file.writelines(f"{text}\n" for (text,) in rows)
        elif path.suffix == ".jsonl":
            file.writelines(json.dumps(dict(zip(names, row, strict=True))) + "\n" for row in rows)
        elif path.suffix == ".csv":
            csv.writer(file).writerows([names, *rows])
        else:
            file.writelines("\t".join(row) + "\n" for row in (names, *rows))
    return str(path)


def test_both_definitions_are_those_of_unicode():
    for character in map(chr, range(sys.maxunicode + 1)):
        raw = character.encode("utf-8", "surrogatepass")
        assert is_blank(character) == is_blank_utf8(raw) == character.isspace()
    everything = "".join(SPACES)
    assert is_blank(everything) and is_blank_utf8(everything.encode())
    assert all(is_blank(text) and is_blank_utf8(text.encode()) for text in BLANK)
    assert not any(is_blank(text) or is_blank_utf8(text.encode()) for text in NOT_BLANK)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "latin-1"])
@pytest.mark.parametrize("errors", ["strict", "replace"])
def test_lines_of_any_encoding(tmp_path, encoding, errors):
    path = tmp_path / "a.txt"
    path.write_bytes("\u00a0 \n\nx\n \n\u0085\ny\n".encode(encoding))
    report = ReadReport()
    source = TextFiles((str(path),), heldout_share=0, encoding=encoding, errors=errors)
    assert [example["text"] for example in read_examples(source, "train", report)] == ["x", "y"]
    assert report.skipped == {"empty": 4}


def test_lines_beside_undecodable_ones(tmp_path):
    (tmp_path / "a.txt").write_bytes("x\n\u00a0\n \n".encode() + b"\xff\n")
    report = ReadReport()
    source = TextFiles((f"{tmp_path}/a.txt",), heldout_share=0, errors="skip")
    assert [example["text"] for example in read_examples(source, "train", report)] == ["x"]
    assert report.skipped == {"empty": 2, "undecodable": 1}


@pytest.mark.parametrize("kind", FORMATS)
def test_the_same_texts_are_blank_in_every_format(tmp_path, kind):
    blank = [text.replace("\t", " ") for text in BLANK] if kind == "tsv" else BLANK
    path = write(tmp_path / f"a.{kind}", [(text,) for text in (*NOT_BLANK[1:], *blank, NOT_BLANK[0])], ("text",))
    report = ReadReport()
    source = TextFiles((path,), heldout_share=0)
    found = [example["text"] for example in read_examples(source, "train", report)]
    first = [] if kind == "txt" else NOT_BLANK[1:2]  # the first of a text file is its byte-order mark
    assert [text for text in found if text != "\ufeff"] == [*NOT_BLANK[2:], NOT_BLANK[0]]
    assert ("\ufeff" in found) == bool(first)
    assert report.skipped == {"empty": len(BLANK) + (kind == "txt")}


@pytest.mark.parametrize("text", [*BLANK, *NOT_BLANK])
def test_whole_files(tmp_path, text):
    (tmp_path / "a.txt").write_text(f"\n{text}\n", encoding="utf-8", newline="")
    (tmp_path / "b.txt").write_text("something")
    report = ReadReport()
    found = [*read_examples(TextFiles((f"{tmp_path}/*.txt",), heldout_share=0, unit="document"), "train", report)]
    assert len(found) == (1 if text in BLANK else 2)
    assert report.skipped == ({"empty": 1} if text in BLANK else {})


@pytest.mark.parametrize("kind", FORMATS[1:])
@pytest.mark.parametrize("blank", [text for text in BLANK if "\t" not in text])
def test_pairs_with_a_blank_side_are_left_out_in_every_format(tmp_path, kind, blank):
    rows = [("a", "b"), (blank, "b"), ("a", blank), ("c", "d")]
    path = write(tmp_path / f"a.{kind}", rows, ("inputs", "targets"))
    report = ReadReport()
    found = [*read_examples(PairFiles((path,), heldout_share=0), "train", report)]
    assert [example["inputs"] for example in found] == ["a", "c"]
    assert report.skipped == {"empty inputs": 1, "empty targets": 1}
