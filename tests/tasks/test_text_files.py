"""Text files through the front door, `read_examples`: content, order and bad input."""

import bz2
import gzip
import json
import random
import re
from itertools import islice

import pytest
from peak_memory import peak_growth

from spanloom.settings.task import TextFiles
from spanloom.tasks import encodings
from spanloom.tasks.read_report import BadInputError, Intake, ReadReport
from spanloom.tasks.sources import read_examples
from spanloom.tasks.text_lines import TextFile

ODD = "Zwölf Boxkämpfer\n\n  indented, kept  \nnul \0 kept\nform\x0cfeed \x85 \u2028 are no line ends\nlast"
ODD_LINES = [
    "Zwölf Boxkämpfer",
    "  indented, kept  ",
    "nul \0 kept",
    "form\x0cfeed \x85 \u2028 are no line ends",
    "last",
]


def read(path, split="train", report=None, **settings):
    settings = {"heldout_share": 0.0, **settings}
    source = TextFiles(files=(str(path),), **settings)
    return [example["text"] for example in read_examples(source, split, report or ReadReport())]


def write(path, data):
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return path


@pytest.mark.short
def test_lines_are_documents_and_empty_ones_are_counted(tmp_path):
    report = ReadReport()
    assert read(write(tmp_path / "a.txt", ODD), report=report) == ODD_LINES
    assert report.documents == 5 and report.skipped == {"empty": 1}
    assert report.nul_characters == 1 and "kept: 1 NUL character" in report.describe()
    assert report.bytes == sum(len(line.encode()) for line in ODD_LINES)


@pytest.mark.short
@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("bom", [b"", b"\xef\xbb\xbf"])
def test_line_ends_and_marks_are_no_text(tmp_path, end, bom):
    path = write(tmp_path / "a.txt", bom + f"one{end}two{end}".encode())
    assert read(path) == ["one", "two"]
    assert read(path, unit="document") == ["one\ntwo\n"]


def test_a_lone_carriage_return_is_text(tmp_path):
    assert read(write(tmp_path / "a.txt", "a\rb\nc\r")) == ["a\rb", "c\r"]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64, 5000])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-32-be", "cp037", "shift_jis"])
def test_block_sizes_never_matter(tmp_path, size, encoding):
    rng = random.Random(3)
    letters = "ab \r\nカ" if encoding == "shift_jis" else "ab \r\n" if encoding == "cp037" else "ab \r\nŁ\U0001f600"
    text = "".join(rng.choice(letters) for _ in range(6000))
    path = write(tmp_path / "a.txt", text.encode(encoding))
    for errors in ("strict", "skip", "replace"):
        intake = Intake(ReadReport(), errors, encoding)
        blocks = list(TextFile(str(path), intake, size).line_blocks())
        lines = [line for block in blocks for line in block.lines()]
        expected = text.replace("\r\n", "\n").split("\n")
        expected = expected if expected[-1] else expected[:-1]
        name = encoding if encoding in ("utf-8", "shift_jis") else "utf-8"
        assert [line.decode(name) for line in lines] == expected
        numbers = [number for block in blocks for number, _ in islice(block.places(), block.count)]
        assert numbers == list(range(1, len(lines) + 1))


def test_a_document_a_file(tmp_path):
    for name in "cab":
        write(tmp_path / f"{name}.txt", f"{name}\n\n{name}\n")
    write(tmp_path / "blank.txt", "\n \n")
    report = ReadReport()
    assert read(tmp_path / "*.txt", report=report, unit="document") == ["a\n\na\n", "b\n\nb\n", "c\n\nc\n"]
    assert report.skipped == {"empty": 1} and report.files == 4


