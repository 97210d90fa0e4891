"""A folder that appears whole or not at all: written beside its place under another name, then renamed."""

import contextlib
import glob
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from spanloom.conversion.errors import ConversionError
from spanloom.conversion.hf_vocabulary import MARK_NAME
from spanloom.pipeline.durable import explain_full_disk, sync_directory
from spanloom.pipeline.interrupts import ended_by_sigterm
from spanloom.settings.run_layout import CHECKPOINTS, FACTS, RUN_FILE, STORES, TENSORBOARD, is_converted

_RUN_FOLDERS = (CHECKPOINTS, STORES, TENSORBOARD)
"""What a run keeps in its directory, beside files."""


def check_destination(dst: Path) -> None:
    """Raise ConversionError if `dst` must not be written: it is neither new nor empty nor an earlier export.

    Nothing is written among a run's own files. The folder must be one that another can take the place of: where it is a
    mount, or holds the working directory, that would be seen only after hours of writing, or never.
    """
    asked, dst = dst, followed(dst)
    try:
        str(dst).encode()
    except UnicodeEncodeError:
        raise ConversionError(
            ascii(str(asked)), "is a name that is no UTF-8, or that the locale (LC_ALL) cannot read: choose another"
        ) from None
    if dst.is_symlink():
        raise ConversionError(asked, "is a link that leads to itself; name another folder")
    if os.path.ismount(dst):
        raise ConversionError(
            asked, "is a mounted disk, in whose place no folder can be put: name a folder inside of it"
        )
    if _stands_in(dst):
        raise ConversionError(
            asked,
            "holds the folder that you are in, and is replaced as a whole: name a folder in it, such as ./exported",
        )
    for folder in (dst, *dst.parents):
        of_a_run = folder.name in _RUN_FOLDERS and (folder.parent / RUN_FILE).is_file()
        whole = (folder / FACTS).is_file() or is_converted(folder)
        if of_a_run or (folder != dst and whole):
            raise ConversionError(
                asked, f"is among the files of a run or a checkpoint ({folder}); name a folder outside it"
            )
    _refuse_unwritable(asked, dst)
    if dst.exists() and not dst.is_dir():
        raise ConversionError(asked, "is a file; name a new folder for the export")
    if not dst.is_dir() or not any(dst.iterdir()):
        return
    if any((dst / name).exists() for name in (CHECKPOINTS, FACTS, RUN_FILE)):
        raise ConversionError(asked, "is a run or a checkpoint; an export never replaces one: name another folder")
    if not (dst / MARK_NAME).is_file():
        raise ConversionError(
            asked, "is not empty and not an earlier export, so it stays as it is: name another folder"
        )


def _refuse_unwritable(asked: Path, dst: Path) -> None:
    there = next(folder for folder in dst.parents if folder.exists())
    if not there.is_dir():
        raise ConversionError(asked, f"would lie in {there}, which is a file: name another folder")
    if not os.access(there, os.W_OK | os.X_OK):
        raise ConversionError(
            asked, f"nothing can be written in {there}: give yourself the right to write there, or name another folder"
        )


def _stands_in(folder: Path) -> bool:
    try:
        return Path.cwd().is_relative_to(folder)
    except FileNotFoundError:  # it was deleted
        return False


def followed(dst: Path) -> Path:
    """Where a folder is, links followed: what stays beside it while it is replaced is on its own disk, and links stay
    what they are."""
    return Path(os.path.realpath(dst))


@contextlib.contextmanager
def staged(dst: Path, check: Callable[[], None] = lambda: None) -> Iterator[Path]:
    """An empty folder to write into; on leaving, it is flushed to disk and becomes `dst`.

    `check` raises an error where `dst` must not be replaced. It is called before anything is written, once what a kill
    had left is put back, and again just before the folder takes its place, since hours lie between.

    An earlier export there is replaced; files in it that the export did not write (a .git folder, say) stay. After an
    error, Ctrl-C or SIGTERM `dst` is as it was, and after a kill, too (killed between two renames, it is put back by
    the next export); a half-written folder has a name that no reader looks at.
    """
    asked, dst = dst, followed(dst)
    recover(dst)
    check()
    dst.parent.mkdir(parents=True, exist_ok=True)
    partial = dst.with_name(f".{dst.name}.partial-{os.getpid()}")
    partial.mkdir()
    try:
        with ended_by_sigterm():
            with explain_full_disk(dst):
                yield partial
                _sync(partial)
            _check_again(asked, dst, check)
            _swap(partial, dst)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise


@contextlib.contextmanager
def scratch(dst: Path) -> Iterator[Path]:
    """An empty folder beside `dst` for what is needed to write that, and is removed: after an error, Ctrl-C or SIGTERM,
    too; after a kill, by the next export."""
    folder = _scratch(followed(dst))
    folder.parent.mkdir(parents=True, exist_ok=True)
    with ended_by_sigterm():
        try:
            shutil.rmtree(folder, ignore_errors=True)  # of a process that was killed and had the same number
            folder.mkdir()
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _scratch(dst: Path) -> Path:
    return dst.with_name(f".{dst.name}.scratch-{os.getpid()}")


def _check_again(asked: Path, dst: Path, check: Callable[[], None]) -> None:
    if followed(asked) != dst:
        raise ConversionError(asked, "has become a link to another place meanwhile: name another folder")
    check()


def _swap(partial: Path, dst: Path) -> None:
    replaced = dst.with_name(f".{dst.name}.replaced-{os.getpid()}")
    try:
        if dst.is_dir():
            dst.rename(replaced)
        partial.rename(dst)
    except BaseException:
        if replaced.is_dir() and not dst.exists():
            replaced.rename(dst)
        raise
    sync_directory(dst.parent)
    if replaced.is_dir():
        _carry_over(replaced, dst)
        shutil.rmtree(replaced)


def _carry_over(replaced: Path, dst: Path) -> None:
    """Move what the earlier export did not write itself."""
    own = _files_of_export(replaced)
    for path in replaced.iterdir():
        if path.name not in own and not (dst / path.name).exists():
            path.rename(dst / path.name)


def _files_of_export(folder: Path) -> set[str]:
    try:
        names = json.loads((folder / MARK_NAME).read_text(encoding="utf-8"))["files"]
        return {str(name) for name in names} | {MARK_NAME}
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return set()


def recover(dst: Path) -> None:
    """Finish what a killed export of the same folder left: put back a folder half replaced, remove half-written.

    A folder that somebody else has put there since stays as it is, and so does the one that it replaced.
    """
    dst = followed(dst)
    name = glob.escape(dst.name)
    for path in dst.parent.glob(f".{name}.replaced-*"):
        if not _dead(path):
            continue
        if (dst / MARK_NAME).is_file():
            _carry_over(path, dst)
            shutil.rmtree(path)
        elif not dst.exists() or (dst.is_dir() and not any(dst.iterdir())):
            path.rename(dst)
    for path in (*dst.parent.glob(f".{name}.partial-*"), *dst.parent.glob(f".{name}.scratch-*")):
        if _dead(path) and path != _scratch(dst):
            shutil.rmtree(path)


def _dead(path: Path) -> bool:
    number = path.name.rpartition("-")[2]
    if not number.isdecimal() or int(number) == os.getpid():
        return number == str(os.getpid())
    try:
        os.kill(int(number), 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False


def _sync(folder: Path) -> None:
    for place, _, names in os.walk(folder):
        for name in names:
            with (Path(place) / name).open("rb") as file:
                os.fsync(file.fileno())
        sync_directory(Path(place))
