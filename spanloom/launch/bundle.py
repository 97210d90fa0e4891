"""What is sent to the hosts: the repository of a recipe as it stands, with what is not committed, or the recipe alone;
and this very Spanloom. One archive, the same bytes for the same files, known by its hash."""

import gzip
import hashlib
import io
import json
import os
import stat
import subprocess
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import spanloom

LARGEST = 256 * 2**20
"""Bytes, before compression: more is data, which has no place in a repository that is sent to every host."""


class BundleError(ValueError):
    """The repository cannot be sent; the message names cause and fix."""


@dataclass(frozen=True)
class Bundle:
    """An archive (tar.gz) of `code/`, `package/spanloom/` and `bundle.json`, which has the hash of every file."""

    data: bytes
    recipe: str
    """The recipe as the hosts are to name it: a path below `code/`, or a shipped recipe's name."""
    directory: str
    """Where below `code/` the command was given."""
    commit: str | None
    """Of the repository; None outside of one."""
    changed: tuple[str, ...]
    """Files that differ from that commit."""
    files: int

    @property
    def hash(self) -> str:
        """SHA-256 of the archive, in hexadecimal digits."""
        return hashlib.sha256(self.data).hexdigest()

    def described(self) -> str:
        """For messages."""
        of = f"commit {self.commit[:12]}" if self.commit else "no git repository, so the recipe's file alone"
        changes = f", {len(self.changed)} files changed or new since" if self.changed else ""
        return f"{self.hash[:12]} ({of}{changes}; {self.files} files, {len(self.data) / 2**20:.1f} MiB)"


def make_bundle(word: str, source: Path | None, here: Path) -> Bundle:
    """The bundle for a recipe: the `word` it was named by and its file, None for what has none (a run directory).

    `here` is where the command is given. Raises BundleError.
    """
    package = Path(spanloom.__file__).resolve().parent
    contents = {f"package/spanloom/{name}": package / name for name in _package_files(package)}
    shipped = source is not None and source.resolve().parent == package / "recipes"
    recipe, directory = word, "code"
    commit: str | None = None
    changed: tuple[str, ...] = ()
    if source is None or shipped:
        top = repository(package)
        commit, changed = (None, ()) if top is None else _state(top)
    else:
        path = Path(os.path.abspath(source))
        top = repository(path.parent)
        if top is None:
            contents[f"code/{path.name}"], recipe = path, f"code/{path.name}"
        else:
            commit, changed = _state(top)
            contents |= {f"code/{name}": top / name for name in _repository_files(top)}
            inside = os.path.relpath(path.parent.resolve() / path.name, top)
            contents[f"code/{inside}"], recipe = path, f"code/{inside}"
            if here.resolve().is_relative_to(top):
                directory = os.path.normpath(f"code/{here.resolve().relative_to(top)}")
    _refuse_large(contents)
    return Bundle(_archive(contents, directory, commit, changed), recipe, directory, commit, changed, len(contents))


def repository(folder: Path) -> Path | None:
    """The top of the git repository around a folder; None where there is none, or no git."""
    try:
        found = subprocess.run(
            ["git", "-C", str(folder), "rev-parse", "--show-toplevel"], capture_output=True, text=True
        )
    except FileNotFoundError:
        return None
    if found.returncode and "dubious ownership" in found.stderr:
        raise BundleError(found.stderr.strip())
    return Path(found.stdout.removesuffix("\n")).resolve() if found.returncode == 0 else None


def _git(top: Path, *words: str) -> bytes:
    done = subprocess.run(["git", "-C", str(top), *words], capture_output=True)
    if done.returncode:
        raise BundleError(f"git {' '.join(words)} failed in {top}: {done.stderr.decode(errors='replace').strip()}")
    return done.stdout