@pytest.mark.short
@pytest.mark.parametrize("ending", ["", ".gz"])
def test_undecodable_bytes_are_named_with_line_and_byte(tmp_path, ending):
    data = b"first\n\ngr\xc3\xbcn\r\ngr\xfcn\nlast\n"
    path = write(tmp_path / f"a.txt{ending}", gzip.compress(data) if ending else data)
    got: list[str] = []
    what = "decompressed text" if ending else "file"
    with pytest.raises(BadInputError) as failure:
        got.extend(e["text"] for e in read_examples(TextFiles((str(path),), heldout_share=0), "train", ReadReport()))
    assert got == ["first", "grün"], "what stands before the bad line is given out"
    message = str(failure.value)
    assert f"{path}:4: invalid utf-8 at byte 16 of the {what}: fc" in message
    assert data[16] == 0xFC
    assert "the file mixes encodings (this line may be cp1252)" in message
    assert "--errors replace" in message and "--errors skip" in message


def test_a_file_in_another_encoding_gets_that_advice(tmp_path):
    path = write(tmp_path / "a.txt", "naïve “quotes”\n".encode("cp1252"))
    with pytest.raises(BadInputError, match="This looks like cp1252: --encoding cp1252; or --errors replace"):
        read(path)
    assert read(path, encoding="cp1252") == ["naïve “quotes”"]
    write(path, b"\x89PNG\x0d\x00\x00\x01\x02\x03\x04\xff")
    with pytest.raises(BadInputError, match="does not look like text at all"):
        read(path)
    write(path, b"ok \x81\n")
    with pytest.raises(BadInputError, match="looks like latin-1"):
        read(path)


@pytest.mark.parametrize("unit", ["line", "document"])
def test_undecodable_bytes_replaced_and_skipped(tmp_path, unit):
    path = write(tmp_path / "a.txt", b"first\nb\xffd \xef\xbf\xbd \xc3\nlast\n")
    report = ReadReport()
    texts = read(path, report=report, errors="replace", unit=unit)
    expected = "first\nb\ufffdd \ufffd \ufffd\nlast\n"
    assert texts == ([expected] if unit == "document" else expected.split("\n")[:-1])
    assert report.replaced == 2, "the file's own U+FFFD is no mending"
    assert "replaced: 2 undecodable places by U+FFFD" in report.describe()
    assert f"{path}:2" in report.messages[0]
    write(tmp_path / "b.txt", "good")
    report = ReadReport()
    texts = read(tmp_path / "*.txt", report=report, errors="skip", unit=unit)
    assert texts == (["good"] if unit == "document" else ["first", "last", "good"])
    assert report.skipped == {"undecodable": 1} and f"{path}:2" in report.messages[0]


def test_only_the_first_skips_are_named(tmp_path):
    path = write(tmp_path / "a.txt", b"\xff\n" * 1000 + b"good\n")
    report = ReadReport()
    assert read(path, report=report, errors="skip") == ["good"]
    assert report.skipped == {"undecodable": 1000} and len(report.messages) == 5


@pytest.mark.parametrize(("bom_of", "encoding"), [("utf-16", "utf-16"), ("utf-32", "utf-32")])
def test_wide_encodings(tmp_path, bom_of, encoding):
    path = write(tmp_path / "a.txt", "Łódź\r\n\nx\U0001f600\n".encode(bom_of))
    assert read(path, encoding=encoding) == ["Łódź", "x\U0001f600"]
    for errors in ("strict", "replace"):
        with pytest.raises(BadInputError, match=f"byte-order mark of {encoding}, .* Say --encoding {encoding}"):
            read(path, errors=errors)
    report = ReadReport()
    write(tmp_path / "b.txt", "good")
    assert read(tmp_path / "*.txt", report=report, errors="skip") == ["good"]
    assert report.skipped == {"other encoding": 1}


def test_utf_16_without_a_mark_is_recognised(tmp_path):
    for encoding in ("utf-16-le", "utf-16-be"):
        path = write(tmp_path / "a.txt", "Plain English text\n".encode(encoding))
        with pytest.raises(BadInputError, match=f"looks like {encoding} without.*--encoding {encoding}"):
            read(path)
        assert read(path, encoding=encoding) == ["Plain English text"]


