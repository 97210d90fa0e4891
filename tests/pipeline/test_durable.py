import errno
import os
import subprocess
import sys

import pytest

from spanloom.pipeline.durable import StorageError, json_object, locked, write_file


def test_a_file_is_whole_under_its_name(tmp_path):
    write_file(tmp_path / "a", lambda file: file.write(b"abc"))
    write_file(tmp_path / "a", lambda file: file.write(b"defg"))
    assert (tmp_path / "a").read_bytes() == b"defg"
    assert os.listdir(tmp_path) == ["a"]


def test_a_failed_write_leaves_what_was_there(tmp_path):
    write_file(tmp_path / "a", lambda file: file.write(b"abc"))

    def fail(file):
        file.write(b"half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_file(tmp_path / "a", fail)
    assert (tmp_path / "a").read_bytes() == b"abc"
    assert os.listdir(tmp_path) == ["a"]


def test_what_is_no_file_is_never_replaced_by_one(tmp_path):
    os.mkfifo(tmp_path / "pipe")  # a device is told in the same way
    (tmp_path / "link").symlink_to("pipe")
    for name in ("pipe", "link"):
        with pytest.raises(FileExistsError, match="Is a device, pipe or socket, not a file"):
            write_file(tmp_path / name, lambda file: file.write(b"abc"))
    assert (tmp_path / "pipe").is_fifo() and (tmp_path / "link").is_symlink()
    assert sorted(os.listdir(tmp_path)) == ["link", "pipe"]


@pytest.mark.parametrize("there", [True, False])
def test_a_link_stays_and_the_file_that_it_leads_to_is_written(tmp_path, there):
    (tmp_path / "disk").mkdir()
    (tmp_path / "link").symlink_to("disk/file")
    if there:
        (tmp_path / "disk" / "file").write_text("before")
    write_file(tmp_path / "link", lambda file: file.write(b"abc"))
    assert (tmp_path / "link").is_symlink() and (tmp_path / "disk" / "file").read_bytes() == b"abc"
    assert os.listdir(tmp_path / "disk") == ["file"] and sorted(os.listdir(tmp_path)) == ["disk", "link"]


def test_a_full_disk_is_said_with_its_place_and_the_way_on(tmp_path):
    def fail(file):
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(StorageError, match=r"no room to write .*a .*Free some room, or name a place") as full:
        write_file(tmp_path / "a", fail)
    assert "--" not in str(full.value), "every command writes by it, and not all have the same flags"
    assert os.listdir(tmp_path) == []


def test_other_errors_stay_what_they_are(tmp_path):
    def fail(file):
        raise PermissionError(errno.EACCES, "Permission denied")

    with pytest.raises(PermissionError):
        write_file(tmp_path / "a", fail)


def test_a_lock_keeps_other_processes_out_until_its_holder_dies(tmp_path):
    path = tmp_path / "a.lock"
    code = (
        "import sys, time\nfrom pathlib import Path\nfrom spanloom.pipeline.durable import locked\n"
        f"with locked(Path({str(path)!r}), lambda: None):\n    print('held', flush=True)\n    time.sleep(60)\n"
    )
    holder = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout is not None and holder.stdout.readline() == "held\n"
        waited = []

        def waiting():
            waited.append(1)
            holder.kill()

        with locked(path, waiting):
            assert waited == [1]
    finally:
        holder.kill()
        holder.wait()


def test_a_file_system_without_locks_is_named(tmp_path, monkeypatch):
    def no_locks(descriptor, flags):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", no_locks)
    with pytest.raises(StorageError, match="no file locks") as told, locked(tmp_path / "a.lock", lambda: None):
        pass
    assert "--" not in str(told.value)


def test_a_line_is_its_object_or_nothing():
    assert json_object(b'{"step": 1}\n') == {"step": 1}
    assert json_object(b"{}") == {}
    for damaged in (b"", b'{"step": 1', b"[1]", b"1", b"\xff{}", b"[" * 100_000, b'{"step": ' + b"9" * 10_000 + b"}"):
        assert json_object(damaged) is None


def test_a_shared_lock_is_held_by_many_and_keeps_those_out_that_want_it_alone(tmp_path):
    class BusyError(Exception):
        pass

    def busy():
        raise BusyError

    path = tmp_path / "a.lock"
    together = locked(path, busy, shared=True), locked(path, busy, shared=True)
    with together[0], together[1], pytest.raises(BusyError), locked(path, busy):
        pass
    with locked(path, busy), pytest.raises(BusyError), locked(path, busy, shared=True):
        pass


def test_files_that_several_write_at_once_have_temporary_names_of_their_own(tmp_path):
    path, seen = tmp_path / "a", []

    def write_within(file):
        file.write(b"outer")
        write_file(path, lambda inner: inner.write(b"inner"), shared=True)
        seen.append(path.read_bytes())

    write_file(path, write_within, shared=True)
    assert seen == [b"inner"] and path.read_bytes() == b"outer"
    assert [one.name for one in tmp_path.iterdir()] == ["a"]
