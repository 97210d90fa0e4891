"""An export published on the Hugging Face Hub: what differs is uploaded in one commit, and then looked at again.

Every attempt begins by asking what is there, so that one after a lost connection, a kill or a lost answer goes on from
what did arrive: large files that the Hub has are not sent again, and a commit that was made is not made twice.
"""

import hashlib
import json
import re
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import spanloom
from spanloom.conversion.errors import ConversionError
from spanloom.conversion.hf_vocabulary import MARK_NAME
from spanloom.conversion.hub_errors import HubError, PassingError, ask
from spanloom.conversion.hub_mark import blob_id, of_one_model, published
from spanloom.conversion.huggingface import read_lineage
from spanloom.conversion.model_card import CARD_NAME
from spanloom.conversion.trained_model import Lineage
from spanloom.pipeline.interrupts import ended_by_sigterm

_GIT_FILES = {".gitattributes", ".gitignore"}
"""What the Hub, or git, puts into a repository by itself."""
_LARGEST_MARK = 10**7
_WAITS = (2.0, 8.0, 30.0)
"""Seconds before each further attempt; within one the library tries single requests again by itself."""


@dataclass(frozen=True)
class Repository:
    """Where an export is to be published."""

    name: str
    """Owner and name, user/name."""
    private: bool = False
    """Make a new repository private; one that is public is refused."""
    branch: str | None = None
    """Branch to write, made where there is none; unset: main."""
    overwrite: bool = False
    """Replace what is there, also another model or a card that was edited on the Hub (the history keeps it)."""


@dataclass(frozen=True)
class Pushed:
    """What a push did."""

    url: str
    """Where the model is to be seen."""
    private: bool
    """Whether only those may who are let in."""
    sent: tuple[str, ...]
    """Files uploaded; none if all was there."""
    removed: tuple[str, ...]
    """Files of an earlier model removed."""
    kept: bool
    """Whether a card that was edited on the Hub was left as it is."""

    def describe(self) -> str:
        """The push as lines for a terminal."""
        seen = "private" if self.private else "public"
        done = (
            f"pushed {len(self.sent)} files" if self.sent or self.removed else "nothing to push: all is there already"
        )
        removed = f", removed {', '.join(self.removed)}" if self.removed else ""
        lines = [f"{done}{removed}: {self.url} ({seen})"]
        if self.kept:
            lines.append(f"note: {CARD_NAME} was edited on the Hub and stays; --overwrite replaces it by the new card")
        return "\n".join(lines)


@dataclass(frozen=True)
class _There:
    """What a repository holds."""

    commit: str | None
    """The branch's last; None: there is no such repository."""
    private: bool = False
    on_branch: bool = True
    """Whether the branch asked for exists."""
    files: Mapping[str, str] | None = None
    """Name -> SHA-256 of a large file, git's id of a small one."""
    mark: Mapping[str, Any] | None = None
    """What an export there says of itself, if there is one."""

    @property
    def names(self) -> set[str]:
        """Files that somebody put there."""
        return set(self.files or ()) - _GIT_FILES


def check_name(name: str) -> None:
    """Raise HubError if `name` is not user/name as the Hub has it."""
    part = r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9_])?"
    if not re.fullmatch(f"{part}/{part}", name) or len(name) > 96 or re.search(r"--|\.\.|\.git$", name):
        raise HubError(
            f"{name!r} is no repository of the Hub: name it as user/name, of letters, digits, '-', '_' and '.', at "
            "most 96 characters"
        )


def check_access(repository: Repository, lineage: Lineage) -> None:
    """Ask the Hub, before anything is converted, whether a model may be published there; nothing is changed there.

    Raises HubError where huggingface_hub is missing, there is no token or it does not do, the owner is somebody else,
    the repository is public and was to be private, or it holds anything but an earlier export of the same model (unless
    `overwrite`).
    """
    check_name(repository.name)
    api = _api()
    from huggingface_hub import get_token

    if not get_token():
        raise HubError(
            f"{repository.name}: there is no token to write with: set HF_TOKEN, or run `hf auth login` once (a token "
            "with the right to write is made in your settings on the Hub)"
        )
    user = ask(repository.name, api.whoami)
    _refuse_reader(repository, user)
    there = _look(api, repository)
    if there.commit is None:
        _refuse_other_owner(repository, user)
    _refuse_public(repository, there)
    _refuse_other_model(repository, there, lineage)


