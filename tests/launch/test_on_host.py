"""What a host does for a launch, asked as a launch asks: by the program that is sent along."""

import base64
import fcntl
import hashlib
import io
import json
import os
import signal
import socket
import subprocess
import sys
import tarfile
import threading
import time
from pathlib import Path

import pytest
from waiting import until

from spanloom.launch import on_host
from spanloom.launch.calls import Call, HostError, ask, each
from spanloom.launch.hosts import Host

HERE = Host("here", "127.0.0.1")


def request(home, do, **more):
    return {"do": do, "home": str(home), "launch": "l", "attempt": 1, "process": 0, **more}


def asked(home, do, payload=b"", seconds=30.0, **more):
    return ask(HERE, sys.executable, request(home, do, **more), payload, seconds=seconds)


def started(home, code, **more):
    words = {"argv": [sys.executable, "-c", code], "directory": str(home), "env": {}, **more}
    return asked(home, "start", **words)


def archive(name="code/a.txt", content=b"a", kind=tarfile.REGTYPE, link=""):
    packed = io.BytesIO()
    listed = json.dumps({"files": {name: hashlib.sha256(content).hexdigest()}}).encode()
    with tarfile.open(fileobj=packed, mode="w:gz") as file:
        about = tarfile.TarInfo("bundle.json")
        about.size = len(listed)
        file.addfile(about, io.BytesIO(listed))
        info = tarfile.TarInfo(name)
        info.size, info.type, info.linkname = len(content), kind, link
        file.addfile(info, io.BytesIO(content))
    return packed.getvalue()


def unpacked(home, data, sha=None):
    return asked(home, "unpack", data, hash=sha or hashlib.sha256(data).hexdigest(), size=len(data))


def test_a_bundle_is_unpacked_once_and_known_by_its_hash(tmp_path):
    data = archive()
    sha = hashlib.sha256(data).hexdigest()
    assert asked(tmp_path, "unpack", hash=sha)["there"] is False
    place = unpacked(tmp_path, data)["place"]
    assert Path(place, "code/a.txt").read_text() == "a"
    assert asked(tmp_path, "unpack", hash=sha) == {"place": place, "there": True}


@pytest.mark.parametrize("whole", [False, True], ids=["without its sign", "changed afterwards"])
def test_a_bundle_that_is_not_as_it_was_sent_is_unpacked_again(tmp_path, whole):
    data = archive()
    place = tmp_path / "bundles" / hashlib.sha256(data).hexdigest()
    if whole:
        unpacked(tmp_path, data)
    (place / "code").mkdir(parents=True, exist_ok=True)
    (place / "code" / "a.txt").write_text("half")
    assert asked(tmp_path, "unpack", hash=place.name)["there"] is False
    unpacked(tmp_path, data)
    assert (place / "code" / "a.txt").read_text() == "a"


@pytest.mark.parametrize(
    "bad",
    [
        archive("../outside.txt"),
        archive("code/link", b"", tarfile.SYMTYPE, "../../../etc/passwd"),
        archive("code/device", b"", tarfile.CHRTYPE),
        b"no archive",
    ],
    ids=["above", "link", "device", "no archive"],
)
def test_a_hostile_bundle_writes_nothing(tmp_path, bad):
    with pytest.raises(HostError, match="here: "):
        unpacked(tmp_path / "home", bad)
    assert not any((tmp_path / "home" / "bundles").iterdir())
    assert not (tmp_path / "home" / "outside.txt").exists()


@pytest.fixture
def unfiltered(monkeypatch):
    """A Python whose tarfile looks at nothing, as before 3.11.4."""
    monkeypatch.delattr(tarfile, "data_filter")


def unpacked_here(home, data):
    sha = hashlib.sha256(data).hexdigest()
    return on_host.unpack({"home": str(home), "hash": sha, "size": len(data)}, io.BytesIO(data))


def test_an_older_python_unpacks_as_well(tmp_path, unfiltered):
    place = Path(unpacked_here(tmp_path, archive())["place"])
    assert (place / "code" / "a.txt").read_text() == "a"
    assert (Path(unpacked_here(tmp_path, archive("code/l", b"", tarfile.SYMTYPE, "../code/x"))["place"])).is_dir()


