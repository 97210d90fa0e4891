import errno
import io
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from spanloom.cli.errors import CommandError, UsageError, report
from spanloom.cli.main import COMMANDS, _write_any_character, main
from spanloom.cli.recipe import RecipeError
from spanloom.pipeline.durable import StorageError
from spanloom.pipeline.interrupts import Terminated
from spanloom.recipes import shipped

pytestmark = pytest.mark.short

HEAVY = (
    "jax",
    "jaxlib",
    "numpy",
    "orbax",
    "pyarrow",
    "optax",
    "grain",
    "transformers",
    "torch",
    "tensorboardX",
    "rich",
)


@pytest.mark.parametrize(
    "argv",
    [
        ["--help"],
        ["recipes"],
        ["train", "--help"],
        ["train", "quickstart", "--help"],
        ["pretrain", "--help"],
        ["finetune", "--help"],
        ["convert", "--help"],
        ["fill", "--help"],
        ["cache", "--help"],
        ["show", "--help"],
        ["report", "--help"],
        ["watch", "--help"],
        ["diff", "--help"],
        ["show", "quickstart", "--help"],
        ["trian"],
        ["train", "quickstart", "--stpes", "4"],
    ],
    ids=" ".join,
)
def test_help_imports_nothing_heavy(argv):
    code = f"""
        import sys
        from spanloom.cli.main import main
        assert main({argv!r}) == {0 if "--help" in argv or argv == ["recipes"] else 2}
        print("HEAVY", sorted(set(sys.modules) & set({HEAVY!r})), file=sys.stderr)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=True)
    assert done.stderr.splitlines()[-1] == "HEAVY []"


def test_help_names_every_command(capsys):
    assert main(["--help"]) == 0
    text = capsys.readouterr().out
    for name in COMMANDS:
        assert f"spanloom {name}" in text
    assert main([]) == 2


def test_recipes_has_one_line_each(capsys):
    assert main(["recipes"]) == 0
    lines = capsys.readouterr().out.splitlines()
    for name in shipped():
        (line,) = [line for line in lines if line.split(" ")[0] == name]
        assert len(line) > len(name) + 20
    assert main(["recipes", "x"]) == 2


@pytest.mark.parametrize(
    ("argv", "code", "message"),
    [
        (["trian"], 2, "spanloom: unknown command 'trian'; did you mean train"),
        (["train", "quikstart"], 2, "spanloom: unknown recipe 'quikstart'; did you mean quickstart?"),
        (["train", "quickstart", "--stpes", "4"], 2, "spanloom: unknown flag --stpes; did you mean --steps?"),
        (["train", "--steps", "4"], 2, "the recipe comes first"),
        (["cache", "--steps", "4"], 2, "the recipe comes first"),
        (["show", "--task", "a"], 2, "the recipe comes first"),
        (["cache", "quickstart", "--workers", "x"], 2, "--workers 'x': must be a whole number or None"),
        (
            ["train", "quickstart", "--batch_size", "0", "--out", "/nonexistent/x"],
            1,
            "batch_size is 0: must be 1 or more",
        ),
        (["pretrain", "--model", "t5_small"], 1, "--vocabulary FILE names a SentencePiece model file"),
        (["pretrain", "--model", "byt5_smal"], 2, "did you mean byt5_small"),
        (["pretrain", "--out", "/nonexistent/x"], 1, "name at least one file or glob (--text FILES"),
        (["convert", "a"], 2, "missing: DST; usage: spanloom convert SRC DST [--to hf|t5x|spanloom] [flags]"),
        (["convert", "a", "b", "c", "--to", "hf"], 2, "'c' is left over"),
        (["convert", "a", "b", "--to", "t5"], 2, "--to 't5': must be one of hf, t5x, spanloom"),
        (["convert", "a", "b", "--shard-size", "5 loaves"], 2, "--shard-size '5 loaves': give a size such as 5GB"),
        (["convert", "a", "b", "--shard-size", "0"], 2, "--shard-size '0': give a size"),
        (["convert", "a", "b", "--shard-size", "9" * 400], 2, "give a size such as 5GB"),
        (["fill"], 2, "missing: CHECKPOINT; usage: spanloom fill CHECKPOINT"),
        (["fill", "x", "--text"], 2, "--text takes a value"),
        (["fill", "x", "--max-length", "x"], 2, "--max-length 'x': must be a whole number"),
        (["train", "quickstart", "--fork", ""], 2, "--fork is empty"),
        (["train", "quickstart", "--fork", "gs://bucket/a"], 2, "--fork gs://bucket/a: a run is written into"),
        (["train", "quickstart", "--out", "s3://bucket/a"], 2, "--log.copy-to s3://bucket/a copies metrics"),
        (["pretrain", "--text", "a", "--vocabulary", ""], 1, "--vocabulary is empty"),
        (["train", __file__.removesuffix(".py")], 2, "unknown recipe"),
        (["convert", "a", "b", "--to", "hf", "--overwrit"], 2, "did you mean --overwrite"),
        (["convert", "/nonexistent", "b", "--to", "hf"], 1, "does not exist"),
        (["finetune", "--data", "x", "--start", "/nonexistent"], 1, "does not exist"),
    ],
)
def test_errors_are_a_clear_message_and_a_code(capfd, argv, code, message):
    assert main(argv) == code
    captured = capfd.readouterr()
    assert message in captured.err
    assert "Traceback" not in captured.err
    assert captured.out == ""


def test_debug_shows_the_traceback(capfd, monkeypatch):
    argv = ["train", "quickstart", "--batch_size", "0"]
    assert main([*argv, "--debug"]) == 1
    assert "Traceback" in capfd.readouterr().err
    monkeypatch.setenv("SPANLOOM_DEBUG", "1")
    assert main(argv) == 1
    assert "Traceback" in capfd.readouterr().err


def test_a_failing_recipe_names_file_and_line(capfd, tmp_path):
    path = tmp_path / "mine.py"
    path.write_text("def recipe():\n    return 1 / 0\n")
    assert main(["train", str(path)]) == 1
    assert f"spanloom: error: {path}:2: ZeroDivisionError: division by zero" in capfd.readouterr().err


def test_errors_of_others_keep_their_traceback(capfd):
    with pytest.raises(RuntimeError) as caught:
        raise RuntimeError("somewhere else")
    assert report(caught.value, debug=False) == 1
    text = capfd.readouterr().err
    assert "Traceback" in text
    assert text.splitlines()[-1] == "spanloom: error: RuntimeError: somewhere else"
    assert report(UsageError("x"), debug=False) == 2
    assert report(CommandError("x"), debug=False) == 1
    assert report(KeyboardInterrupt(), debug=False) == 130


@pytest.mark.parametrize("number", sorted(errno.errorcode))
def test_answers_of_the_file_system_name_no_flag_that_a_command_may_lack(number, capsys):
    assert report(OSError(number, os.strerror(number), "/some/file"), debug=False) == 1
    text = capsys.readouterr().err
    assert text.startswith(f"spanloom: error: /some/file: {os.strerror(number)}")
    assert "--" not in text


def test_memory_that_runs_out_is_no_traceback(capsys):
    class JaxRuntimeError(RuntimeError):
        pass

    of_a_cpu = JaxRuntimeError("INTERNAL: Error dispatching computation: Out of memory allocating 9 bytes.")
    of_others = JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 9 bytes.\nmore")
    for error in (MemoryError(), of_others, of_a_cpu):
        assert report(error, debug=False) == 1
        text = capsys.readouterr().err
        assert "Traceback" not in text
        assert text.startswith("spanloom: error: out of memory (")
        assert "--batch-size" in text
    assert report(JaxRuntimeError("INTERNAL: other"), debug=False) == 1
    assert "out of memory" not in capsys.readouterr().err


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_closed_pipe_is_no_error(unbuffered):
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    command = f"{sys.executable} -m spanloom.cli.main train quickstart --help | head -1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, env=environment, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(("encoding", "written"), [("ascii", b"\\xe9 \\udcff"), ("utf-8", b"\xc3\xa9 \\udcff")])
def test_what_a_terminal_cannot_write_is_escaped(encoding, written, monkeypatch):
    """As of a locale without UTF-8, and of a file whose name is none."""
    stream = io.TextIOWrapper(io.BytesIO(), encoding)
    monkeypatch.setattr(sys, "stdout", stream)
    _write_any_character()
    stream.write("\xe9 \udcff")
    stream.flush()
    assert stream.buffer.getvalue() == written


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux has a device that is always full")
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_output_that_finds_no_room_is_an_error(unbuffered):
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    command = f"{sys.executable} -m spanloom.cli.main recipes > /dev/full"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("spanloom: error: No space left on device") and len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--help"], 0),
        (["recipes"], 0),
        (["train", "x", "--help"], 0),
        (["train", "quickstart"], 1),
        (["fill", "x"], 1),
    ],
)
def test_work_cut_off_by_a_closed_pipe_is_no_success(words, code, monkeypatch, capsys):
    def gone(_words):
        raise BrokenPipeError(32, "Broken pipe")

    monkeypatch.setattr("spanloom.cli.main._dispatch", gone)
    assert main(words) == code
    assert ("give the same command again" in capsys.readouterr().err) == bool(code)


def test_output_that_was_closed_from_the_beginning_vanishes():
    for closed in (">&-", ">&- 2>&-"):
        command = f"{sys.executable} -m spanloom.cli.main recipes {closed}"
        done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, env={**os.environ}, check=False)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_version(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("spanloom ")


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            NotADirectoryError(20, "Not a directory", "a/b"),
            "a/b: Not a directory. A file stands where a folder belongs",
        ),
        (PermissionError(13, "Permission denied", "a/b"), "a/b: Permission denied. Give yourself the right"),
        (OSError(28, "No space left on device", "a/b"), "a/b: No space left on device. The disk is full: free some"),
        (OSError(28, "No space left on device"), "error: No space left on device. The disk is full: free some room."),
        (OSError(30, "Read-only file system", "a/b"), "a/b: Read-only file system. Nothing can be written there"),
    ],
)
def test_what_the_file_system_refuses_comes_with_a_fix(error, message, capsys):
    assert report(error, debug=False) == 1
    assert message in capsys.readouterr().err


LOST = """
import gc, signal, sys, time
from pathlib import Path
from spanloom.cli import main as command
from spanloom.conversion.staging import staged

