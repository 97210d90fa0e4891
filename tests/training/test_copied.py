"""A run's copy in a bucket, which fsspec's file system in memory stands for (tests/cli/test_report.py has S3)."""

import json
import uuid
from types import SimpleNamespace

import pytest
from tiny_training import tiny_run

from spanloom.report.metrics import Metrics
from spanloom.report.run_files import RunFiles
from spanloom.settings.run import Logging
from spanloom.settings.serialize import SettingsError
from spanloom.settings.stages import linked
from spanloom.tasks.remote_files import system_of
from spanloom.training import copied
from spanloom.training.copied import Copied, CopyError
from spanloom.training.loggers import MetricsFile
from spanloom.training.trackers import open_loggers

pytestmark = pytest.mark.short


@pytest.fixture
def address(monkeypatch):
    """Of an empty folder; segments have two or three lines."""
    monkeypatch.setattr(copied, "SEGMENT", 100)
    return f"memory://{uuid.uuid4().hex}/runs/a"


def write_lines(directory, first, last, resume=0):
    directory.mkdir(exist_ok=True)
    file = MetricsFile(directory / "metrics.jsonl", resume, clock=lambda: 1.0)
    for step in range(first, last + 1):
        file.write("train", step, {"loss": step / 3 + resume})
    file.close()


def copy(directory, address):
    Copied(directory, address).close()


def there(address):
    """Contents of the objects by name."""
    system, root = system_of(address)
    return {name.removeprefix(f"{root}/"): system.cat_file(name) for name in system.find(root)}


def joined(address):
    return b"".join(body for name, body in sorted(there(address).items()) if name.startswith("metrics/"))


def test_segments_are_whole_lines_and_together_the_file(tmp_path, address):
    write_lines(tmp_path, 1, 10)
    copy(tmp_path, address)
    whole = (tmp_path / "metrics.jsonl").read_bytes()
    parts = {name: body for name, body in there(address).items() if name.startswith("metrics/")}
    assert joined(address) == whole and len(parts) > 3
    for name, body in parts.items():
        assert whole.find(body) == int(name[8:24]) and all(json.loads(line) for line in body.splitlines())


@pytest.mark.parametrize("kept", [0, 1, 2, 3, 7, 11, 12])
def test_a_resume_cuts_the_copy_back_as_it_does_the_file(tmp_path, address, kept):
    write_lines(tmp_path, 1, 12)
    copy(tmp_path, address)
    write_lines(tmp_path, kept + 1, kept + 1, resume=kept)
    copy(tmp_path, address)
    assert joined(address) == (tmp_path / "metrics.jsonl").read_bytes()


def test_only_what_is_new_is_sent(tmp_path, address, monkeypatch):
    sent, put = [], Copied._put

    def noted(self, name, content):
        sent.append(name)
        put(self, name, content)

    monkeypatch.setattr(Copied, "_put", noted)
    write_lines(tmp_path, 1, 12)
    (tmp_path / "run.json").write_text("{}")
    one = Copied(tmp_path, address)
    one.close()
    before, sent[:] = len(sent), []
    one.close()
    assert before > 5 and sent == []
    write_lines(tmp_path, 13, 13, resume=12)
    one.close()
    assert len(sent) == 1 and sent[0].startswith("metrics/")


def test_a_line_that_is_half_written_waits(tmp_path, address):
    write_lines(tmp_path, 1, 3)
    whole = (tmp_path / "metrics.jsonl").read_bytes()
    with (tmp_path / "metrics.jsonl").open("ab") as file:
        file.write(b'{"kind": "tra')
    copy(tmp_path, address)
    assert joined(address) == whole


