"""A file read whole, if it is a file, and of a size that such files have: a link to a device has no end."""

import os
import stat
from pathlib import Path

from spanloom.conversion.errors import ConversionError

MOST = 1 << 28
"""Bytes; the largest JSON files and vocabularies have a tenth of that."""


def read_whole(path: Path, most: int = MOST) -> bytes:
    """The content. Raises ConversionError for what is too large or no file, and OSError as opening does."""
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    with os.fdopen(handle, "rb") as file:  # of a pipe that nobody writes to, opening alone would wait for ever
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise ConversionError(path, "is no file, but a folder, a device or a pipe: copy the checkpoint again")
        if found.st_size > most:
            raise ConversionError(path, f"has {found.st_size:,} bytes, and such files {most:,} at most")
        return file.read(found.st_size)
