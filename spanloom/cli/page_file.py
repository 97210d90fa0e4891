"""The file that a page is written into: what is wrong with it is said before the work, not after."""

from pathlib import Path

from spanloom.cli.errors import CommandError, UsageError

_PAGE = (b"<!doctype html", b"<html")


def page_file(flag: str, name: str, example: str) -> Path:
    """The file that `flag` names; `example`: what such a file may be called.

    Raises UsageError and CommandError where no page can be written there."""
    path = Path(name)
    if not name.strip():
        raise UsageError(f"{flag} is empty: name a file (is a variable of the shell unset?)")
    if "://" in name:
        raise CommandError(f"{flag} {name} is an address: name a file of this machine, and copy it there")
    if path.is_dir():
        raise CommandError(f"{flag} {name} is a directory: name a file in it, such as {path / example}")
    if path.exists() and not path.is_file():
        raise CommandError(
            f"{flag} {name} is a device, pipe or socket: name a file, which is written whole or not at all"
        )
    if path.is_file() and not _is_page(path):
        raise CommandError(f"{flag} {name} is there already, and no page: it stays as it is; name another file")
    if not path.parent.is_dir():
        raise CommandError(f"{flag} {name}: there is no folder {path.parent}; make it, or name another file")
    return path


def _is_page(path: Path) -> bool:
    """Whether a file is a page, which another may take the place of, or nothing yet."""
    with path.open("rb") as file:
        begin = file.read(64).lower()
    return not begin or begin.lstrip().startswith(_PAGE)