def push(folder: Path, repository: Repository, progress: Callable[[str], None] = lambda line: None) -> Pushed:
    """Publish the export in `folder`; files there that the export did not write are not sent.

    Raises HubError if it cannot be done; the folder stays, and the same push again goes on where this one stopped.
    ConversionError where the folder is no whole export.
    """
    check_name(repository.name)
    folder = folder.absolute()
    local = _local_files(folder)
    stays = f"{folder} is whole and stays: give the same command again, and what has arrived is not sent again"
    for wait in (*_WAITS, None):
        try:
            return _attempt(folder, local, repository, progress)
        except PassingError as error:
            if wait is None:
                raise HubError(f"{error}. {stays}") from None
            progress(f"{error}; trying again in {wait:g} s")
            time.sleep(wait)
        except HubError as error:
            raise HubError(f"{error}. {stays}") from None
    raise AssertionError("the last attempt returns or raises")


def _attempt(
    folder: Path, local: Mapping[str, Path | bytes], repository: Repository, progress: Callable[[str], None]
) -> Pushed:
    api, name = _api(), repository.name
    there = _look(api, repository)
    _refuse_public(repository, there)
    _refuse_other_model(repository, there, read_lineage(folder))
    if there.commit is None:
        ask(name, lambda: api.create_repo(name, private=repository.private or None, exist_ok=True))
        there = _look(api, repository)
    if not there.on_branch:
        ask(name, lambda: api.create_branch(name, branch=repository.branch, exist_ok=True))
        there = _look(api, repository)
    kept = _card_was_edited(there) and not repository.overwrite
    wanted = {file: content for file, content in local.items() if not (kept and file == CARD_NAME)}
    sent = _different(wanted, there)
    removed = sorted(_of_earlier_models(repository, there) - set(local))
    place = f"{api.endpoint}/{name}" + (f"/tree/{repository.branch}" if repository.branch else "")
    if sent or removed:
        size = sum(_size(local[file]) for file in sent) / 2**20
        progress(f"pushing {len(sent)} of {len(local)} files, {size:,.1f} MiB, to {place}")
        commit = _commit(api, repository, there, folder, {file: local[file] for file in sent}, removed)
        _check_arrived(wanted, removed, _look(api, repository, commit), name)
    return Pushed(place, there.private, tuple(sent), tuple(removed), kept)


def _commit(
    api: Any,
    repository: Repository,
    there: _There,
    folder: Path,
    sent: Mapping[str, Path | bytes],
    removed: Iterable[str],
) -> str:
    """Make one commit of all, on top of what was looked at and nothing else; its id."""
    from huggingface_hub import CommitOperationAdd, CommitOperationDelete

    lineage = read_lineage(folder)
    step = "" if lineage.step is None else f", step {lineage.step:,}"
    operations = [
        *(CommitOperationAdd(file, content) for file, content in sent.items()),
        *(CommitOperationDelete(file) for file in removed),
    ]
    told = ask(
        repository.name,
        lambda: api.create_commit(
            repository.name,
            operations,
            commit_message=f"{lineage.home.name}{step}",
            commit_description=f"Exported by Spanloom {spanloom.__version__}.",
            revision=repository.branch,
            parent_commit=there.commit,
        ),
    )
    return str(told.oid)


def _look(api: Any, repository: Repository, commit: str | None = None) -> _There:
    """What is there now, or at a commit."""
    from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError, RevisionNotFoundError

    def about(revision: str | None) -> Any:
        try:
            return api.model_info(repository.name, revision=revision, files_metadata=True)
        except GatedRepoError:
            raise
        except RevisionNotFoundError:
            if revision is None or commit is not None:
                raise
            return "no branch"
        except RepositoryNotFoundError:
            return None

    on_branch = True
    info = ask(repository.name, lambda: about(commit or repository.branch))
    if info == "no branch":
        on_branch, info = False, ask(repository.name, lambda: about(None))  # the new branch begins there
    if info is None:
        return _There(commit=None)
    siblings = info.siblings or []
    files = {one.rfilename: str(one.lfs["sha256"] if one.lfs else one.blob_id) for one in siblings}
    size = next((one.size for one in siblings if one.rfilename == MARK_NAME), None)
    mark = _mark(api, repository.name, info.sha) if size is not None and size <= _LARGEST_MARK else None
    return _There(info.sha, bool(info.private), on_branch, files, mark)


def _mark(api: Any, name: str, commit: str) -> Mapping[str, Any] | None:
    from huggingface_hub.utils import disable_progress_bars

    disable_progress_bars("huggingface_hub.http_get")
    with ended_by_sigterm(), tempfile.TemporaryDirectory(prefix="spanloom-") as folder:
        path = Path(ask(name, lambda: api.hf_hub_download(name, MARK_NAME, revision=commit, local_dir=folder)))
        try:
            found = json.loads(path.read_bytes())
        except (ValueError, RecursionError):
            return None
    return found if isinstance(found, dict) else None