def below_a_link():
    """A link to its own folder, in which another link leads out."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as file:
        for name, target in (("d", "."), ("d/e", "..")):
            info = tarfile.TarInfo(name)
            info.type, info.linkname = tarfile.SYMTYPE, target
            file.addfile(info)
    return packed.getvalue()


@pytest.mark.parametrize(
    "bad",
    [
        archive("../outside.txt"),
        archive("/tmp/outside.txt"),
        archive("code/../../outside.txt"),
        archive("code/link", b"", tarfile.SYMTYPE, "../../../etc/passwd"),
        archive("code/link", b"", tarfile.SYMTYPE, "/etc/passwd"),
        archive("code/link", b"", tarfile.LNKTYPE, "bundle.json"),
        archive("code/device", b"", tarfile.CHRTYPE),
        below_a_link(),
    ],
    ids=["above", "absolute", "above by parts", "link", "absolute link", "hard link", "device", "below a link"],
)
def test_an_older_python_unpacks_nothing_hostile(tmp_path, unfiltered, bad):
    with pytest.raises(on_host.RefusedError, match="would not stay in its folder"):
        unpacked_here(tmp_path / "home", bad)
    assert not any((tmp_path / "home" / "bundles").iterdir())
    assert not (tmp_path / "home" / "outside.txt").exists()


def test_a_bundle_damaged_on_the_way_is_refused(tmp_path):
    with pytest.raises(HostError, match="arrived damaged"):
        unpacked(tmp_path, archive(), sha="0" * 64)
    with pytest.raises(HostError, match="arrived damaged"):
        asked(tmp_path, "unpack", archive()[:10], hash=hashlib.sha256(archive()).hexdigest(), size=len(archive()))


def test_files_that_were_changed_afterwards_are_named(tmp_path):
    for name in ("a", "b", "c"):
        (tmp_path / name).write_text(name)
    hashes = {name: hashlib.sha256(name.encode()).hexdigest() for name in ("a", "b", "c")}
    (tmp_path / "bundle.json").write_text(json.dumps({"files": hashes}))
    assert on_host.changed_files(tmp_path) == []
    (tmp_path / "b").write_text("other")
    (tmp_path / "c").unlink()
    assert on_host.changed_files(tmp_path) == ["b", "c"]


def test_a_process_outlives_who_asked_and_its_output_and_code_are_kept(tmp_path):
    started(
        tmp_path, "import os; print('said', os.environ['TOKEN'], flush=True); raise SystemExit(7)", env={"TOKEN": "t"}
    )
    messages = list(Call(HERE, sys.executable, request(tmp_path, "watch", offset=0)))
    said = b"".join(base64.b64decode(message["log"]) for message in messages if "log" in message)
    assert said == b"said t\n"
    assert messages[-1]["done"]["state"] == "ended" and messages[-1]["done"]["code"] == 7
    assert 0 <= messages[-1]["done"]["ago"] < 60
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and b"TOKEN" in path.read_bytes()]


def test_output_goes_on_where_a_line_broke(tmp_path):
    started(tmp_path, "print('0123456789', end='')")
    until(lambda: asked(tmp_path, "status")["state"] == "ended")
    messages = list(Call(HERE, sys.executable, request(tmp_path, "watch", offset=6)))
    assert base64.b64decode(messages[0]["log"]) == b"6789"


def test_stop_lets_a_process_save_and_kills_one_that_does_not_with_its_children(tmp_path):
    saves = (
        "import signal, sys, time; signal.signal(15, lambda *_: sys.exit(0)); print('up', flush=True); time.sleep(60)"
    )
    started(tmp_path, saves)
    log = tmp_path / "launches" / "l" / "1-0" / "log"
    until(lambda: log.exists() and log.read_text() == "up\n")
    assert asked(tmp_path, "stop", grace=20)["code"] == 0

    deaf = (
        "import os, signal, time; signal.signal(15, signal.SIG_IGN); child = os.fork(); "
        "print(child or os.getpid(), flush=True); time.sleep(60)"
    )
    started(tmp_path, deaf, attempt=2)
    log = tmp_path / "launches" / "l" / "2-0" / "log"
    until(lambda: log.exists() and len(log.read_text().split()) == 2)
    assert asked(tmp_path, "stop", grace=0.5, attempt=2)["code"] == -signal.SIGKILL
    until(lambda: not any(on_host.born(int(pid)) for pid in log.read_text().split()))


def test_a_process_whose_keeper_and_self_were_killed_is_gone(tmp_path):
    place = tmp_path / "launches" / "l" / "1-0"
    place.mkdir(parents=True)
    ended = subprocess.Popen([sys.executable, "-c", "pass"])
    born = on_host.born(ended.pid)
    ended.wait()
    on_host.write(str(place / "process"), {"id": ended.pid, "born": born or "a boot 1", "at": 0})
    assert asked(tmp_path, "status")["state"] == "gone"
    assert asked(tmp_path, "stop", grace=1)["state"] == "gone"


def test_the_number_of_a_dead_process_that_another_one_has_now_is_left_alone(tmp_path):
    place = tmp_path / "launches" / "l" / "1-0"
    place.mkdir(parents=True)
    on_host.write(str(place / "process"), {"id": os.getpid(), "born": "another boot 1", "at": 0})
    assert asked(tmp_path, "stop", grace=0.1)["state"] == "gone"  # and this test lives


def test_what_cannot_be_started_says_why(tmp_path):
    with pytest.raises(HostError, match=r"could not be started .*No such file.*nothing-of-that-name"):
        asked(tmp_path, "start", argv=["/nothing-of-that-name"], directory=str(tmp_path), env={})


def test_an_environment_is_built_once_and_again_after_a_failure_or_a_kill(tmp_path):
    lock = {"constraints": [], "name": "e", "seconds": 300}
    with pytest.raises(HostError, match=r"(?s)pip install.*failed.*no-such-package"):
        asked(tmp_path, "environment", requirements=[str(tmp_path / "no-such-package")], **lock)
    assert not (tmp_path / "environments" / "e" / on_host.WHOLE).exists()
    (tmp_path / "environments" / "e" / "half").touch()  # as a kill leaves it
    assert asked(tmp_path, "environment", requirements=[], **lock)["built"] is True
    assert not (tmp_path / "environments" / "e" / "half").exists()
    answer = asked(tmp_path, "environment", requirements=[], **lock)
    assert answer["built"] is False and os.access(answer["python"], os.X_OK)


def test_last_step_is_the_newest_whole_checkpoint_of_a_run_or_its_stages(tmp_path):
    assert on_host.last_step(str(tmp_path)) is None
    for number, name in enumerate(["1-en/checkpoints/9", "1-en/checkpoints/10", "2-de/checkpoints/5"]):
        folder = tmp_path / "a[b" / name
        folder.mkdir(parents=True)
        (folder / "checkpoint.json").touch()
        os.utime(folder / "checkpoint.json", (number, number))
    (tmp_path / "a[b" / "2-de" / "checkpoints" / "7.partial").mkdir()
    (tmp_path / "a[b" / "2-de" / "checkpoints" / "7.partial" / "checkpoint.json").touch()
    assert on_host.last_step(str(tmp_path / "a[b")) == str(tmp_path / "a[b" / "2-de/checkpoints/5")


def test_lock_files_of_the_tpu_are_stale_only_where_nobody_holds_them(tmp_path, monkeypatch):
    path = tmp_path / "libtpu_lockfile"
    path.touch()
    monkeypatch.setattr(on_host.glob, "glob", lambda pattern: [str(path)])
    assert on_host._libtpu_locks() == []
    with path.open("r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        (said,) = on_host._libtpu_locks()
    assert f"{path} is held (by an unknown process): another process uses the TPU" in said
    monkeypatch.setattr(on_host.os, "access", lambda path, mode: False)
    (said,) = on_host._libtpu_locks()
    assert f"belongs to another user: sudo rm -f {path}" in said


def test_ports_that_are_taken_or_out_of_reach_are_named():
    with socket.create_server(("", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(HostError, match=f"port {port} of .* is not free .* another --port"):
            ask(HERE, sys.executable, {"do": "listen", "ports": [port], "token": "t", "seconds": 5})
    with pytest.raises(HostError, match=f"127.0.0.1:{port} cannot be reached .*--coordinator"):
        ask(HERE, sys.executable, {"do": "reach", "host": "127.0.0.1", "ports": [port], "token": "t", "seconds": 2})


def test_something_else_at_the_coordinators_port_is_noticed():
    with socket.create_server(("", 0)) as server:
        port = server.getsockname()[1]
        threading.Thread(target=lambda: server.accept()[0].sendall(b"SSH-2.0"), daemon=True).start()
        with pytest.raises(HostError, match="something else answers at"):
            ask(HERE, sys.executable, {"do": "reach", "host": "127.0.0.1", "ports": [port], "token": "t", "seconds": 5})


def test_a_host_that_does_not_answer_in_time_is_named_with_all_others(tmp_path):
    begun = time.monotonic()
    silent, absent = Host("silent", "", ("sh", "-c", "sleep 60; :")), Host("absent", "", ("no-such-program",))

    def one(host):
        return ask(host, sys.executable, request(tmp_path, "status"), seconds=1.0)

    with pytest.raises(HostError) as error:
        each([silent, HERE, absent], one)
    assert time.monotonic() - begun < 30
    assert "silent: no answer in 1 s" in str(error.value)
    assert "absent: no-such-program is not installed here" in str(error.value)
    assert "here" not in str(error.value).replace("installed here", "")


def test_what_login_scripts_say_is_no_answer(tmp_path):
    noisy = Host("noisy", "", ("sh", "-c", 'echo "Welcome! {"; eval "$0"'))
    assert ask(noisy, sys.executable, request(tmp_path, "status"))["state"] == "absent"


def test_an_answer_that_is_cut_is_none(tmp_path):
    """What is left of a line to a host that broke off in the middle of a message."""
    broken = Host("broken", "", ("sh", "-c", """printf '%s' '@spanloom {"done": {"state": "run'"""))
    with pytest.raises(HostError, match="broken: its command ended with exit code 0"):
        ask(broken, sys.executable, request(tmp_path, "status"))


def test_a_host_without_that_python_says_how_to_name_another(tmp_path):
    host = Host("bare", "", ("sh", "-c"))
    with pytest.raises(HostError, match=r"is python3.99 there.*--python"):
        ask(host, "python3.99", request(tmp_path, "status"))
