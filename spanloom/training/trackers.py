"""Experiment trackers, W&B and trackio, which share an interface: optional, and never a reason for a run to end."""

import importlib
import re
import secrets
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from spanloom.pipeline.durable import write_file
from spanloom.scale.processes import ALONE, Crew
from spanloom.settings.run import Run
from spanloom.settings.run_layout import TENSORBOARD, TRACKED
from spanloom.settings.serialize import to_json
from spanloom.training.copied import Copied
from spanloom.training.loggers import Logger, TensorBoard, scalars

PROJECT = "spanloom"
"""Where runs go that name no project."""

_OPTIONS: Mapping[str, Callable[[Path], dict[str, Any]]] = {
    # W&B would put itself between the run and the terminal to record what is printed.
    "wandb": lambda directory: {"dir": str(directory), "settings": {"console": "off"}},
    "trackio": lambda directory: {"embed": False},
}
"""What each package is told beside what both understand."""


class MissingTrackerError(RuntimeError):
    """A tracker is asked for and its package is not installed; the message says how to install it."""


class _Says(Protocol):
    """Where warnings go."""

    def warn(self, text: str) -> None:
        """A line that stands out."""


def asked_for(run: Run) -> dict[str, str]:
    """The project by package of each tracker that the run logs to."""
    found = {name: getattr(run.log, name) for name in _OPTIONS}
    return {name: PROJECT if project is True else project for name, project in found.items() if project}


def check_trackers(run: Run, crew: Crew = ALONE) -> None:
    """Raise MissingTrackerError unless every tracker that this process, if it is the first of `crew`, logs to is
    installed.
    """
    for name in asked_for(run) if crew.is_first else ():
        _package(name)


def open_loggers(
    run: Run, directory: Path, first_step: int, told: Mapping[str, Any], display: _Says
) -> list["Guarded"]:
    """What a run logs to beside metrics.jsonl. `told`: facts that trackers show beside the settings."""
    makers: dict[str, Callable[[], Logger]] = {}
    if run.log.tensorboard:
        makers["TensorBoard"] = partial(TensorBoard, directory / TENSORBOARD, first_step)
    if run.log.copy_to is not None:
        makers["the copy in a bucket"] = partial(Copied, directory, run.log.copy_to)
    if projects := asked_for(run):
        identity, config = tracked_as(run, directory, first_step), {**to_json(run), **told}
        for name, project in projects.items():
            makers[name] = partial(Tracker, name, project, identity, config, directory)
    return [Guarded(name, make, display) for name, make in makers.items()]


def tracked_as(run: Run, directory: Path, first_step: int) -> str:
    """The name of this run in trackers: kept in its directory, so that it goes on under it; a new one for a run that
    begins.
    """
    path = directory / TRACKED
    if first_step and path.is_file() and (kept := path.read_text().strip()):
        return kept
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", run.name).strip("-")[:40] or "run"
    identity = f"{name}-{secrets.token_hex(4)}"
    write_file(path, lambda file: file.write(identity.encode()))
    return identity


class Tracker:
    """A run in W&B or trackio."""

    def __init__(self, name: str, project: str, identity: str, config: Mapping[str, Any], directory: Path) -> None:
        """Opens the run `identity` of `project` in the package `name`, new or to go on."""
        options = {**_OPTIONS[name](directory), **({"id": identity} if name == "wandb" else {})}
        package = _package(name)
        self._run = package.init(project=project, name=identity, config=dict(config), resume="allow", **options)

    def write(self, kind: str, step: int, values: Mapping[str, Any]) -> None:
        """Log every number of an event under the names that TensorBoard has them by."""
        if found := scalars(kind, values):
            self._run.log(found, step=step)

    def close(self) -> None:
        """Send what is left."""
        self._run.finish()


class Guarded:
    """A logger that a run can do without: the first failure is said, none ends the run."""

    def __init__(self, name: str, make: Callable[[], Logger], display: _Says) -> None:
        self._name = name
        self._display = display
        self._warned = False
        self._logger: Logger | None = None
        with self:
            self._logger = make()

    def write(self, kind: str, step: int, values: Mapping[str, Any]) -> None:
        """Write one event, if that works."""
        with self:
            if self._logger is not None:
                self._logger.write(kind, step, values)

    def close(self) -> None:
        """Close it, if that works."""
        with self:
            if self._logger is not None:
                self._logger.close()

    def __enter__(self) -> None:
        """What fails inside is said once."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: Any) -> bool:
        """True for an error that is to be forgotten."""
        if not isinstance(error, Exception):
            return False
        if not self._warned:
            said = (str(error).strip() or type(error).__name__).splitlines()[0]
            self._display.warn(f"{self._name} failed ({said}); training goes on, and all is in metrics.jsonl")
        self._warned = True
        return True


def _package(name: str) -> Any:
    """The tracker's module. A folder of that name, such as W&B makes where it runs, is none."""
    try:
        package = importlib.import_module(name)
    except ImportError as error:
        raise _missing(name) from error
    if not hasattr(package, "init"):
        raise _missing(name)
    return package


def _missing(name: str) -> MissingTrackerError:
    return MissingTrackerError(f"--log.{name} needs the package {name}: pip install 'spanloom[{name}]'")