def test_a_report_reads_segments_and_goes_on_with_them(tmp_path, address):
    write_lines(tmp_path, 1, 5)
    copy(tmp_path, address)
    metrics = Metrics(RunFiles(address))
    assert metrics.refresh() and metrics.curve("train", "loss").steps.tolist() == [1, 2, 3, 4, 5]
    assert not metrics.refresh()
    write_lines(tmp_path, 6, 9, resume=5)
    copy(tmp_path, address)
    assert metrics.refresh() and metrics.last_step == 9 and metrics.damaged == 0
    write_lines(tmp_path, 4, 5, resume=3)
    copy(tmp_path, address)
    assert metrics.refresh() and metrics.curve("train", "loss").values.tolist() == [
        1 / 3,
        2 / 3,
        1,
        4 / 3 + 3,
        5 / 3 + 3,
    ]


def test_settings_results_and_stores_are_there_and_checkpoints_are_not(tmp_path, address):
    names = ["run.json", "results-a%20b.json", "stores/a%20b/train/meta.json", "eval/results.jsonl"]
    for name in (*names, "checkpoints/5/checkpoint.json", "stores/a/train/shard-00000.arrow", "notes.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    copy(tmp_path, address)
    assert there(address).keys() == {*names, "copied.json"}


def test_another_runs_copy_is_left_alone(tmp_path, address):
    for name in ("one", "other"):
        write_lines(tmp_path / name, 1, 3)
    copy(tmp_path / "one", address)
    before = there(address)
    with pytest.raises(CopyError, match=r"holds another run: give another --log\.copy-to"):
        copy(tmp_path / "other", address)
    assert there(address) == before


def test_a_run_that_was_put_there_by_hand_is_left_alone(tmp_path, address):
    system, root = system_of(address)
    system.pipe_file(f"{root}/run.json", b"{}")
    write_lines(tmp_path, 1, 3)
    with pytest.raises(CopyError, match="holds another run"):
        copy(tmp_path, address)
    assert there(address) == {"run.json": b"{}"}


def test_training_never_waits_and_is_told_what_failed(tmp_path, address, monkeypatch):
    now = [0.0]
    write_lines(tmp_path, 1, 3)
    one = Copied(tmp_path, address, clock=lambda: now[0])
    monkeypatch.setattr(one, "_send", lambda: (_ for _ in ()).throw(PermissionError("denied")))
    one.write("train", 1, {})
    one._thread.join()
    with pytest.raises(PermissionError, match="denied"):
        one.write("train", 2, {})
    monkeypatch.undo()
    one.write("train", 3, {})
    assert joined(address) == b""  # not before its time
    now[0] = copied.SECONDS
    one.write("train", 4, {})
    one._thread.join()
    assert joined(address) == (tmp_path / "metrics.jsonl").read_bytes()


def test_a_run_copies_where_its_settings_say_and_goes_on_where_that_fails(tmp_path, address):
    warned = []
    display = SimpleNamespace(warn=warned.append)
    for to in (address, "nowhere://a/b"):
        write_lines(tmp_path, 1, 3)
        run = tiny_run(tmp_path / "a.txt", 5, log=Logging(copy_to=to, tensorboard=False))
        (logger,) = open_loggers(run, tmp_path, 0, {}, display)
        logger.write("train", 3, {})
        logger.close()
    assert joined(address) == (tmp_path / "metrics.jsonl").read_bytes()
    assert len(warned) == 1 and "the copy in a bucket failed" in warned[0] and "training goes on" in warned[0]


def test_each_stage_has_a_folder_of_its_own(tmp_path, address):
    runs = [tiny_run(tmp_path / "a.txt", 5, name=name, log=Logging(copy_to=address)) for name in ("en", "de")]
    assert [run.log.copy_to for run in linked(runs, tmp_path)] == [f"{address}/1-en", f"{address}/2-de"]


@pytest.mark.parametrize(
    ("address", "told"),
    [
        ("runs/a", "no address"),
        ("s3://bucket", "no address"),
        ("", "no address"),
        ("s3://key:s3cr3t@bucket/a", "holds a name or a password"),
    ],
)
def test_what_is_no_address_is_refused_before_anything_is_written(tmp_path, address, told):
    with pytest.raises(SettingsError, match=told) as error:
        tiny_run(tmp_path / "a.txt", 5, log=Logging(copy_to=address)).resolve()
    assert "s3cr3t" not in str(error.value)
