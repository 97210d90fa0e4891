"""The `spanloom` command. Nothing heavy is imported before it is needed, so that help is instant."""

import contextlib
import importlib
import io
import os
import signal
import sys
import threading
from collections.abc import Sequence

from spanloom.cli.errors import FAILED, UsageError, debugging, ended_by, report
from spanloom.cli.other_names import of_command
from spanloom.pipeline.interrupts import Terminated, sent_again
from spanloom.scale.libtpu import quiet_libtpu
from spanloom.settings.nearest import did_you_mean

COMMANDS = {
    "recipes": ("", "what ships, one line each"),
    "train": ("RECIPE [flags]", "begin a run, or go on with it: a shipped recipe, a .py file or a run directory"),
    "pretrain": (
        "--text 'corpus/*.txt' --model byt5_small --out DIR",
        "span corruption on text files, no recipe file needed",
    ),
    "finetune": ("--data pairs.tsv --start CHECKPOINT --out DIR", "inputs to targets, from a checkpoint"),
    "generate": ("CHECKPOINT --input lines.txt", "what a model writes for each line, greedily, by beams or drawn"),
    "score": ("CHECKPOINT pairs.jsonl", "how likely a model finds targets"),
    "eval": ("CHECKPOINT [RECIPE]", "losses, metrics and ranks on what is held out, task by task, as tables"),
    "fill": ("CHECKPOINT", "what a model puts in the place of masked spans"),
    "plan": (
        "RECIPE [--on v4-32 h100x8 ...]",
        "memory, FLOPs and hours of a run on devices that need not be here",
    ),
    "launch": (
        "RECIPE --on local:4|ssh:hosts.txt|slurm|tpu:NAME --out DIR",
        "train on several hosts by one command; status, logs, stop, retry",
    ),
    "show": ("RECIPE [--task NAME]", "examples as the model will see them: spans in colour, rates, lengths, padding"),
    "cache": ("RECIPE [--out DIR]", "build the token stores of a recipe beforehand"),
    "vocab": ("train|check|trim", "a SentencePiece model from text; what a vocabulary does to text; a smaller one"),
    "convert": ("SRC DST [--to hf|t5x|spanloom]", "a checkpoint in another format, every weight compared"),
    "migrate": ("GIN [--module tasks.py]", "a T5X gin file (and its SeqIO task module) as a recipe"),
    "inspect": ("SRC", "what a checkpoint is: format, architecture, step, optimizer, vocabulary, sentinels"),
    "report": (
        "RUN [RUN ...] --out report.html",
        "one page of one run or of several: curves, tables, fills, costs",
    ),
    "watch": ("RUN", "the same page live, while the run trains, for a browser on this machine"),
    "diff": ("RUN RUN", "which settings, data and versions differ between two runs"),
}
"""Command, its arguments and what it does; each is a module of this package with a function `main`."""
WITH_HUGE_PAGES = {"train", "pretrain", "finetune", "convert", "eval", "generate", "score", "fill"}
"""Commands that take much memory again and again: they begin anew, asking the system for huge pages."""
LISTING = {"recipes", "plan", "show", "inspect", "diff", "vocab check"}
"""What is there to be read: who has read enough of it may leave."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit code: 0 done, 1 failed, 2 not understood, 130 interrupted, 143 told to end
    (SIGTERM)."""
    words = list(sys.argv[1:] if argv is None else argv)
    _replace_closed_streams()
    debug = debugging(words)
    try:
        with sent_again(KeyboardInterrupt, lambda: signal.SIGINT):
            if argv is None:
                _prepare_process(words)
            return _carry_out(words)
    except BrokenPipeError:
        return _reader_gone(words)
    except (KeyboardInterrupt, Exception) as error:
        if argv is None and ended_by(error) is not None:
            _end_at_the_next_ctrl_c()
            _cancel_timers()
        return report(error, debug)
    finally:
        if argv is None:
            _end_at_the_next_ctrl_c()


def _prepare_process(words: list[str]) -> None:
    quiet_libtpu()
    _write_any_character()
    if words and words[0] in WITH_HUGE_PAGES and not {"-h", "--help"} & set(words):
        from spanloom.training.memory import use_huge_pages

        use_huge_pages()


def _end_at_the_next_ctrl_c() -> None:
    """The command is over: a Ctrl-C while its process takes its leave ends that at once, without a traceback."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _cancel_timers() -> None:
    """Who began one (JAX, to say after a minute that its look for TPUs takes long) may not have come to cancelling it,
    and Python would wait for it."""
    for thread in threading.enumerate():
        if isinstance(thread, threading.Timer):
            thread.cancel()


def _carry_out(words: list[str]) -> int:
    try:
        return _dispatch(words)
    except Terminated as stop:
        return report(stop, debug=False)
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    finally:
        _flush()


def _flush() -> None:
    """What nobody can take any more (a reader has gone, the disk is full) is noticed here, not when Python ends."""
    try:
        sys.stdout.flush()
    except OSError:
        _discard_output()
        raise


def _discard_output() -> None:
    """Has the interpreter's last flush succeed."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _replace_closed_streams() -> None:
    """Python has None for a stream that was closed before it began (`>&-`); what is written there is to vanish."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 (open until the end)


def _write_any_character() -> None:
    """What the terminal's encoding lacks, or is half a character in a file's name, is escaped: it ends no command."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def _reader_gone(words: list[str]) -> int:
    """The exit code once what reads the output (head, less) has gone: enough was read of a text, work was cut off."""
    _discard_output()
    if not words or {words[0], " ".join(words[:2])} & LISTING or {"-h", "--help", "help"} & set(words):
        return 0
    with contextlib.suppress(OSError):
        print(
            "spanloom: error: stopped, because what read the output has gone. Write it to a file (> log.txt) or let "
            "the reader read on, and give the same command again: what was saved is not lost",
            file=sys.stderr,
        )
    return FAILED


def _dispatch(words: list[str]) -> int:
    if not words or words[0] in ("-h", "--help", "help"):
        print(_help())
        return 0 if words else 2
    if words[0] in ("--version", "-V"):
        from spanloom import __version__

        print(f"spanloom {__version__}")
        return 0
    name, rest = words[0], words[1:]
    if name not in COMMANDS:
        hint = of_command(name) or did_you_mean(name, COMMANDS)
        raise UsageError(f"unknown command {name!r}{hint} (spanloom --help lists them)")
    code: int = importlib.import_module(f"spanloom.cli.{name}").main(rest)
    return code


def _help() -> str:
    lines = [
        "usage: spanloom COMMAND ...",
        "",
        "Train T5-family models from raw text to a model that Hugging Face loads.",
        "",
    ]
    for name, (arguments, text) in COMMANDS.items():
        lines += [f"  spanloom {name} {arguments}".rstrip(), f"      {text}"]
    lines += ["", "First steps: `spanloom train quickstart`. Flags of a command: `spanloom COMMAND --help`."]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
