"""Launches on this machine: the whole way but for the training, which a stand-in says it does."""

import os
import signal
import subprocess
import sys
import threading

import pytest
from launch_stand_ins import executable, hurry
from waiting import until

from spanloom.cli.launch import _of_training
from spanloom.cli.main import main
from spanloom.launch.record import find, is_watched, read_state

HOSTILE = "a b'$(touch hostile)\"; \\ *\n--x"
WAIT = "\nwhile True: time.sleep(0.1)\n"
SAVING = f"import signal\nsignal.signal(15, lambda *_: (print('saved', flush=True), sys.exit(0))){WAIT}"
FAILING = "raise ValueError('the third wheel')"
FOLLOWING = "time.sleep(1.0); print('another is gone'); sys.exit(75)"


def launch(stub, *more, on="local:2"):
    return main(
        ["launch", "recipe.py", "--on", on, "--out", "out", "--python", str(stub.python), "--text", HOSTILE, *more]
    )


def over():
    return not is_watched(find(None))


def test_every_process_is_started_with_the_words_that_were_given_and_its_own(home, stub, capsys):
    assert launch(stub, "--steps", "7", "--devices", "2", "--detach", "false") == 0
    here = os.getcwd()
    first, second = stub.ran(0), stub.ran(1)
    bundle = find(None).bundle
    recipe = f"{home}/.spanloom/bundles/{bundle}/code/recipe.py"
    words = [
        "-P",
        "-m",
        "spanloom.cli.main",
        "train",
        recipe,
        "--text",
        HOSTILE,
        "--steps",
        "7",
        "--out",
        f"{here}/out",
    ]
    assert first["argv"][1 : len(words) + 1] == words
    assert first["argv"][len(words) + 1 :][:4] == ["--processes", "2", "--process", "0"]
    assert [a for a, b in zip(first["argv"], second["argv"], strict=True) if a != b] == ["0"]
    assert first["cwd"] == here and first["env"]["JAX_PLATFORMS"] == "cpu"
    assert first["env"]["XLA_FLAGS"].endswith("--xla_force_host_platform_device_count=2")
    assert first["env"]["PYTHONPATH"] == f"{home}/.spanloom/bundles/{bundle}/package"
    assert "process 0 of start 1 began" in capsys.readouterr().out
    assert find(None).log(1, 1).read_text() == "process 1 of start 1 began\n"
    assert not os.path.exists("hostile")


def test_where_one_fails_all_are_stopped_and_its_traceback_is_shown(home, stub, capsys):
    stub.behave(_0=FOLLOWING, _1=FAILING)
    assert launch(stub) == 1
    said = capsys.readouterr()
    assert "process 1 on this machine failed first: it ended with exit code 1" in said.out
    assert "Traceback (most recent call last)" in said.out and "ValueError: the third wheel" in said.out
    assert "another is gone" not in said.out.partition("failed first")[2]
    assert "process 1 on this machine failed first" in said.err and "spanloom launch retry" in said.err
    assert over() and read_state(find(None)).state == "failed"


def test_those_that_do_not_notice_are_stopped(home, stub, tmp_path, monkeypatch):
    stub.behave(_0=WAIT, _1="sys.exit(3)")
    hurry(tmp_path / "patience", monkeypatch, attempt__GRACE_SECONDS=0.5)
    assert launch(stub) == 1
    assert "process 0 on this machine: was killed by SIGTERM" in read_state(find(None)).processes
    assert "process 1 on this machine failed first" in read_state(find(None)).message


def test_ctrl_c_leaves_it_running_and_stop_has_all_save(home, stub, capsys, monkeypatch):
    stub.behave(_0=SAVING, _1=SAVING)
    codes = []
    words = [*["launch", "recipe.py", "--text", "x", "--on", "local:2", "--out", "out", "--python"], str(stub.python)]
    command = [sys.executable, "-m", "spanloom.cli.main", *words]
    following = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    until(lambda: stub.began(0) and stub.began(1))
    until(lambda: read_state(find(None)).state == "running" and find(None).log(1, 0).is_file())
    following.send_signal(signal.SIGINT)
    _, said = following.communicate(timeout=60)
    assert following.returncode == 130 and "runs on. Follow it: spanloom launch logs" in said
    assert main(["launch", "status"]) == 0
    said = capsys.readouterr().out
    assert "running, start 1" in said and "process 0 says: process 0 of start 1 began" in said
    stopping = threading.Thread(target=lambda: codes.append(main(["launch", "stop", "out"])))
    stopping.start()
    stopping.join(60)
    assert codes == [0] and over()
    assert find(None).log(1, 0).read_text().endswith("saved\n") and find(None).log(1, 1).read_text().endswith("saved\n")
    assert read_state(find(None)).state == "stopped"
    assert main(["launch", "stop"]) == 1 and "has ended already: stopped" in capsys.readouterr().err


def test_keep_going_and_retry_start_with_the_very_same_code(home, stub, capsys):
    stub.behave(_0_1="sys.exit(1)", _0_2="os.kill(os.getpid(), 9)", _1_1=FOLLOWING, _1_2=FOLLOWING)
    assert launch(stub, "--keep-going") == 0
    assert read_state(find(None)).restarts == 2 and stub.began(0, 3)
    with open("recipe.py", "a") as file:
        file.write("\n# another version\n")
    assert main(["launch", "retry"]) == 0
    assert stub.ran(0, 4)["argv"] == stub.ran(0, 1)["argv"]
    with open(stub.ran(0, 4)["argv"][5]) as file:
        assert "another version" not in file.read()
    assert "restart 2 of at most 20" in capsys.readouterr().out


