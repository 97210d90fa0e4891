"""Flags of one stage among several: `--stage.2.steps 300`."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from spanloom.cli.errors import UsageError
from spanloom.cli.tokens import Flag
from spanloom.settings.compare import changes
from spanloom.settings.run import Run

_STAGE = re.compile(r"stage\.([^.]*)\.(.+)")
PLACES = ("out", "start")
"""What follows from the order of the stages and the directory of all."""


def split_stages(flags: Iterable[Flag]) -> tuple[list[Flag], dict[str, list[Flag]]]:
    """Flags that hold for all, and those of each stage, by what it was called, without `stage.N.` in their names."""
    common: list[Flag] = []
    own: dict[str, list[Flag]] = {}
    for flag in flags:
        match = _STAGE.fullmatch(flag.name)
        if match:
            own.setdefault(match[1], []).append(replace(flag, name=match[2]))
        else:
            common.append(flag)
    return common, own


def by_number(own: dict[str, list[Flag]], runs: Sequence[Run]) -> dict[int, list[Flag]]:
    """The flags of each stage by its number, from 1; it may be called by the name of its run.

    Raises UsageError for a stage that there is none of, and for what is not a stage's own to say.
    """
    numbers = {str(number): number for number in range(1, len(runs) + 1)}
    names = {run.name.replace("-", "_"): number for number, run in enumerate(runs, 1)}
    found: dict[int, list[Flag]] = {}
    for name, flags in own.items():
        if len(runs) == 1:
            raise UsageError(f"{flags[0].typed}: there are no stages here, but one run: --{flags[0].name} sets it")
        number = numbers.get(name, names.get(name))
        if number is None:
            stages = ", ".join(f"{number} ({run.name})" for number, run in enumerate(runs, 1))
            raise UsageError(f"{flags[0].typed}: no such stage; there are {stages}")
        if wrong := next((flag for flag in flags if flag.name in PLACES), None):
            raise UsageError(
                f"{wrong.typed}: a stage begins where the one before it ends, in a directory below --out: leave it out"
                + (f", or say --start {' '.join(wrong.values)}" if (number, wrong.name) == (1, "start") else "")
            )
        found.setdefault(number, []).extend(flags)
    return found


def differing(runs: Sequence[Run]) -> dict[str, str]:
    """For help: the fields that are not the same in all stages, and what is said in the place of their default."""
    found = {change.field for run in runs[1:] for change in changes(runs[0], run)}
    return dict.fromkeys(found, "each stage's own")


def described(runs: Sequence[Run]) -> str:
    """For help: which stages there are, and how flags are meant."""
    names = ", ".join(f"{number} {run.name}" for number, run in enumerate(runs, 1))
    return (
        f"This recipe makes runs that follow one another: {names}. A flag holds for all of them (--start for the "
        "first); --stage.N.FLAG, with a stage's number or name for N, sets that of one: --stage.2.steps 300. What a "
        "stage takes over from the one before it is said by --follow."
    )