@pytest.mark.parametrize("text", ["Plain English text\n" * 9, "Съешь же ещё этих мягких булок\n" * 9])
@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"])
def test_wide_text_is_never_taken_for_narrow(tmp_path, text, encoding):
    path = write(tmp_path / "a.txt", text.encode(encoding))
    family = encoding[:6]
    for errors in ("strict", "replace"):
        with pytest.raises(BadInputError, match=f"looks like {encoding} without.*Say --encoding {encoding}"):
            read(path, errors=errors)
    with pytest.raises(BadInputError, match=f"has no byte-order mark, which {family} needs. Say --encoding {encoding}"):
        read(path, encoding=family)
    assert read(path, encoding=encoding) == text.splitlines()


def test_narrow_text_is_never_taken_for_wide(tmp_path):
    path = write(tmp_path / "a.txt", "Plain English text\n" * 9)
    for encoding in ("utf-16", "utf-16-le", "utf-16-be", "utf-32"):
        with pytest.raises(BadInputError, match=f"is no {encoding}: it begins in plain ASCII. Say --encoding utf-8"):
            read(path, encoding=encoding)
    write(path, "Käse und Brötchen\n" * 9)
    with pytest.raises(BadInputError, match=r"has no byte-order mark.*Say --encoding utf-16-le, or utf-16-be"):
        read(path, encoding="utf-16")
    text = "\0".join(["a field", "another one", "x"] * 30)
    assert read(write(path, text)) == [text], "NULs between fields are text"


@pytest.mark.short
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "cp037"])
def test_line_ends_of_old_macs(tmp_path, encoding):
    for name, data, texts in (
        ("a.txt", "one\r\rtwo\r", ["one", "two"]),
        ("a.jsonl", '{"text": "one"}\r{"text": "two"}\r', ["one", "two"]),
        ("a.csv", 'text,n\r"one\rmore",1\rtwo,2', ["one\nmore", "two"]),
        ("a.tsv", "text\tn\rone\t1\rtwo\t2\r", ["one", "two"]),
    ):
        report = ReadReport()
        assert read(write(tmp_path / name, data.encode(encoding)), encoding=encoding, report=report) == texts
        assert f"{name}: lines end in CR alone" in report.describe()
    path = tmp_path / "a.txt"
    assert read(path, encoding=encoding, unit="document") == ["one\n\ntwo\n"]


def test_a_carriage_return_at_the_edge_of_what_is_looked_at_may_be_half_a_line_end(tmp_path):
    line = "x" * (encodings.HEAD - 1)
    assert read(write(tmp_path / "a.txt", f"{line}\r\na\rb\r\n")) == [line, "a\rb"]


def test_a_file_compressed_twice_is_said_to_be(tmp_path):
    inner = gzip.compress(b"text\n")
    for name, data in (("a.txt.gz", gzip.compress(inner)), ("a.txt.bz2", bz2.compress(inner))):
        kind = {"gz": "gzip", "z2": "bzip2"}[name[-2:]]
        with pytest.raises(BadInputError, match=f"is compressed twice: gzip inside of {kind}. Unpack it once"):
            read(write(tmp_path / name, data))
        with pytest.raises(BadInputError, match="1 compressed twice"):
            read(tmp_path / name, errors="skip")


def test_damage_in_wide_encodings(tmp_path):
    data = "one\nt".encode("utf-16-le") + b"\x00\xd8" + "wo\nthree\n".encode("utf-16-le")
    path = write(tmp_path / "a.txt", data)
    with pytest.raises(BadInputError, match=r"a\.txt:2: invalid utf-16-le at byte 10: 00 d8 .*--errors replace"):
        read(path, encoding="utf-16-le")
    report = ReadReport()
    assert read(path, encoding="utf-16-le", errors="skip", report=report) == ["one", "three"]
    assert report.skipped == {"undecodable": 1}
    assert "a.txt:2: invalid utf-16-le at byte 10: 00 d8 (illegal UTF-16 surrogate)" in report.messages[0]
    report = ReadReport()
    assert read(path, encoding="utf-16-le", errors="replace", report=report) == ["one", "t\ufffdwo", "three"]
    assert report.replaced == 1
    write(path, "odd".encode("utf-16-le") + b"x")
    with pytest.raises(BadInputError, match=r"at byte 6: 78 \(truncated data\)"):
        read(path, encoding="utf-16-le")


