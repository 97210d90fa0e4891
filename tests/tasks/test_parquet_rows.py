import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spanloom.settings.task import PairFiles, TextFiles
from spanloom.tasks.read_report import BadInputError, ReadReport
from spanloom.tasks.sources import read_examples


def read(path, report=None, **settings):
    source = TextFiles(files=(str(path),), **{"heldout_share": 0.0, **settings})
    return [example["text"] for example in read_examples(source, "train", report or ReadReport())]


@pytest.fixture
def path(tmp_path):
    table = {
        "text": [f"row {n}" for n in range(5000)],
        "other": pa.array([None] + ["x"] * 4999).dictionary_encode(),
        "large": pa.array(["L"] * 5000, pa.large_string()),
        "translation": [{"de": f"d{n}", "en": f"e{n}"} for n in range(5000)],
        "n": list(range(5000)),
    }
    pq.write_table(pa.table(table), tmp_path / "a.parquet", row_group_size=700)
    return tmp_path / "a.parquet"


@pytest.mark.short
def test_columns_fields_and_templates(path):
    assert read(path) == [f"row {n}" for n in range(5000)]
    assert read(path, field="translation.en")[4999] == "e4999"
    assert read(path, field="{n} {large} {translation.de}")[10] == "10 L d10"
    pairs = PairFiles(files=(str(path),), inputs="translation.de", targets="translation.en", heldout_share=0.0)
    assert next(read_examples(pairs, "train", ReadReport())) == {"inputs": "d0", "targets": "e0"}


def test_split(path):
    source = TextFiles(files=(str(path),), heldout_share=0.1)
    parts = [[e["text"] for e in read_examples(source, split, ReadReport())] for split in ("train", "heldout")]
    assert sorted(parts[0] + parts[1]) == sorted(read(path)) and len(parts[1]) == 479  # by their hashes


@pytest.mark.short
def test_columns_that_give_no_text(path):
    with pytest.raises(BadInputError, match=r"a\.parquet: no column 'texts'; the columns are 'text'.*mean 'text'"):
        read(path, field="texts")
    with pytest.raises(BadInputError, match=r"a\.parquet:1: field 'n' is a number"):
        read(path, field="n")
    with pytest.raises(BadInputError, match=r"a\.parquet:1: field 'other' is null"):
        read(path, field="other")
    report = ReadReport()
    assert len(read(path, report, field="other", errors="skip")) == 4999
    assert report.skipped == {"field 'other' is null": 1}
    with pytest.raises(BadInputError, match=r"no field 'translation.fr'; the fields are 'translation.de'"):
        read(path, field="translation.fr")


def test_files_that_are_not_whole(path):
    data = path.read_bytes()
    for cut in (len(data) // 2, 6):
        path.write_bytes(data[:cut])
        with pytest.raises(BadInputError, match=r"a\.parquet: the parquet file is damaged or cut off"):
            read(path)
    (path.parent / "b.txt").write_text("good")
    report = ReadReport()
    assert read(path.parent / "*.*", report, errors="skip") == ["good"]
    assert report.skipped == {"damaged parquet file": 1}
    path.write_bytes(b"no parquet at all, but long enough to be read")
    with pytest.raises(BadInputError, match="damaged or cut off"):
        read(path)
    path.write_bytes(b"")
    with pytest.raises(BadInputError, match=r"a\.parquet: the file is empty.*--errors skip"):
        read(path)
    with pytest.raises(BadInputError, match=r"no document to train on.*1 empty file"):
        read(path, errors="skip")


@pytest.mark.short
def test_tables_that_give_no_text(tmp_path):
    path = tmp_path / "a.parquet"
    two = pa.table([pa.array(["a"]), pa.array(["b"])], names=["text", "text"])
    pq.write_table(two, path)
    with pytest.raises(BadInputError, match=r"2 columns are named 'text'\. Rename all but one"):
        read(path)
    pq.write_table(pa.table({"text": pa.array([], pa.string())}), path)
    with pytest.raises(BadInputError, match="no document to train on in 1 file: it holds no rows"):
        read(path, heldout_share=0.1)
    for values, said in (
        (pa.array([b"x"]), "of type bytes.*column.cast"),
        (pa.array([["x", "y"]]), "a list.*'text.0'"),
    ):
        pq.write_table(pa.table({"text": values}), path)
        with pytest.raises(BadInputError, match=f"field 'text' is {said}"):
            read(path)
    assert read(path, field="text.0") == ["x"]


def test_text_that_is_not_utf8(tmp_path):
    raw = pa.array([b"good", b"b\xffd"], pa.binary())
    table = pa.table({"text": pa.Array.from_buffers(pa.string(), 2, raw.buffers())})
    path = tmp_path / "a.parquet"
    pq.write_table(table, path)
    with pytest.raises(BadInputError, match=r"a\.parquet: row 2: invalid utf-8 at byte 1 of the cell: ff"):
        read(path)
    assert read(path, errors="replace") == ["good", "b\ufffdd"]
    assert read(path, errors="skip") == ["good"]
