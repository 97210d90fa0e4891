import pytest

from spanloom.tasks.array_records import read_array_records
from spanloom.tasks.read_report import BadInputError, Intake, ReadReport

pytestmark = pytest.mark.short

PAYLOADS = [f"record {n} ".encode() * 40 for n in range(600)]


@pytest.fixture
def path(tmp_path):
    module = pytest.importorskip("array_record.python.array_record_module")
    path = str(tmp_path / "a.array_record")
    writer = module.ArrayRecordWriter(path, "group_size:1")
    for payload in PAYLOADS:
        writer.write(payload)
    writer.close()
    return path


def read(path, errors="strict", *bounds):
    intake = Intake(ReadReport(), errors)
    with intake.file_errors():
        return [one for batch in read_array_records(path, intake, *bounds) for one in batch], intake.report
    return [], intake.report


def damaged(path, place):
    with open(path, "r+b") as file:
        file.seek(place)
        byte = file.read(1)[0]
        file.seek(place)
        file.write(bytes([byte ^ 1]))


def test_records_come_in_order(path):
    records, report = read(path)
    assert [bytes(payload) for _, payload in records] == PAYLOADS
    assert records[300][0] == f"{path}: record 300"
    assert report.files == 1 and report.file_bytes > sum(map(len, PAYLOADS)) / 10
    assert [bytes(payload) for _, payload in read(path, "strict", 250, 260)[0]] == PAYLOADS[250:260]


def test_damage_names_the_record_or_is_counted(path):
    damaged(path, 300)
    with pytest.raises(BadInputError, match=r"a\.array_record: record \d+: Corrupted Riegeli"):
        read(path)
    records, report = read(path, "skip")
    lost = report.skipped["damaged record"]
    assert 0 < lost < 10 and len(records) == 600 - lost
    assert {bytes(payload) for _, payload in records} < set(PAYLOADS)


@pytest.mark.parametrize("keep", [1, 100, -100])
def test_a_file_that_is_cut_off(path, keep):
    with open(path, "rb") as file:
        data = file.read()
    with open(path, "wb") as file:
        file.write(data[:keep])
    with pytest.raises(BadInputError, match="no ArrayRecord file, or it is damaged or cut off"):
        read(path)
    records, report = read(path, "skip")
    assert records == [] and report.skipped == {"damaged ArrayRecord file": 1}


def test_absent_and_remote_files(tmp_path):
    with pytest.raises(BadInputError, match="cannot be opened: No such file"):
        read(str(tmp_path / "none.array_record"))
    with pytest.raises(BadInputError, match="read from local disks only"):
        read("s3://bucket/a.array_record")