number = int(sys.argv.pop(1))

def callback(phase, info):
    gc.callbacks.clear()
    signal.raise_signal(number)

def work(words):
    with staged(Path(sys.argv[1])):
        gc.callbacks.append(callback)
        gc.collect()
        time.sleep(60)
    return 0

command._dispatch = work
sys.exit(command.main())
"""


@pytest.mark.parametrize(("number", "code", "said"), [(2, 130, "interrupted"), (15, 143, "ended by SIGTERM")])
def test_a_signal_in_a_callback_of_the_garbage_collector_ends_the_command(number, code, said, tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", LOST, str(number), str(tmp_path / "out")],
        capture_output=True, text=True, timeout=50, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (code, f"spanloom: {said}\n")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("signalled", [KeyboardInterrupt, Terminated])
@pytest.mark.parametrize("wrapped", ["cause", "context", "recipe"])
def test_a_signal_during_an_import_is_no_error_of_the_import(signalled, wrapped, capsys):
    """numpy, jaxlib and Python's own classes raise their own errors for what a signal's handler raised in them."""
    error = RuntimeError("initialization failed")
    error.__cause__ = signalled() if wrapped != "context" else None
    error.__context__ = signalled()
    error.__suppress_context__ = wrapped != "context"
    if wrapped == "recipe":
        error, inner = RecipeError("mine.py:1: initialization failed"), error
        error.__cause__ = inner
    assert report(error, debug=False) == (130 if signalled is KeyboardInterrupt else 143)
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_what_went_wrong_after_ctrl_c_is_said(capsys):
    error = StorageError("no room to write")
    error.__context__ = KeyboardInterrupt()
    assert report(error, debug=False) == 1 and "no room" in capsys.readouterr().err
    assert report(ImportError("nb: KeyboardInterrupt: "), debug=False) == 130


def test_ctrl_c_before_the_command_begins_is_no_traceback(monkeypatch, capsys):
    def interrupted():
        raise KeyboardInterrupt

    monkeypatch.setattr("spanloom.cli.main.quiet_libtpu", interrupted)
    monkeypatch.setattr("spanloom.cli.main._end_at_the_next_ctrl_c", lambda: None)
    monkeypatch.setattr(sys, "argv", ["spanloom", "recipes"])
    assert main() == 130 and capsys.readouterr().err == "spanloom: interrupted\n"


LEAVING = """
import atexit, sys, threading, time
from spanloom.cli import main as command

def leave():
    print("leaving", flush=True)
    time.sleep(60)

def interrupted(words):
    threading.Timer(120, print).start()
    raise KeyboardInterrupt

atexit.register(leave)
if sys.argv[1] == "interrupted":
    command._carry_out = interrupted
sys.exit(command.main())
"""


@pytest.mark.parametrize("word", ["--version", "interrupted"])
def test_ctrl_c_at_the_end_is_no_traceback(word):
    process = subprocess.Popen(
        [sys.executable, "-c", LEAVING, word], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    for line in process.stdout:
        if line == "leaving\n":
            break
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGINT  # which shells call 130
    assert errors == ("spanloom: interrupted\n" if word == "interrupted" else "")


def test_python_runs_the_package_as_the_command():
    argv = [sys.executable, "-m", "spanloom", "--help"]
    said = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    assert "spanloom train" in said
    assert subprocess.run([*argv[:3], "trian"], capture_output=True, check=False).returncode == 2
