"""Files at s3://, gs://, https:// and the like, through fsspec: read in blocks, taken up again where one broke off.

A block that does not come is asked for again, after waits that double; what came of it is kept, so that nothing is
read twice or left out. Credentials are those that the file system's own library finds in the environment.
"""

import io
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar
from urllib.parse import parse_qsl, urlsplit

from spanloom.settings.nearest import nearest
from spanloom.tasks import hub_token
from spanloom.tasks.read_report import BadInputError, ReadReport

T = TypeVar("T")

BLOCK = 1 << 22
"""Bytes asked for at once, at most, beyond what is read: a file read from front to end comes in such blocks."""
TRIES = 6
"""Times that a block is asked for before its file is given up."""
FIRST_WAIT = 0.5
"""Seconds before the second try; the wait doubles with each."""

_FIRST_BLOCK = 1 << 16  # a header, a footer or a column is often all that is wanted from one place
_EXTRAS = {"s3": "s3", "s3a": "s3", "gs": "gcs", "gcs": "gcs", "http": "http", "https": "http", "hf": "hub"}
_LIBRARIES = {"s3": "s3fs", "gcs": "gcsfs", "http": "aiohttp", "hub": "huggingface_hub"}
_CREDENTIALS = {
    "s3": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, AWS_PROFILE, or ~/.aws; AWS_ENDPOINT_URL for another server",
    "gcs": "GOOGLE_APPLICATION_CREDENTIALS, or `gcloud auth application-default login`",
    "hub": "HF_TOKEN, or `hf auth login`",
}
_FINAL = (FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError, NotImplementedError, ValueError)
_FINAL_NAMES = ("NoCredentialsError", "PartialCredentialsError", "ProfileNotFound", "NoSuchBucket")
_SECRETS = ("token", "signature", "sig", "password", "secret", "credential")
_VERSIONS = ("ETag", "etag", "generation", "md5Hash", "version_id")
_TIMES = ("LastModified", "mtime", "updated", "last_modified", "created")


@dataclass(frozen=True)
class Facts:
    """What a server says of a path."""

    is_folder: bool
    size: int | None
    """Bytes; None where the server does not say."""
    version: str
    """ETag or the like, which changes with the content; empty where there is none."""
    changed: str
    """Time of the last change; empty where it is not told."""

    @property
    def identity(self) -> tuple[int | None, str]:
        """What changes with the content; listings and single files may tell the time in two ways, but not a version."""
        return self.size, self.version or self.changed


def is_remote(path: str) -> bool:
    """Whether a path names a file system of its own: s3://bucket/name."""
    return "://" in path


def refuse_secrets(path: str) -> None:
    """Raises BadInputError for a path with a password or a token in it: run.json and messages would hold it."""
    parts = urlsplit(path)
    keys = [key for key, _ in parse_qsl(parts.query)]
    if parts.password or any(secret in key.lower() for key in keys for secret in _SECRETS):
        shown = f"{parts.scheme}://...{parts.path}"
        fix = "Give credentials in the environment, never in a path: paths are written down with the run"
        raise BadInputError(shown, "holds a password or a token", fix, reason="secret in a path")


def normalized(path: str) -> str:
    """The path under the one name that listing its folder would give it."""
    system, name = system_of(path)
    return str(system.unstrip_protocol(name))


def facts_of(path: str, report: ReadReport) -> Facts:
    """What the server says of a file or a folder.

    Raises FileNotFoundError where there is neither, and BadInputError where the server cannot be asked.
    """
    system, name = system_of(path)
    info = retried(path, lambda: system.info(name), report)
    return Facts(
        is_folder=info.get("type") == "directory",
        size=info.get("size"),
        version=next((str(info[key]) for key in _VERSIONS if info.get(key)), ""),
        changed=next((str(info[key]) for key in _TIMES if info.get(key)), ""),
    )


def forget(path: str) -> None:
    """Drop what was remembered of a file system's listings: files may have come since."""
    system, _ = system_of(path)
    system.invalidate_cache()


def files_like(pattern: str, report: ReadReport) -> list[str]:
    """The files that match a glob, sorted."""
    return _matching(pattern, report, folders=False)


def folders_like(pattern: str, report: ReadReport) -> list[str]:
    """The folders that match a glob, sorted."""
    return _matching(pattern, report, folders=True)


def _matching(pattern: str, report: ReadReport, folders: bool) -> list[str]:
    system, name = system_of(pattern)
    found = retried(pattern, lambda: system.glob(name, detail=True), report)
    names = [key for key, info in found.items() if (info.get("type") == "directory") == folders]
    return sorted(str(system.unstrip_protocol(key)) for key in names)


def names_in(folder: str, report: ReadReport) -> list[str]:
    """The names in a folder, sorted. Raises FileNotFoundError where there is none."""
    system, name = system_of(folder)
    found = retried(folder, lambda: system.ls(name, detail=False), report)
    names = {str(path).rstrip("/").rsplit("/", 1)[-1] for path in found}
    return sorted(names - {""})


def names_near(path: str) -> str:
    """What else is in a path's folder, for a message; empty where nobody can say."""
    folder, name = path.rstrip("/").rsplit("/", 1)
    try:
        names = names_in(folder, ReadReport())
    except (BadInputError, OSError):
        return ""
    near = nearest(name, names, likeness=0.4, dotted=False) or names[:3]
    more = ", ..." if len(names) > len(near) else ""
    return f"; {folder} holds {', '.join(near)}{more}" if near else ""


