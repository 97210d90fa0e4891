"""Launches on hosts that real SSH servers stand for, each with a home directory of its own."""

import os
import time

import pytest
from crew_process import two_free_ports
from launch_stand_ins import hurry
from ssh_hosts import ssh_servers
from waiting import until

from spanloom.cli.main import main
from spanloom.launch.record import find, is_watched, read_state

HOSTILE = "a b'$(touch hostile)\"; \\ *\n--x"


@pytest.fixture
def servers(tmp_path):
    with ssh_servers(tmp_path, 2) as servers:
        yield servers


def launch(servers, stub, out, *more):
    port = two_free_ports()
    words = [
        "--on",
        f"ssh:{servers.folder}/hosts.txt",
        "--ssh-config",
        str(servers.folder / "config"),
        "--out",
        str(out),
    ]
    words += ["--python", str(stub.python), "--build", "no", "--port", str(port), "--text", HOSTILE]
    return main(["launch", "recipe.py", *words, *more])


def test_every_host_gets_the_code_and_its_own_words(home, servers, stub, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "s3cr3t '$x")
    assert launch(servers, stub, tmp_path / "out", "--env", "HF_TOKEN") == 0, capsys.readouterr()
    bundle = find(None).bundle
    for number in (0, 1):
        ran, place = stub.ran(number), f"{servers.home(number)}/.spanloom/bundles/{bundle}"
        assert ran["argv"][5] == f"{place}/code/recipe.py" and ran["argv"][6:8] == ["--text", HOSTILE]
        assert ran["cwd"] == f"{place}/code" and ran["env"]["PYTHONPATH"] == f"{place}/package"
        assert ran["env"]["HF_TOKEN"] == "s3cr3t '$x" and "JAX_PLATFORMS=cpu" not in str(ran)
        assert ran["env"]["HOME"] == str(servers.home(number))
    assert not list(tmp_path.rglob("hostile"))
    said = capsys.readouterr().out
    assert "can be reached from all" in said and "process 0 of start 1 began" in said and "s3cr3t" not in said
    assert launch(servers, stub, tmp_path / "out", "--env", "HF_TOKEN") == 0
    assert "received" not in capsys.readouterr().out  # the same code is there already


def test_the_host_that_failed_first_is_shown_and_the_other_one_stopped(home, servers, stub, tmp_path, capsys):
    waits = "time.sleep(3); sys.exit(75)"
    stub.behave(_0=waits, _1="time.sleep(0.5); raise RuntimeError('the disk is gone')")
    assert launch(servers, stub, tmp_path / "out") == 1
    said = capsys.readouterr().out
    second = (servers.folder / "hosts.txt").read_text().split()[1]
    assert f"process 1 on {second} failed first" in said and "RuntimeError: the disk is gone" in said


def test_a_line_that_breaks_loses_neither_process_nor_output(home, servers, stub, tmp_path, monkeypatch):
    """The server of a host goes and comes back, as its network does; what it started is set apart from it."""
    hurry(tmp_path / "patience", monkeypatch, attempt__SILENT_SECONDS=8.0)
    waits = "while not os.path.exists(here + '/go'): time.sleep(0.1)"
    stub.behave(_1=f"print('before', flush=True)\n{waits}\nprint('after', flush=True)")
    assert launch(servers, stub, tmp_path / "out", "--detach") == 0
    log = find(None).log(1, 1)
    until(lambda: log.is_file() and "before" in log.read_text())
    servers.stop(1)
    _end_children(servers.ports[1])
    time.sleep(12.0)  # longer than what counts as silence
    (stub.folder / "go").touch()
    servers.start(1)
    until(lambda: not is_watched(find(None)))
    assert read_state(find(None)).state == "done"
    assert log.read_text() == "process 1 of start 1 began\nbefore\nafter\n"


def _end_children(port):
    """End the processes that serve one line each: a server that ends leaves them."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                words = file.read()
        except OSError:
            continue
        if words.startswith(b"ssh\0") and f"-p\0{port}\0".encode() in words:
            os.kill(int(pid), 9)


def test_hosts_that_cannot_be_used_are_all_named(home, servers, stub, tmp_path, capsys):
    servers.stop(1)
    with (servers.folder / "hosts.txt").open("a") as file:
        file.write("nobody@127.0.0.1:1\n")
    assert launch(servers, stub, tmp_path / "out") == 1
    said = capsys.readouterr().out
    assert said.count("cannot be reached by ssh") == 2 and "try it by hand: ssh -o BatchMode=yes" in said
    assert "Connection refused" in said and not stub.began(0)


def test_the_same_user_may_lack_python_there(home, servers, stub, tmp_path, capsys):
    assert launch(servers, stub, tmp_path / "out", "--python", "/no/python3.11") == 1
    assert "is /no/python3.11 there? Install it, or name another one with --python" in capsys.readouterr().out


def test_a_run_directory_in_use_stops_it_before_it_starts(home, servers, stub, tmp_path, capsys):
    import fcntl

    (tmp_path / "out").mkdir()
    with (tmp_path / "out" / ".lock").open("w") as file:
        file.write("4321\n")
        file.flush()
        fcntl.flock(file, fcntl.LOCK_EX)
        assert launch(servers, stub, tmp_path / "out") == 1
    assert "another training process uses the run directory (id 4321)" in capsys.readouterr().out
    assert not stub.began(0)


def test_a_dry_run_reaches_no_host(home, stub, tmp_path, capsys):
    (tmp_path / "hosts.txt").write_text("me@one.example.org:2222\ntwo.example.org 2\n")
    words = ["--on", f"ssh:{tmp_path}/hosts.txt", "--out", "/nfs/a", "--text", "x"]
    assert main(["launch", "recipe.py", *words, "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert "-p 2222 -- me@one.example.org" in said and "--process 2 --coordinator one.example.org:8476" in said
    assert "-m venv" in said and "-m pip install -r" in said
