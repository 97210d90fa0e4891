"""A launch on disk, on the machine that it was started from: what it is, how it stands, and its logs.

~/.spanloom/launches/ID/launch.json   what was asked for; never changes
                       bundle.tar.gz  what is sent, the very same at every new start
                       state.json     how it stands
                       watch.log      what happened, in words
                       logs/A-P.log   the output of process P at start A
                       stop           there once it is to stop
"""

import contextlib
import dataclasses
import fcntl
import json
import os
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spanloom.pipeline.durable import write_file

ENDS = ("done", "failed", "stopped")
"""States in which nothing runs any more."""


class LaunchError(RuntimeError):
    """A launch cannot be carried out, found or changed; the message names cause and fix."""


@dataclass(frozen=True)
class Launch:
    """What was asked for."""

    id: str
    on: str
    """Where: local:4, ssh:hosts.txt, slurm, tpu:NAME@zone."""
    words: tuple[str, ...]
    """The words after `spanloom train`, as the hosts are to have them."""
    out: str
    """The run directory, as the hosts name it."""
    here: str
    """Where the command was given."""
    directory: str
    """Where the processes run: absolute, or below the bundle."""
    bundle: str
    """Its hash."""
    about: str
    """The bundle in words: commit and changes."""
    python: str
    """Python on the hosts."""
    requirements: tuple[str, ...] = ()
    """What the environment built for it has; none where --python has all."""
    constraints: tuple[str, ...] = ()
    environment: str = ""
    """Name of the environment; empty where none is built."""
    env: tuple[str, ...] = ()
    """Names of the environment variables that are handed on; their values are nowhere written."""
    devices: int = 0
    """Simulated devices of each process on CPU; 0: whatever there is."""
    coordinator: str = ""
    port: int = 8476
    connect_timeout: float = 300.0
    ssh_config: str = ""
    home: str = "~/.spanloom"
    """Folder of the hosts for bundles, environments and logs."""
    keep_going: bool = False
    restarts: int = 20
    slurm: tuple[str, ...] = ()
    """Options of sbatch, NAME=VALUE."""

    @property
    def folder(self) -> Path:
        """Where this launch is written down."""
        return launches() / self.id

    def log(self, attempt: int, process: int) -> Path:
        """The output of a process."""
        return self.folder / "logs" / f"{attempt}-{process}.log"


@dataclass(frozen=True)
class State:
    """How a launch stands."""

    state: str = "preparing"
    """preparing, running, waiting (for the next start), done, failed or stopped."""
    attempt: int = 0
    """Starts so far."""
    restarts: int = 0
    """Starts that were made unattended."""
    processes: tuple[str, ...] = ()
    """Of each, where it runs and how it is."""
    since: float = 0.0
    """When this became so, in seconds since 1970."""
    step: str | None = None
    """The newest checkpoint, where it could be seen."""
    message: str = ""
    """Why it failed."""
    job: str = ""
    """Of SLURM, the job's number."""


def launches() -> Path:
    """The folder of all launches started from this machine."""
    return Path(os.environ.get("SPANLOOM_HOME") or "~/.spanloom").expanduser() / "launches"


def new_id(name: str) -> str:
    """A name for a launch that sorts by time."""
    safe = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.")[:40] or "run"
    return f"{time.strftime('%Y%m%d-%H%M%S')}-{safe}-{os.urandom(2).hex()}"


def save(launch: Launch, bundle: bytes) -> None:
    """Write down a new launch."""
    (launch.folder / "logs").mkdir(parents=True, mode=0o700)
    write_file(launch.folder / "bundle.tar.gz", lambda file: file.write(bundle))
    write_state(launch, State(since=time.time()))
    _write(launch.folder / "launch.json", launch)  # last: what a kill leaves before is no launch


def write_state(launch: Launch, state: State) -> None:
    """Say how it stands now."""
    _write(launch.folder / "state.json", state)


def _write(path: Path, value: Any) -> None:
    text = json.dumps(dataclasses.asdict(value), indent=1)
    write_file(path, lambda file: file.write(text.encode()))


def read_state(launch: Launch) -> State:
    """How it stands."""
    state = _read(launch.folder / "state.json", State)
    assert isinstance(state, State)
    return state


def read_launch(folder: Path) -> Launch:
    """A launch by its folder. Raises LaunchError for a damaged one."""
    launch = _read(folder / "launch.json", Launch)
    assert isinstance(launch, Launch)
    return launch


def _read(path: Path, cls: type) -> Any:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        names = {field.name for field in dataclasses.fields(cls)}
        return cls(**{k: tuple(v) if isinstance(v, list) else v for k, v in found.items() if k in names})
    except FileNotFoundError:
        raise LaunchError(f"{path.parent} holds no launch ({path.name} is missing)") from None
    except (ValueError, TypeError, AttributeError) as error:
        raise LaunchError(f"{path} is damaged ({error}): launch anew, and remove {path.parent}") from None


def folders() -> list[Path]:
    """Of all launches that were made from this machine, the oldest first."""
    found = sorted(launches().iterdir()) if launches().is_dir() else []
    return [folder for folder in found if (folder / "launch.json").is_file()]


def find(word: str | None) -> Launch:
    """A launch by its ID or a part of it, or by its run's directory; the newest one without a word.

    Raises LaunchError where there is none, there are several, or it is damaged.
    """
    known = folders()
    if not known:
        raise LaunchError(f"nothing was launched from here ({launches()} is empty): spanloom launch RECIPE --on ...")
    if word is None:
        return read_launch(known[-1])
    if launches() / word in known:
        return read_launch(launches() / word)
    places = (word, os.path.abspath(os.path.expanduser(word)))
    for folder in reversed(known):
        with contextlib.suppress(LaunchError):  # another one that is damaged is no reason not to find this one
            if (launch := read_launch(folder)).out in places:
                return launch
    found = [folder for folder in known if word in folder.name]
    if len(found) == 1:
        return read_launch(found[0])
    names = "".join(f"\n  {folder.name}" for folder in (found or known)[-10:])
    what = "stands for several launches" if found else "is no launch, nor the directory of one"
    raise LaunchError(f"{word!r} {what}; there are{names}")


def claim(launch: Launch) -> int:
    """Become the one that watches a launch: an open file, locked until this process ends. Raises LaunchError."""
    descriptor = os.open(launch.folder / "watched", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise LaunchError(f"{launch.id} is under way: spanloom launch logs {launch.id}, or stop it first") from None
    return descriptor


def is_watched(launch: Launch) -> bool:
    """Whether a process watches the launch."""
    try:
        os.close(claim(launch))
    except LaunchError:
        return True
    return False
