import pytest

from spanloom.tasks import documents
from spanloom.tasks.documents import render_all
from spanloom.tasks.read_report import BadInputError, Intake, ReadReport
from spanloom.tasks.templates import parse

pytestmark = pytest.mark.short
PAIR = {"inputs": parse("{a}: {b}"), "targets": parse("c")}


def render(rows, templates=PAIR, errors="strict"):
    intake = Intake(ReadReport(), errors)
    return [*render_all(enumerate(rows, 1), templates, "a.jsonl", intake)], intake.report


def test_texts_of_all_fields_stay_side_by_side():
    rows = [{"a": number, "b": "é", "c": f"{number}"} for number in range(3)]
    assert render(rows) == (
        [{"inputs": ["0: é".encode(), "1: é".encode(), "2: é".encode()], "targets": [b"0", b"1", b"2"]}],
        ReadReport(),
    )
    assert render([]) == ([], ReadReport())


def test_batches_end_by_rows_or_bytes(monkeypatch):
    rows = [{"a": 1, "b": "x" * 10, "c": "y"}] * 7
    monkeypatch.setattr(documents, "_BATCH_ROWS", 3)
    assert [len(batch["inputs"]) for batch in render(rows)[0]] == [3, 3, 1]
    monkeypatch.setattr(documents, "_BATCH_BYTES", 20)
    assert [len(batch["inputs"]) for batch in render(rows)[0]] == [2, 2, 2, 1]


def test_rows_without_text_are_refused_by_number():
    rows = [{"a": 1, "b": "x", "c": "y"}, {"a": 1, "b": "x"}, {"a": 1, "b": "x", "c": "\ud800"}]
    with pytest.raises(BadInputError, match=r"a\.jsonl:2: no field 'c'"):
        render(rows)
    with pytest.raises(BadInputError, match=r"a\.jsonl:2: half a character"):
        render([rows[0], rows[2]])
    found, report = render(rows, errors="skip")
    assert found == [{"inputs": [b"1: x"], "targets": [b"y"]}]
    assert report.skipped == {"missing field 'c'": 1, "undecodable": 1}