def test_two_bad_lines_of_a_wide_encoding_are_each_named(tmp_path):
    bad = b"\x00\xd8"
    data = b"".join([line.encode("utf-16-le") + bad + "\n".encode("utf-16-le") for line in ("a", "bb")])
    write(tmp_path / "a.txt", data + bad + bad + "c\nend\n".encode("utf-16-le"))
    for unit, texts, places in (("line", ["end"], (2, 10, 14)), ("document", [], (2,))):
        report = ReadReport()
        write(tmp_path / "b.txt", "good\n".encode("utf-16-le"))
        good = "good\n" if unit == "document" else "good"
        read_texts = read(tmp_path / "*.txt", report=report, encoding="utf-16-le", errors="skip", unit=unit)
        assert read_texts == [*texts, good]
        for line, (place, said) in enumerate(zip(places, report.messages, strict=True), 1):
            assert f"a.txt:{line}: invalid utf-16-le at byte {place}: 00 d8" in said


def test_a_utf8_mark_under_another_encoding_is_refused(tmp_path):
    path = write(tmp_path / "a.txt", "\ufefftext")
    with pytest.raises(BadInputError, match="Say --encoding utf-8"):
        read(path, encoding="cp1252")


def test_unknown_encodings_name_the_nearest(tmp_path):
    path = write(tmp_path / "a.txt", "x")
    with pytest.raises(BadInputError, match=r"'utf-88' is no text encoding.*did you mean 'utf-8'"):
        read(path, encoding="utf-88")
    with pytest.raises(BadInputError, match="no text encoding"):
        read(path, encoding="hex")