class RemoteFile(io.RawIOBase):
    """A file open for reading, with random access; `report` counts the connections that broke."""

    def __init__(self, path: str, report: ReadReport) -> None:
        """Raises FileNotFoundError or BadInputError, as `facts_of`."""
        super().__init__()
        self.path = path
        self._report = report
        self._facts = facts_of(path, report)
        if self._facts.size is None:
            raise BadInputError(path, "the server does not say how long it is", "Copy it to a local disk")
        self.size = self._facts.size
        self._at = 0
        self._block, self._block_at, self._ahead = b"", 0, _FIRST_BLOCK

    def readable(self) -> bool:
        """Yes."""
        return True

    def seekable(self) -> bool:
        """Yes."""
        return True

    def tell(self) -> int:
        """The place that is read next, in bytes."""
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Move there, and say where that is."""
        self._at = max(0, offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self.size}[whence])
        return self._at

    def read(self, size: int | None = -1) -> bytes:
        """So many bytes, fewer only at the end. Raises BadInputError where they do not come, after TRIES."""
        end = self.size if size is None or size < 0 else min(self._at + size, self.size)
        if end <= self._at:
            return b""
        block_end = self._block_at + len(self._block)
        if not (self._block_at <= self._at and end <= block_end):
            follows = bool(self._block) and self._block_at <= self._at <= block_end
            self._ahead = min(2 * self._ahead, BLOCK) if follows else _FIRST_BLOCK
            have = self._block[self._at - self._block_at :] if follows else b""
            start = self._at + len(have)
            self._block = have + self._fetch(start, max(end, min(start + self._ahead, self.size)))
            self._block_at = self._at
        begin, self._at = self._at - self._block_at, end
        return self._block[begin : end - self._block_at]

    def readall(self) -> bytes:
        """All that is left."""
        return self.read()

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer; the number of bytes put there."""
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def _fetch(self, start: int, end: int) -> bytes:
        system, name = system_of(self.path)
        pieces: list[bytes] = []
        begin, before = start, self._report.retried
        while start < end:
            piece = retried(self.path, partial(self._range, system, name, start, end), self._report)
            pieces.append(piece)
            start += len(piece)
            if start < end:
                self._report.retry(f"{self.path}: the connection ended at byte {start:,}")
        if self._report.retried != before or (begin > 0 and end == self.size):
            self._check_same()  # lest blocks of two versions be joined
        return b"".join(pieces)

    def _range(self, system: Any, name: str, start: int, end: int) -> bytes:
        piece: bytes = system.cat_file(name, start=start, end=end)
        if len(piece) > end - start:
            fix = "Copy the file to a local disk"
            raise BadInputError(self.path, "the server sends whole files only, not the part asked for", fix)
        if not piece:
            raise ConnectionError(f"no byte came from byte {start:,} on")
        return piece

    def _check_same(self) -> None:
        forget(self.path)
        if facts_of(self.path, self._report).identity != self._facts.identity:
            raise BadInputError(self.path, "changed while it was being read", "Start again once it is whole")


def retried(path: str, act: Callable[[], T], report: ReadReport) -> T:
    """What `act` gives, tried again where a connection fails.

    Raises FileNotFoundError as it is, and BadInputError for what no further try mends, or after TRIES.
    """
    wait = FIRST_WAIT
    for attempt in range(1, TRIES + 1):
        try:
            return act()
        except (FileNotFoundError, BadInputError):
            raise
        except Exception as error:  # each library has errors of its own for a dropped connection
            if _protocol(path) == "hf" and hub_token.is_odd(error):
                what = f"cannot be read: {hub_token.ODD}"
                raise BadInputError(path, what, hub_token.FIX, reason="unreadable file") from None
            if _is_final(error):
                raise _refused(path, error) from error
            if attempt == TRIES:
                what = f"cannot be read, after {TRIES} tries: {_told(error)}"
                raise BadInputError(path, what, "Check the network and the address", reason="unreachable") from error
            report.retry(f"{path}: {_told(error)}")
            time.sleep(wait)
            wait *= 2
    raise AssertionError("unreachable")


def _is_final(error: Exception) -> bool:
    status = getattr(error, "status", None)  # of HTTP: 408 and 429 ask for patience
    denied = isinstance(status, int) and 400 <= status < 500 and status not in (408, 429)
    return denied or isinstance(error, _FINAL) or type(error).__name__ in _FINAL_NAMES


def _refused(path: str, error: Exception) -> BadInputError:
    extra = _EXTRAS.get(_protocol(path), "")
    where = f"; credentials come from the environment: {_CREDENTIALS[extra]}" if extra in _CREDENTIALS else ""
    return BadInputError(path, f"cannot be read: {_told(error)}", f"Check the path{where}", reason="unreadable file")


def _told(error: Exception) -> str:
    said = str(error).strip().splitlines()
    return f"{type(error).__name__}: {said[0]}" if said else type(error).__name__


def _protocol(path: str) -> str:
    return path.partition("://")[0].rpartition("::")[2].lower()


def system_of(path: str) -> tuple[Any, str]:
    """The file system of a path (fsspec's), and the path as it calls it. Raises BadInputError where it is unknown."""
    import fsspec

    protocol = _protocol(path)
    try:
        system, name = fsspec.core.url_to_fs(path)
    except ImportError as error:
        extra = _EXTRAS.get(protocol, "")
        library = _LIBRARIES.get(extra, "")
        fix = f"pip install 'spanloom[{extra}]'" if extra else f"pip install what it asks for: {error}"
        what = f"{protocol}:// needs {library}, which is not installed" if library else str(error)
        raise BadInputError(path, what, fix, reason="missing package") from error
    except ValueError as error:
        known = "s3://, gs://, https:// and what else fsspec knows are read"
        raise BadInputError(path, str(error), f"Check the address: {known}", reason="unknown protocol") from error
    return system, name