def _local_files(folder: Path) -> dict[str, Path | bytes]:
    """What is published of an export: what it wrote, its mark without the machine's paths."""
    mark = json.loads((folder / MARK_NAME).read_text(encoding="utf-8"))
    names = sorted(str(name) for name in mark["files"])
    if strange := [name for name in names if "/" in name or not (folder / name).is_file()]:
        raise ConversionError(folder, f"is not a whole export: {strange[0]} is not among its files. Export it anew")
    return {**{name: folder / name for name in names}, MARK_NAME: published(folder)}


def _different(wanted: Mapping[str, Path | bytes], there: _There) -> list[str]:
    """Files that the repository lacks, or has otherwise."""
    return [file for file, content in wanted.items() if not _is_there(content, (there.files or {}).get(file))]


def _is_there(content: Path | bytes, known: str | None) -> bool:
    if known is None:
        return False
    if len(known) == 64:
        return _sha256(content) == known
    return blob_id(content) == known


def _sha256(content: Path | bytes) -> str:
    if isinstance(content, bytes):
        return hashlib.sha256(content).hexdigest()
    with content.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _size(content: Path | bytes) -> int:
    return len(content) if isinstance(content, bytes) else content.stat().st_size


def _of_earlier_models(repository: Repository, there: _There) -> set[str]:
    """Files that must not stay beside ours: those of an earlier export, shards that are no longer; with `overwrite`
    all, as another model's weights or tokenizer would be loaded in place of ours.
    """
    if repository.overwrite and there.mark is None:
        return there.names
    listed = (there.mark or {}).get("files")
    return {str(file) for file in listed} & there.names if isinstance(listed, list) else set()


def _card_was_edited(there: _There) -> bool:
    card = (there.files or {}).get(CARD_NAME)
    return card is not None and card != (there.mark or {}).get("card")


def _check_arrived(wanted: Mapping[str, Path | bytes], removed: Iterable[str], there: _There, name: str) -> None:
    if wrong := [*_different(wanted, there), *(there.names & set(removed))]:
        raise HubError(
            f"{name}: after the commit {', '.join(wrong[:3])} {'is' if len(wrong) == 1 else 'are'} not there as sent "
            "(does a .gitignore there leave files out?)"
        )


def _refuse_reader(repository: Repository, user: Mapping[str, Any]) -> None:
    access = (user.get("auth") or {}).get("accessToken") or {}
    if access.get("role") == "read":
        raise HubError(
            f"{repository.name}: your token ({user.get('name')}'s) may only read. Take one of the kind 'write', or a "
            "fine-grained one with the right to write there"
        )


def _refuse_other_owner(repository: Repository, user: Mapping[str, Any]) -> None:
    """A repository that is to be made belongs to the user or to one of the user's organisations."""
    owner = repository.name.split("/")[0]
    orgs = [str(one.get("name")) for one in user.get("orgs") or () if isinstance(one, dict)]
    kind = ((user.get("auth") or {}).get("accessToken") or {}).get("role")
    if kind == "write" and owner.lower() not in (str(user.get("name")).lower(), *(org.lower() for org in orgs)):
        mine = ", ".join(f"{one}/{repository.name.split('/')[1]}" for one in (str(user.get("name")), *orgs))
        raise HubError(f"{repository.name}: {owner} is neither you nor an organisation of yours. Yours are {mine}")


def _refuse_public(repository: Repository, there: _There) -> None:
    if repository.private and there.commit is not None and not there.private:
        raise HubError(
            f"{repository.name}: is public, and --private was asked for. Make it private in its settings on the Hub "
            "first, or leave out --private"
        )


def _refuse_other_model(repository: Repository, there: _There, lineage: Lineage) -> None:
    if repository.overwrite or not there.names or (there.mark is not None and of_one_model(there.mark, lineage)):
        return
    if there.mark is None:
        some = ", ".join(sorted(there.names)[:3])
        what = f"holds what no export of Spanloom wrote ({some}{', ...' if len(there.names) > 3 else ''})"
    else:
        what = f"holds another model ({there.mark.get('origin') or 'whose origin it does not say'})"
    raise HubError(
        f"{repository.name}: {what}. Name another repository, or give --overwrite, which replaces it (the history on "
        "the Hub keeps what was)"
    )


def _api() -> Any:
    try:
        from huggingface_hub import HfApi
    except ImportError as error:
        raise HubError(f"--push needs the package huggingface_hub ({error}): pip install 'spanloom[hub]'") from None
    return HfApi(library_name="spanloom", library_version=spanloom.__version__)