def test_truncated_gzip(tmp_path):
    lines = [f"{random.Random(n).getrandbits(128):x}" for n in range(20_000)]
    packed = gzip.compress("\n".join(lines).encode())
    path = write(tmp_path / "a.txt.gz", packed[: len(packed) // 2])
    write(tmp_path / "b.txt", "good")
    for errors in ("strict", "replace"):
        with pytest.raises(
            BadInputError, match=r"a\.txt\.gz: the gzip data ends early.*Get the file again; or --errors skip"
        ):
            read(path, errors=errors)
    report = ReadReport()
    texts = read(tmp_path / "*.*", errors="skip", report=report)
    assert texts[-1] == "good" and texts[:-1] == lines[: len(texts) - 1] and 5000 < len(texts) < 15_000
    assert report.skipped == {"damaged compressed file": 1} and "ends early" in report.describe()
    assert read(tmp_path / "*.*", errors="skip", unit="document") == ["good"]


def test_a_short_truncated_file_gives_its_whole_lines(tmp_path):
    path = write(tmp_path / "a.txt.gz", gzip.compress(b"one\ntwo\nthr")[:-8])
    assert read(path, errors="skip") == ["one", "two"]
    with pytest.raises(BadInputError, match="ends early"):
        read(path)


def test_empty_files(tmp_path):
    path = write(tmp_path / "a.txt", "")
    with pytest.raises(BadInputError, match=r"no document to train on in 1 file: 1 empty file; skipped .*a\.txt"):
        read(path, errors="skip")
    write(tmp_path / "b.txt", "text\n")
    for errors in ("strict", "replace"):
        with pytest.raises(
            BadInputError, match=r"a\.txt: the file is empty.*--errors skip leaves it out and counts it"
        ):
            read(tmp_path / "*.txt", errors=errors)
    report = ReadReport()
    assert read(tmp_path / "*.txt", report=report, errors="skip") == ["text"]
    assert report.skipped == {"empty file": 1} and report.files == 2
    with pytest.raises(BadInputError, match="no document to train on in 1 file: 2 empty"):
        read(write(tmp_path / "a.txt", "\n \n"))


def test_parquet_or_unknown_content_under_a_text_name(tmp_path):
    with pytest.raises(BadInputError, match=r"is a parquet file by its first bytes.*--format parquet"):
        read(write(tmp_path / "a.txt", b"PAR1xxxx"))
    with pytest.raises(BadInputError, match="does not tell the format"):
        read(write(tmp_path / "a.md", "x"))
    assert read(tmp_path / "a.md", format="txt") == ["x"]


def test_a_line_of_200_mb(tmp_path):
    path = tmp_path / "a.txt"
    with path.open("wb") as file:
        file.write(b"short\n")
        for _ in range(200):
            file.write(b"0123456789" * 100_000)
        file.write(b"\nshort\n")
    prepare = """if True:
        from spanloom.settings.task import TextFiles
        from spanloom.tasks.read_report import ReadReport
        from spanloom.tasks.sources import read_examples
        source = TextFiles((sys.argv[3],), heldout_share=0)
    """
    code = "assert [len(one['text']) for one in read_examples(source, 'train', ReadReport())] == [5, 200_000_000, 5]"
    assert 190 < peak_growth(prepare, code, str(path)) < 5 * 191


def test_splits_are_disjoint_everything_and_the_same_on_every_pass(tmp_path):
    write(tmp_path / "a.txt", "".join(f"a{n}\n" for n in range(700)))
    with gzip.open(tmp_path / "b.jsonl.gz", "wt") as file:
        file.writelines(json.dumps({"text": f"b{n}"}) + "\n" for n in range(300))
    everything = read(tmp_path / "*")
    for share in (0.01, 0.1, 0.5):
        train, heldout = (read(tmp_path / "*", split, heldout_share=share) for split in ("train", "heldout"))
        assert heldout == read(tmp_path / "*", "heldout", heldout_share=share)
        assert not set(train) & set(heldout) and sorted(train + heldout) == sorted(everything)
        assert abs(len(heldout) - 1000 * share) <= 3 * (1000 * share * (1 - share)) ** 0.5
        assert [text for text in everything if text in set(train)] == train


def test_bad_lines_do_not_move_the_split(tmp_path):
    lines = [f"line {n}".encode() for n in range(500)]
    held = read(write(tmp_path / "a.txt", b"\n".join(lines)), "heldout", heldout_share=0.1)
    lines[3], lines[100] = b"\xff", b""
    path = write(tmp_path / "a.txt", b"\n".join(lines))
    assert read(path, "heldout", heldout_share=0.1, errors="skip") == [
        text for text in held if text not in ("line 3", "line 100")
    ]


def test_heldout_files_are_never_trained_on(tmp_path):
    write(tmp_path / "a.txt", "a\n")
    write(tmp_path / "dev.txt", "dev\n")
    report = ReadReport()
    settings = {"heldout_files": (f"{tmp_path}/d*.txt",), "heldout_share": 0.5}
    assert read(tmp_path / "*.txt", report=report, **settings) == ["a"]
    assert "1 of the files are held-out files too: not trained on" in report.describe()
    assert read(tmp_path / "*.txt", "heldout", **settings) == ["dev"]
    with pytest.raises(BadInputError, match="all of them are held-out files"):
        read(tmp_path / "dev.txt", **settings)


def test_an_unknown_encoding_is_never_skipped_and_no_codec_is_proposed_that_was_refused(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"text\n")
    for name in ("utf-88", "rot13", "base64", "hex", "punycode", "idna", "undefined", "unicode_escape", "a\0b", ""):
        with pytest.raises(BadInputError, match="no text encoding") as caught:
            list(
                read_examples(
                    TextFiles((str(path),), encoding=name, errors="skip", heldout_share=0), "train", ReadReport()
                )
            )
        assert "--errors" not in str(caught.value)
        if proposed := re.search("did you mean '(.*)'", str(caught.value)):
            assert encodings.codec_name(proposed[1]), "what is proposed is none of those that are refused"
