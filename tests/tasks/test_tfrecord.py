from contextlib import suppress

import pytest
from golden_data import golden_dir
from hypothesis import given, settings
from hypothesis import strategies as st
from tfrecord_files import flip_bit, golden_rows, write_records

from spanloom.tasks import tfrecord
from spanloom.tasks.read_report import BadInputError, Intake, ReadReport

PAYLOADS = [bytes([n]) * length for n, length in enumerate([3, 0, 40, 1, 500, 33])]


def read(path, errors="strict", first=0, stop=None):
    intake = Intake(ReadReport(), errors)
    records = []
    with intake.file_errors():
        for block in tfrecord.read_records(tfrecord.find_frames(str(path)), intake, first, stop):
            records += block
    return records, intake.report


@pytest.fixture
def path(tmp_path):
    write_records(tmp_path / "a.tfrecord", PAYLOADS)
    return tmp_path / "a.tfrecord"


@pytest.mark.short
def test_records_and_where_they_begin(path):
    records, report = read(path)
    assert [bytes(record.payload) for record in records] == PAYLOADS
    assert [record.offset for record in records] == [0, 19, 35, 91, 108, 624]
    assert report.file_bytes == path.stat().st_size == 673
    path.write_bytes(b"")
    assert read(path)[0] == []


def test_any_run_of_records_in_windows_of_any_size(path, monkeypatch):
    for window in (1, 17, 60, 1000):
        monkeypatch.setattr(tfrecord, "WINDOW", window)
        for first in range(7):
            for stop in range(first, 8):
                assert [bytes(r.payload) for r in read(path, first=first, stop=stop)[0]] == PAYLOADS[first:stop]
    monkeypatch.setattr(tfrecord, "WINDOW", 60)
    frames = tfrecord.find_frames(str(path))
    assert [len(block) for block in tfrecord.read_records(frames, Intake(ReadReport()))] == [2, 1, 1, 1, 1]


@pytest.mark.short
def test_a_damaged_payload_costs_one_record(path):
    flip_bit(path, 8 * (35 + 12 + 5) + 2)
    with pytest.raises(BadInputError, match=r"a\.tfrecord: byte 35: record 2.*checksum.*--errors skip leaves it out"):
        read(path)
    records, report = read(path, "skip")
    assert [bytes(record.payload) for record in records] == PAYLOADS[:2] + PAYLOADS[3:]
    assert report.skipped == {"damaged record": 1}


def test_a_damaged_length_costs_the_rest_of_the_file(path):
    flip_bit(path, 8 * 35)
    with pytest.raises(BadInputError, match=r"byte 35: the length of record 2.*the 638 bytes from here"):
        read(path)
    records, report = read(path, "skip")
    assert [bytes(record.payload) for record in records] == PAYLOADS[:2]
    assert report.skipped == {"damaged tfrecord file": 1}
    assert [bytes(record.payload) for record in read(path, stop=2)[0]] == PAYLOADS[:2]


def test_every_cut_is_noticed_unless_it_is_between_records(path):
    data, begins = path.read_bytes(), [0, 19, 35, 91, 108, 624, 673]
    for size in range(len(data)):
        path.write_bytes(data[:size])
        whole = sum(begin <= size for begin in begins) - 1
        records, report = read(path, "skip")
        assert [bytes(record.payload) for record in records] == PAYLOADS[:whole]
        if size in begins:
            assert not report.skipped
            continue
        with pytest.raises(BadInputError, match=f"byte {begins[whole]}: the file is cut off.*ends at byte {size}"):
            read(path)


@settings(deadline=None, max_examples=150)
@given(payloads=st.lists(st.binary(max_size=50), min_size=1, max_size=5), draw=st.data())
def test_any_single_flipped_bit_is_noticed(tmp_path_factory, payloads, draw):
    path = tmp_path_factory.mktemp("flipped") / "a.tfrecord"
    flip_bit(path, draw.draw(st.integers(0, 8 * len(write_records(path, payloads)) - 1)))
    with pytest.raises(BadInputError, match=r"a\.tfrecord: byte \d+: "):
        read(path)
    records, report = read(path, "skip")
    assert sum(report.skipped.values()) == 1
    assert set(map(bytes, (record.payload for record in records))) <= set(payloads)


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("any") / "a"
    path.write_bytes(data)
    with suppress(BadInputError):
        read(path)
    read(path, "skip")


@pytest.mark.short
def test_files_that_are_something_else(path):
    for content, message in [
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\n", "Git LFS pointer.*git lfs pull"),
        (b"\x1f\x8b" + bytes(60), "begins like a compressed one.*Decompress"),
        (b"plain text that is long enough to have a header", "no TFRecord file"),
    ]:
        path.write_bytes(content)
        with pytest.raises(BadInputError, match=f"byte 0: .*{message}"):
            read(path)
    path.unlink()
    with pytest.raises(BadInputError, match="cannot be opened: No such file"):
        read(path)


@pytest.mark.golden
def test_golden_frames():
    for path, rows in golden_rows(golden_dir("seqio", "cached_task")).items():
        places = [(row["offset"], row["payload_bytes"]) for row in rows]
        assert [(record.offset, len(record.payload)) for record in read(path)[0]] == places
