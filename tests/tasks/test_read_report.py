import json

import pytest

from spanloom.tasks.read_report import BadInputError, Intake, ReadReport

pytestmark = pytest.mark.short


def test_description_and_round_trip():
    report = ReadReport(documents=1234, bytes=5_600_000, files=1)
    report.skip("empty", count=3)
    for n in range(7):
        report.skip("broken JSON", f"a.jsonl:{n}: why")
        report.note("no header row", f"{n}.tsv: no header row")
    report.replace("b.txt:1: ff", 2)
    assert report.describe().splitlines() == [
        "1,234 documents, 5.60 MB of text from 1 file",
        "skipped: 7 broken JSON, 3 empty",
        "replaced: 2 undecodable places by U+FFFD",
        "note: 0.tsv: no header row (and 6 more like it)",
        *[f"  skipped (broken JSON): a.jsonl:{n}: why" for n in range(5)],
        "  replaced: b.txt:1: ff",
    ]
    assert ReadReport.from_dict(json.loads(json.dumps(report.to_dict()))) == report
    for texts, said in (([b"a"], "1 document, 1 bytes"), ([b"a", b"bc"], "2 documents, 3 bytes")):
        report = ReadReport()
        report.give({"text": texts})
        assert report.describe().startswith(f"{said} of text from 0 files")
    report.give({"inputs": [b"a"], "targets": [b"b"]})
    assert report.describe().startswith("3 pairs, ")
    assert ReadReport().describe() == "0 documents, 0 bytes of text from 0 files"


def test_what_stops_and_what_is_counted():
    error = BadInputError("a.txt:1", "broken", "Mend it.", reason="broken row")
    assert str(error) == "a.txt:1: broken. Mend it."
    for mode in ("strict", "replace"):
        with pytest.raises(BadInputError, match=r"a\.txt:1: broken\. Mend it; or --errors skip leaves it out"):
            Intake(ReadReport(), mode).refuse(error)
    report = ReadReport()
    Intake(report, "skip").refuse(error, count=2)
    assert report.skipped == {"broken row": 2}


def test_file_errors_add_their_advice_once():
    intake = Intake(ReadReport())
    with pytest.raises(BadInputError) as failure, intake.file_errors():
        intake.refuse(BadInputError("a:1", "broken"))
    assert str(failure.value).count("--errors skip") == 1
    with Intake(ReadReport(), "skip").file_errors():
        raise BadInputError("a", "damaged")


def test_sentences_keep_their_own_ends():
    assert str(BadInputError("a", "holds b, ...", "Check it")) == "a: holds b, ... Check it."
    assert str(BadInputError("a", "no c; did you mean 'd'?", "Name it.")) == "a: no c; did you mean 'd'? Name it."