def test_values_of_handed_on_variables_are_nowhere_but_in_the_process(home, stub, capsys, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "s3cr3t")
    assert launch(stub, "--env", "HF_TOKEN") == 0
    assert stub.ran(0)["env"]["HF_TOKEN"] == "s3cr3t"
    assert "s3cr3t" not in str(capsys.readouterr())
    files = [path for path in home.rglob("*") if path.is_file()]
    assert len(files) > 100 and not [path for path in files if b"s3cr3t" in path.read_bytes()]
    assert launch(stub, "--env", "HF_TOKEN", "--dry-run") == 0
    said = capsys.readouterr().out
    assert 'HF_TOKEN="$HF_TOKEN"' in said and "s3cr3t" not in said


def test_a_killed_watcher_is_said_and_its_processes_can_be_stopped(home, stub, capsys):
    stub.behave(_0=SAVING)
    assert launch(stub, "--detach", on="local:1") == 0
    until(lambda: read_state(find(None)).state == "running")
    (pid,) = [int(pid) for pid in os.listdir("/proc") if pid.isdigit() and _is_watcher(pid)]
    os.kill(pid, signal.SIGKILL)
    until(over)
    capsys.readouterr()
    assert main(["launch", "status"]) == 0
    said = capsys.readouterr().out
    assert "nobody watches it" in said and "process 0 on this machine: running" in said
    assert main(["launch", "stop"]) == 0
    assert main(["launch", "status"]) == 0
    assert "stopped" in capsys.readouterr().out


def _is_watcher(pid):
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return str(find(None).folder).encode() in file.read()
    except OSError:
        return False


def test_a_dry_run_prints_every_command_and_does_nothing(home, stub, capsys):
    assert launch(stub, "--dry-run") == 0
    said = capsys.readouterr().out
    assert said.count("-m spanloom.cli.main train") == 2 and "--process 1" in said
    assert "'a b'\"'\"'$(touch hostile)" in said
    assert not home.exists() and not (stub.folder / "ran-0-1.json").exists()


def test_values_that_look_like_flags_stay_values():
    words = [
        "r.py",
        "--on",
        "local:2",
        "--text=--odd",
        "--a",
        "x",
        "y",
        "--keep-going",
        "--out",
        "o",
        "--z=-3",
        "--debug",
    ]
    assert _of_training(words[1:]) == [["--text=--odd"], ["--a", "x", "y"], ["--z=-3"], ["--debug"]]


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        ((), "--on is missing"),
        (("--on", "local:x"), "--on 'local:x': give a number"),
        (("--on", "local:2", "--env", "A=b"), "--env takes names alone"),
        (("--on", "local:2", "--env", "NOT_SET_HERE"), "--env NOT_SET_HERE: it is not set here"),
        (("--on", "local:2", "--port", "1"), "--port 1: give one from"),
        (("--on", "local:2", "--slurm", "a=b"), "--slurm is for --on slurm"),
        (("--on", "ssh:hosts.txt", "--out", "relative"), "give the whole path of a directory that they share"),
        (("--on", "local:2", "--out", "s3://bucket/a"), "a run is written into a directory"),
        (("--on", "local:2", "--text", "a=https://me:s3cr3t@host/x"), "holds a password"),
        (("--on", "local:2", "--coordinator", "node"), "--coordinator 'node': give HOST:PORT"),
        (("--on", "ssh:absent.txt", "--out", "/nfs/a"), "absent.txt: No such file or directory: write a file"),
        (("--on", "local:2", "--stepz", "3"), "unknown flag --stepz"),
        (("--on", "local:2", "--processes", "3"), "unknown flag --processes"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_is_done(home, capsys, flags, told):
    assert main(["launch", "recipe.py", "--text", "x", *flags]) in (1, 2)
    said = capsys.readouterr().err
    assert told in said and "s3cr3t" not in said
    assert not home.exists()


def test_status_and_logs_of_nothing_say_so(home, capsys):
    for verb in ("status", "logs", "stop", "retry"):
        assert main(["launch", verb]) == 1
        assert "nothing was launched from here" in capsys.readouterr().err


def test_a_stop_before_anything_ran_starts_nothing(home, stub, monkeypatch):
    """The hosts' Python takes its time, as the building of an environment does."""
    slow = stub.folder / "slow"
    executable(slow, f'#!/bin/sh\nsleep 1\nexec {stub.python} "$@"\n')
    words = ["--on", "local:1", "--out", "out", "--python", str(slow), "--text", "x", "--detach"]
    assert main(["launch", "recipe.py", *words]) == 0
    assert main(["launch", "stop"]) == 0
    assert read_state(find(None)).state == "stopped" and not stub.began(0)


def test_one_launch_is_watched_once(home, stub, capsys):
    stub.behave(_0=SAVING)
    assert launch(stub, "--detach", on="local:1") == 0
    assert main(["launch", "retry"]) == 1
    assert "is under way: spanloom launch logs" in capsys.readouterr().err
    until(lambda: stub.began(0))
    assert main(["launch", "stop"]) == 0
