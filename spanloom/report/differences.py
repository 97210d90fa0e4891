"""What differs between two runs, or checkpoints: settings, data and versions, and nothing else.

Where a run is written (`out`) is no difference, nor is how far it has come. Data are compared by what they are: the
hashes of the text that a checkpoint keeps, and the fingerprints and counts of the stores, wherever these stand.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any, Literal
from urllib.parse import unquote

from spanloom.report.run_files import NoRunError, RunFiles
from spanloom.settings.compare import Change, changes, changes_between
from spanloom.settings.run import Run
from spanloom.settings.run_layout import CHECKPOINTS, FACTS, RUN_FILE, STORES
from spanloom.settings.serialize import SettingsError, from_json, to_json
from spanloom.settings.stages import stage_directory
from spanloom.settings.task import Task

PLACES = ("out", "log.copy_to")
"""Settings that say where a run and its copy are, not what it is."""
MACHINE = (
    "spanloom",
    "python",
    "jax",
    "jaxlib",
    "numpy",
    "optax",
    "devices",
    "cpu_count",
    "processor",
    "xla_flags",
)
"""What is told of versions and devices before all else."""
_NOT_THERE = "-"

About = Literal["settings", "data", "versions"]


@dataclass(frozen=True)
class Difference:
    """One thing that differs."""

    about: About
    name: str
    """Dotted, of settings; what it is in words, of the others."""
    first: Any
    """JSON data; None where the first has none."""
    second: Any
    """Likewise of the second."""
    text: str = ""
    """The two of them in one line, where that says more than both by themselves."""

    @property
    def shown(self) -> tuple[str, str]:
        """Both in words."""
        return _words(self.first), _words(self.second)


@dataclass(frozen=True)
class Side:
    """What is compared of a run or a checkpoint."""

    run: Run | None
    """Its settings; None where a stage is missing."""
    facts: Mapping[str, Any]
    """What the checkpoint says of itself; empty where there is none."""
    machine: Mapping[str, Any]
    """Versions and devices; empty where nothing was trained yet."""
    stores: Mapping[str, Mapping[str, Any]]
    """Descriptions of the stores, by TASK/PART."""


def differences(first: RunFiles, second: RunFiles) -> list[Difference]:
    """All of them, settings first. Of stages each is compared with its like.

    Raises NoRunError where settings cannot be read, and where stages are to be compared with one run.
    """
    return list(_all(first, second))


def _all(first: RunFiles, second: RunFiles) -> Iterator[Difference]:
    before, after = _stages_of(first), _stages_of(second)
    if before is None and after is None:
        yield from _between(_side(first), _side(second), "")
        return
    if before is None or after is None:
        place = first.place if after is None else second.place
        raise NoRunError(f"{place} holds stages, and the other is one run: name one of the stages, {place}/N-NAME")
    nothing = Side(None, {}, {}, {})
    for number, (old, new) in enumerate(zip_longest(before, after, fillvalue=nothing), 1):
        run = old.run or new.run
        yield from _between(old, new, f"stage {number} ({run.name if run else '?'}) ")


def _stages_of(files: RunFiles) -> list[Side] | None:
    stages = files.stages
    if stages is None:
        return None
    found = []
    for number, data in enumerate(stages, 1):
        run = _run_of(data, files.place)
        place = files.below(stage_directory_name(number, run))
        found.append(_side(place, run, files))
    return found


def stage_directory_name(number: int, run: Run) -> str:
    """Name of the directory of a stage, counted from 1."""
    return stage_directory(Path(), number, run).name


def _side(files: RunFiles, run: Run | None = None, around: RunFiles | None = None) -> Side:
    """`run`: its settings, where they are known; `around`: the directory whose stores a stage shares."""
    if files.is_checkpoint:
        facts = files.object_of(FACTS) or {}
        run = _run_of(facts.get("run"), files.path(FACTS))
        files = RunFiles(files.place.removesuffix(f"/{files.name}").removesuffix(f"/{CHECKPOINTS}"))
    else:
        facts = files.last_facts() or {}
        if run is None:
            run = _run_of(files.object_of(RUN_FILE), files.path(RUN_FILE))
    machine = facts.get("machine")
    stores = stores_of(files) or (stores_of(around) if around else {})
    return Side(run, facts, machine if isinstance(machine, dict) else {}, stores)


def _run_of(data: Any, where: str) -> Run:
    try:
        run = from_json(data)
    except SettingsError as error:
        raise NoRunError(f"{where}: the settings cannot be read: {error}") from error
    assert isinstance(run, Run)
    return run


def stores_of(files: RunFiles) -> dict[str, dict[str, Any]]:
    """Descriptions of the stores of a run, by TASK/PART; of a stream, what decides its rows."""
    found = {}
    for task in files.names(STORES):
        for part in ("train", "heldout", "train.spool"):
            name = "spool.json" if part.endswith(".spool") else "meta.json"
            meta = files.object_of(f"{STORES}/{task}/{part}/{name}")
            if meta is not None:
                found[f"{unquote(task)}/{part.removesuffix('.spool')}"] = meta
    return found


def _between(first: Side, second: Side, prefix: str) -> Iterator[Difference]:
    if first.run is None or second.run is None:
        before, after = (one.run and one.run.name for one in (first, second))
        yield Difference("settings", prefix.strip(), before, after)
        return
    for change in changes(first.run, second.run):
        if change.field not in PLACES:
            yield from _of_setting(change, prefix)
    yield from _of_data(first, second, prefix)
    yield from _of_mappings("versions", first.machine, second.machine, prefix)


def _of_setting(change: Change, prefix: str) -> Iterator[Difference]:
    """A changed setting; of tasks that are listed, each that is changed, and what is changed of it."""
    old, new = change.old, change.new
    listed = isinstance(old, tuple) and isinstance(new, tuple) and {type(one) for one in (*old, *new)} == {Task}
    if not listed:
        text = str(change).removeprefix(f"{change.field}: ")
        yield Difference("settings", prefix + change.field, to_json(old), to_json(new), text)
        return
    before, after = ({task.name: task for task in tasks} for tasks in (old, new))
    for name in dict.fromkeys((*before, *after)):
        field = f"{prefix}{change.field}.{name}"
        if name in before and name in after:
            for inner in changes_between(before[name], after[name]):
                yield from _of_setting(replace(inner, field=f"{change.field}.{name}.{inner.field}"), prefix)
        else:
            yield Difference("settings", field, _there(name in before), _there(name in after))


def _there(is_there: bool) -> str | None:
    return "there" if is_there else None


def _of_mappings(
    about: About, first: Mapping[str, Any], second: Mapping[str, Any], prefix: str
) -> Iterator[Difference]:
    """What differs between two mappings of which both say something."""
    if not first or not second:
        return
    for name in dict.fromkeys((*(key for key in MACHINE if key in first), *first, *second)):
        if first.get(name) != second.get(name):
            yield Difference(about, prefix + name, first.get(name), second.get(name))


def _of_data(first: Side, second: Side, prefix: str) -> Iterator[Difference]:
    yield from _of_mappings("data", _content(first), _content(second), f"{prefix}hash of ")
    for name in sorted({*first.stores, *second.stores}) if first.stores and second.stores else ():
        before, after = (_described(one.stores.get(name)) for one in (first, second))
        if before and after:
            yield from _of_mappings("data", before, after, f"{prefix}{name}, ")
        else:
            yield Difference("data", f"{prefix}store {name}", _there(bool(before)), _there(bool(after)))


def _content(side: Side) -> dict[str, Any]:
    """Hashes that the checkpoint keeps of what it learnt from. A run's only task is not named in them."""
    content = side.facts.get("content")
    return content if isinstance(content, dict) else {}


def _described(meta: Mapping[str, Any] | None) -> dict[str, Any]:
    """Counts and fingerprint of a store, flat; empty for what is none."""
    if meta is None:
        return {}
    found: dict[str, Any] = {}
    counts = meta.get("counts")
    for name, value in counts.items() if isinstance(counts, dict) else ():
        if isinstance(value, int | float):
            found[name.replace("_", " ")] = value
        elif name == "columns" and isinstance(value, dict):
            found |= {
                f"tokens of {column}": one.get("tokens") for column, one in value.items() if isinstance(one, dict)
            }
    report = meta.get("report")
    if isinstance(report, dict):
        found |= {name: report[name] for name in ("files", "documents") if name in report}
    fingerprint = meta.get("fingerprint")
    found |= {f"fingerprint {name}": value for name, value in _flat(fingerprint)}
    return found or {"description": "unreadable"}


def _flat(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted names and values of nested objects."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _flat(inner, f"{name}.{key}" if name else str(key))
    elif name:
        yield name, value


def _words(value: Any) -> str:
    if value is None:
        return _NOT_THERE
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
