"""A list of a directory's files with sizes and CRC-32s, which tells a damaged checkpoint from a whole one."""

import hashlib
import json
import os
import zlib
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from spanloom.pipeline.durable import sync_directory, write_file

MANIFEST = "manifest.json"
BLOCK = 1 << 22  # bytes read at a time


class DamagedError(RuntimeError):
    """A file is missing, shorter or other than when it was written; the message names it."""


def seal(directory: Path) -> int:
    """Flush every file of `directory` to disk and list them in its manifest; returns their bytes together."""
    flush(directory)
    paths = _files(directory)
    files = {
        path.relative_to(directory).as_posix(): {"bytes": path.stat().st_size, "crc32": crc32}
        for path, crc32 in zip(paths, _sums(paths), strict=True)
    }
    text = json.dumps(files, indent=1, sort_keys=True)
    # The manifest carries its own sum, so that damage to it is told apart from damage to a file.
    whole = json.dumps({"files": files, "crc32": zlib.crc32(text.encode())}, indent=1)
    write_file(directory / MANIFEST, lambda file: file.write(whole.encode()))
    return sum(entry["bytes"] for entry in files.values())


def flush(directory: Path) -> None:
    """Everything below `directory` is on disk when this returns."""
    for folder, _, names in os.walk(directory):
        for name in names:
            with (Path(folder) / name).open("rb") as file:
                os.fsync(file.fileno())
        sync_directory(Path(folder))


def fingerprint(directory: Path) -> str:
    """SHA-256, in hexadecimal, of the manifest, which has the sums of all files. Raises OSError where there is none."""
    return hashlib.sha256((directory / MANIFEST).read_bytes()).hexdigest()


def verify(directory: Path) -> None:
    """Raise DamagedError, naming the file and what is wrong, unless `directory` is as `seal` left it."""
    listed = {directory / name: entry for name, entry in read_manifest(directory / MANIFEST).items()}
    for path, entry in listed.items():
        if not path.is_file():
            raise DamagedError(f"{path} is missing")
        if (size := path.stat().st_size) != entry["bytes"]:
            raise DamagedError(f"{path} has {size} bytes, but {entry['bytes']} were written")
    for (path, entry), crc32 in zip(listed.items(), _sums(listed), strict=True):
        if crc32 != entry["crc32"]:
            raise DamagedError(f"{path} holds other bytes than were written (CRC-32 differs)")


def read_manifest(path: Path) -> dict[str, Any]:
    """The files that the manifest `path` lists: size and CRC-32 by name. Raises DamagedError if it is damaged."""
    if not path.is_file():
        raise DamagedError(f"{path} is missing")
    try:
        whole = json.loads(path.read_text())
        files: dict[str, Any] = whole["files"]
        text = json.dumps(files, indent=1, sort_keys=True)
        if zlib.crc32(text.encode()) != whole["crc32"]:
            raise DamagedError(f"{path} holds other bytes than were written (CRC-32 differs)")
        if not all(type(entry[name]) is int for entry in files.values() for name in ("bytes", "crc32")):
            raise TypeError("sizes and sums are whole numbers")
    except OSError as error:
        raise DamagedError(f"{path} cannot be read ({error.strerror})") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise DamagedError(f"{path} is not the list of files that was written") from None
    return files


def _files(directory: Path) -> list[Path]:
    return sorted(path for path in directory.rglob("*") if path.is_file() and path != directory / MANIFEST)


def _sums(paths: Iterable[Path]) -> Iterator[int]:
    """The CRC-32 of each file, in order, by all cores: one core sums more slowly than a disk reads."""
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        yield from threads.map(_crc32, paths)


def _crc32(path: Path) -> int:
    value = 0
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            value = zlib.crc32(block, value)
    return value
