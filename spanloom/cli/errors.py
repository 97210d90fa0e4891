"""How a command ends badly: one clear message, a traceback only where it helps, and the exit code."""

import errno
import os
import sys
import traceback
from pathlib import Path

from spanloom.pipeline.interrupts import Terminated

_PACKAGE = Path(__file__).resolve().parent.parent

USAGE = 2
"""Exit code of a command that was not understood."""
FAILED = 1
"""Exit code of a command that was understood and failed."""
INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells have it."""
TERMINATED = 143
"""Exit code after SIGTERM, likewise."""


class UsageError(Exception):
    """A command line that cannot be understood; exit code 2."""


class CommandError(Exception):
    """A command that cannot be carried out; the message names cause and fix. Exit code 1."""


def debugging(argv: list[str]) -> bool:
    """Whether tracebacks are wanted: --debug or SPANLOOM_DEBUG=1."""
    return "--debug" in argv or os.environ.get("SPANLOOM_DEBUG", "") not in ("", "0")


def report(error: BaseException, debug: bool, about: str = "") -> int:
    """Print the error on stderr, with what it is `about` before it, and return the exit code."""
    if (code := ended_by(error)) is not None:
        print(f"spanloom: {'interrupted' if code == INTERRUPTED else 'ended by SIGTERM'}", file=sys.stderr)
        return code
    if debug or not (_is_ours(error) or _of_memory(error)):
        traceback.print_exception(error)
    if isinstance(error, UsageError):
        print(f"spanloom: {error}", file=sys.stderr)
        return USAGE
    print(f"spanloom: error: {about}{_text(error)}", file=sys.stderr)
    return FAILED


def ended_by(error: BaseException) -> int | None:
    """The exit code where a signal is behind an error; None where none is.

    What is being imported when the signal comes raises an error of its own for it, as Python does for a class that is
    being made; libraries in C keep no more than its name. Errors of ours that a signal is not the cause of, such as of
    a disk that is full as the program takes its leave, say what they found, and are shown.
    """
    chain: BaseException | None = error
    while chain is not None:
        if isinstance(chain, KeyboardInterrupt | Terminated):
            return TERMINATED if isinstance(chain, Terminated) else INTERRUPTED
        ours = _is_ours(chain)
        if not ours and KeyboardInterrupt.__name__ in str(chain):
            return INTERRUPTED
        chain = chain.__cause__ or (None if ours or chain.__suppress_context__ else chain.__context__)
    return None


def _of_memory(error: BaseException) -> bool:
    """Whether memory ran out, of the host or of a device (JAX says so by a name in the message)."""
    from spanloom.scale.out_of_memory import memory_ran_out

    return isinstance(error, MemoryError) or (
        type(error).__name__ in ("JaxRuntimeError", "XlaRuntimeError") and memory_ran_out(str(error))
    )


def _is_ours(error: BaseException) -> bool:
    """Whether the message alone says what is wrong: our own classes, our own checks, and the file system's answers."""
    if type(error).__module__.split(".")[0] == "spanloom" or isinstance(error, OSError):
        return True
    frames = traceback.extract_tb(error.__traceback__)
    return isinstance(error, ValueError) and bool(frames) and _PACKAGE in Path(frames[-1].filename).resolve().parents


_FIXES = {
    errno.ENOSPC: "The disk is full: free some room",
    errno.EDQUOT: "Your share of the disk is used up: free some room",
    errno.EACCES: "Give yourself the right to read and write there, or choose another place",
    errno.EPERM: "Give yourself the right to read and write there, or choose another place",
    errno.EROFS: "Nothing can be written there: choose another place",
    errno.EISDIR: "A folder stands where a file belongs: move it away or choose another place",
    errno.ENOTDIR: "A file stands where a folder belongs: move it away or choose another place",
    errno.EEXIST: "Something else stands there: move it away or choose another place",
    errno.ENOENT: "Check the path",
    errno.ENAMETOOLONG: "Choose a shorter name",
    errno.EMFILE: "Too many files are open: raise the limit (ulimit -n)",
    errno.EIO: "The disk or the mount fails: check it",
}


def _text(error: BaseException) -> str:
    text = str(error) or type(error).__name__
    if _of_memory(error):
        return (
            f"out of memory ({text.splitlines()[0]}). What helps: a smaller --batch-size where the command takes "
            "one, shorter inputs, a smaller model, or more memory"
        )
    if isinstance(error, OSError) and type(error).__module__ == "builtins" and error.strerror:
        fix = _FIXES.get(error.errno or 0)
        name = error.filename2 or error.filename  # of a file that is written under another name first, its own
        where = f"{name}: " if name else ""
        return f"{where}{error.strerror}" + (f". {fix}." if fix else "")
    return text if _is_ours(error) else f"{type(error).__name__}: {text}"