def _state(top: Path) -> tuple[str | None, tuple[str, ...]]:
    """The commit that is checked out (None before the first), and the files that differ from it."""
    head = subprocess.run(
        ["git", "-C", str(top), "rev-parse", "--verify", "-q", "HEAD"], capture_output=True, text=True
    )
    entries = _git(top, "status", "--porcelain", "-z", "--no-renames", "--untracked-files=all").split(b"\0")
    return head.stdout.strip() or None, tuple(os.fsdecode(entry[3:]) for entry in entries if entry)


def _repository_files(top: Path) -> Iterator[str]:
    """Files that are tracked, or new and not ignored, those of submodules too."""
    listed = _git(top, "ls-files", "-z", "--cached", "--others", "--exclude-standard").split(b"\0")
    for name in dict.fromkeys(os.fsdecode(one).rstrip("/") for one in listed if one):
        path = top / name
        if path.is_dir() and not path.is_symlink():
            yield from (f"{name}/{inner}" for inner in _repository_files(path)) if (path / ".git").exists() else ()
        elif path.is_symlink() or path.is_file():  # one that was deleted and not committed is in neither
            yield name


def _package_files(package: Path) -> Iterator[str]:
    for folder, folders, names in os.walk(package):
        folders[:] = sorted(name for name in folders if name != "__pycache__")
        yield from (os.path.relpath(os.path.join(folder, name), package) for name in sorted(names))


def _refuse_large(contents: dict[str, Path]) -> None:
    sizes = {name: path.lstat().st_size for name, path in contents.items()}
    if sum(sizes.values()) > LARGEST:
        worst = sorted(sizes, key=lambda name: -sizes[name])[:3]
        named = ", ".join(f"{name.removeprefix('code/')} ({sizes[name] / 2**20:.0f} MiB)" for name in worst)
        raise BundleError(
            f"the repository has {sum(sizes.values()) / 2**20:.0f} MiB of files, and {LARGEST / 2**20:.0f} are sent at "
            f"most: {named}. Keep data where the hosts see it, and out of git's view by .gitignore"
        )


def _archive(contents: dict[str, Path], directory: str, commit: str | None, changed: tuple[str, ...]) -> bytes:
    hashes, members = {}, []
    for name in sorted(contents):
        info, data = _member(name, contents[name])
        hashes[name] = hashlib.sha256(os.fsencode(info.linkname) if info.issym() else data).hexdigest()
        members.append((info, data))
    about = {"commit": commit, "changed": changed, "files": hashes, "spanloom": spanloom.__version__}
    text = json.dumps(about, sort_keys=True, indent=1).encode("utf-8", "surrogatepass")
    members.append((_plain("bundle.json", len(text)), text))
    folder = tarfile.TarInfo(directory)
    folder.type, folder.mode = tarfile.DIRTYPE, 0o755
    packed = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=packed, mode="wb", mtime=0, compresslevel=6) as file,
        tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        archive.addfile(folder)
        for info, data in members:
            archive.addfile(info, io.BytesIO(data))
    return packed.getvalue()


def _member(name: str, path: Path) -> tuple[tarfile.TarInfo, bytes]:
    """A file as the archive has it: no owner and no times, so that equal files make equal archives."""
    if path.is_symlink():
        target = os.readlink(path)
        if os.path.isabs(target) or os.path.normpath(f"{os.path.dirname(name)}/{target}").split("/")[0] != "code":
            raise BundleError(
                f"{path} is a link to {target}, outside of the repository, where hosts have something else: put the "
                "file itself there, or name it in .gitignore"
            )
        info = _plain(name, 0)
        info.type, info.linkname = tarfile.SYMTYPE, target
        return info, b""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise BundleError(f"{path} cannot be read ({error.strerror}), so it cannot be sent") from None
    info = _plain(name, len(data))
    info.mode = 0o755 if path.stat().st_mode & stat.S_IXUSR else 0o644
    return info, data


def _plain(name: str, size: int) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.size, info.mode = size, 0o644
    return info
