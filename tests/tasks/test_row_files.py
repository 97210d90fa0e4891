import datetime
import gzip
import json

import pytest
from golden_data import shared_dir

from spanloom.settings.row_sources import RowFiles
from spanloom.tasks.read_report import BadInputError, ReadReport
from spanloom.tasks.row_sources import read_row_source, row_source_bytes, row_source_fingerprint

pytestmark = pytest.mark.short

ROWS = [{"q": f"Frage {n}", "n": n, "deep": {"list": [1.5, None, True]}} for n in range(5)]


def read(source, split="train", report=None):
    return list(read_row_source(source, split, report or ReadReport()))


def write_jsonl(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def test_json_lines_keep_what_they_hold(tmp_path):
    source = RowFiles((write_jsonl(tmp_path / "a.jsonl", ROWS),))
    assert read(source) == ROWS
    assert row_source_bytes(source, ["train", "heldout"]) == (tmp_path / "a.jsonl").stat().st_size


def test_tables_give_every_column(tmp_path):
    (tmp_path / "a.csv").write_text('id,text\n1,"a, ""b"""\n2,c\n')
    (tmp_path / "b.tsv.gz").write_bytes(gzip.compress(b"\tb\nx\ty\n"))
    assert read(RowFiles((f"{tmp_path}/a.csv",))) == [{"id": "1", "text": 'a, "b"'}, {"id": "2", "text": "c"}]
    assert read(RowFiles((f"{tmp_path}/b.tsv.gz",))) == [{"0": "x", "b": "y"}]
    assert read(RowFiles((f"{tmp_path}/b.tsv.gz",), header="no")) == [{"0": "", "1": "b"}, {"0": "x", "1": "y"}]


def test_columns_of_one_name_are_refused(tmp_path):
    (tmp_path / "a.tsv").write_text("x\tx\n1\t2\n")
    with pytest.raises(BadInputError, match=r"2 columns are named 'x'\. Rename all but one, or set the header to 'no'"):
        read(RowFiles((f"{tmp_path}/a.tsv",)))


def test_parquet_gives_every_column_in_row_groups(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    days = [datetime.date(1897, 1, day) for day in range(1, 11)]
    table = pa.table({"a.b": list(range(10)), "day": days, "tags": [["x"] * n for n in range(10)]})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=3)
    rows = read(RowFiles((f"{tmp_path}/a.parquet",)))
    assert rows == [{"a.b": n, "day": days[n], "tags": ["x"] * n} for n in range(10)]


def test_parquet_is_read_in_bounded_memory(tmp_path):
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    with pq.ParquetWriter(tmp_path / "big.parquet", pa.schema([("text", pa.string())])) as writer:
        for group in range(40):
            letters = np.random.default_rng(group).integers(97, 123, 2_000_000, np.uint8).tobytes().decode()
            writer.write_table(pa.table({"text": [letters[n : n + 20_000] for n in range(0, len(letters), 20_000)]}))
    source, most = RowFiles((f"{tmp_path}/big.parquet",)), 0
    before = pa.total_allocated_bytes()
    for _ in read_row_source(source, "train", ReadReport()):
        most = max(most, pa.total_allocated_bytes() - before)
    assert 0 < most < 40_000_000  # of 80 MB


def test_heldout_files_and_bad_rows(tmp_path):
    train, held = write_jsonl(tmp_path / "a.jsonl", ROWS), write_jsonl(tmp_path / "b.jsonl", ROWS[:2])
    source = RowFiles((f"{tmp_path}/*.jsonl",), heldout_files=(held,))
    assert read(source) == ROWS and read(source, "heldout") == ROWS[:2]
    with open(train, "a") as file:
        file.write("{broken\n")
    with pytest.raises(BadInputError, match=r"a\.jsonl:6: broken JSON"):
        read(RowFiles((train,)))
    report = ReadReport()
    assert read(RowFiles((train,), errors="skip"), report=report) == ROWS
    assert report.skipped == {"broken JSON": 1}


def test_nothing_to_read_says_so(tmp_path):
    (tmp_path / "a.tsv").write_text("x\ty\n")
    with pytest.raises(BadInputError, match=r"a\.tsv: no row for training: it is empty"):
        read(RowFiles((f"{tmp_path}/a.tsv",)))
    (tmp_path / "a.txt").write_text("x\n")
    with pytest.raises(BadInputError, match=r"text has no columns\. Say --format tsv"):
        read(RowFiles((f"{tmp_path}/a.txt",)))


def test_the_fingerprint_follows_content_and_settings_but_not_the_folder(tmp_path):
    import shutil

    path = write_jsonl(tmp_path / "a.jsonl", ROWS)
    before = row_source_fingerprint(RowFiles((path,)))
    (tmp_path / "moved").mkdir()
    shutil.copy2(path, tmp_path / "moved")
    assert row_source_fingerprint(RowFiles((f"{tmp_path}/moved/a.jsonl",))) == before
    assert row_source_fingerprint(RowFiles((path,), errors="skip")) != before
    write_jsonl(tmp_path / "a.jsonl", ROWS[:-1])
    assert row_source_fingerprint(RowFiles((path,))) != before


def test_labelled_tables():
    rows = read(RowFiles((str(shared_dir("data", "labelled", "sick", "SICK_train.txt")),), format="tsv"))
    assert len(rows) == 4500 and rows[0]["entailment_judgment"] == "NEUTRAL"
    assert set(rows[0]) == {"pair_ID", "sentence_A", "sentence_B", "relatedness_score", "entailment_judgment"}


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ('"\\ud800"', r"half a character \(lone surrogate \\ud800\)"),
        ("[" * 600 + "]" * 600, "nested too deeply"),
        (str(2**70), "'text' is a whole number of more than 64 bits"),
    ],
)
def test_rows_of_json_that_cannot_be_kept_are_named_or_left_out(tmp_path, value, said):
    path = tmp_path / "a.jsonl"
    path.write_text(f'{{"text": "a"}}\n{{"text": {value}}}\n{{"text": "c"}}\n')
    with pytest.raises(BadInputError, match=rf"a\.jsonl:2: .*{said}.*--errors skip leaves it out"):
        read(RowFiles((str(path),)))
    report = ReadReport()
    assert read(RowFiles((str(path),), errors="skip"), report=report) == [{"text": "a"}, {"text": "c"}]
    assert report.skipped == {"row that cannot be kept": 1}
