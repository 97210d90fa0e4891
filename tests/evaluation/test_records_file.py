import json

import pytest

from spanloom.evaluation.records_file import RecordsError, RecordsFile
from spanloom.pipeline.share import BuildShare

pytestmark = pytest.mark.short
ALONE = BuildShare(0, 1)
RECORDS = [{"example": number, "inputs": f"é\u2028 {number}", "scores": [-0.1 * number]} for number in range(7)]


def file_in(folder, key="k", examples=7):
    return RecordsFile(folder / "a" / "task.jsonl", key, range(examples))


def test_what_is_read_was_written_whole_under_that_key(tmp_path):
    file = file_in(tmp_path)
    assert file.read() is None and not file.has(ALONE)
    file.write(RECORDS, ALONE)
    assert file.read() == file.together(1) == RECORDS and file.has(ALONE)
    assert file_in(tmp_path, "other").read() is None
    content = file.path.read_bytes()
    for damaged in (content[:-1], content[: content.rfind(b"{")], content.replace(b"-0.1", b"-0.2"), b""):
        file.path.write_bytes(damaged)
        assert file.read() is None
    file.path.write_bytes(content)
    note = file.path.with_name("task.jsonl.by.json")
    for text in ("", "[]", "{}", '{"key": "k"}', note.read_text()[:-3]):
        kept = note.read_text()
        note.write_text(text)
        assert file.read() is None
        note.write_text(kept)
    assert file.read() == RECORDS


def test_a_kill_between_records_and_note_leaves_nothing_whole(tmp_path):
    file = file_in(tmp_path)
    file.write(RECORDS[:3], ALONE)
    file.path.write_bytes(b"".join(json.dumps(one).encode() + b"\n" for one in RECORDS))
    assert file.read() is None


def test_the_last_job_puts_shares_together(tmp_path):
    file = file_in(tmp_path)
    for index in (2, 0):
        file.write(RECORDS[index::3], BuildShare(index, 3))
        assert file.has(BuildShare(index, 3)) and file.together(3) is None
    other = file_in(tmp_path, "other")
    other.write(RECORDS[1::3], BuildShare(1, 3))
    assert file.together(3) is None, "a share of other settings"
    file.write(RECORDS[1::3], BuildShare(1, 3))
    assert file.together(3) == RECORDS == file.read() == file.together(3) == file.together(5)
    assert not list(file.path.parent.glob("*-of-*"))


@pytest.mark.parametrize(
    ("shares", "said"),
    [
        ((RECORDS[:4], RECORDS[3:]), "example 3 is there twice: delete .*task.jsonl.*-of-.* and give the jobs'"),
        ((RECORDS[:4], RECORDS[5:]), "of 7 6 are there"),
    ],
)
def test_shares_that_make_no_whole_are_refused(tmp_path, shares, said):
    file = file_in(tmp_path)
    for index, records in enumerate(shares):
        file.write(records, BuildShare(index, 2))
    with pytest.raises(RecordsError, match=said):
        file.together(2)
    assert file.read() is None
