"""What the runs of a recipe that ships would be without the flags that were given, for a report to compare with.

Recipes of the user's own are not made again: they are code, and a run that is looked at may be somebody else's.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from inspect import Parameter
from pathlib import Path
from typing import Any

from spanloom.cli.flags import parse
from spanloom.cli.recipe import Recipe, find
from spanloom.cli.run_directory import anchored
from spanloom.cli.tokens import split
from spanloom.recipes import shipped
from spanloom.report.run_view import View
from spanloom.report.settings_table import Baseline
from spanloom.settings.stages import linked

_WITHOUT_RECIPE = ("pretrain", "finetune")


def baselines_of(view: View) -> list[Baseline | None]:
    """For each stage what it is compared with; None where its recipe does not ship, or cannot be made again."""
    entry = next((entry for stage in view.stages for entry in stage.commands if entry.get("step") is None), {})
    try:
        return _made_again(entry)
    except Exception:  # of files, checkpoints and packages that are not here; the report says what it compares with
        return []


def _made_again(entry: Mapping[str, Any]) -> list[Baseline | None]:
    words, directory = entry["command"][1:], Path(entry["directory"])  # the first is the program's name
    name, rest = (words[0], words[1:]) if words[0] in _WITHOUT_RECIPE else (words[1], words[2:])
    if words[0] not in (*_WITHOUT_RECIPE, "train") or name.replace("-", "_") not in shipped():
        return []
    recipe = find(name)
    command = parse(recipe, _about(rest, recipe), "report", _NoOptions)
    runs = command.runs if len(command.runs) == 1 else linked(command.runs, directory)
    resolved = [anchored(replace(run, out=None), directory).resolve() for run in runs]
    return [Baseline(run, f"recipe {recipe.name}") for run in resolved]


def _about(words: Sequence[str], recipe: Recipe) -> list[str]:
    """The words of the flags of its own that a recipe has no default for: they say what the run is about."""
    names = [one.name for one in recipe.parameters if one.default in (None, (), "", Parameter.empty)]
    _, flags = split(words)
    return [word for flag in flags if flag.name in names for word in flag.argv()]


@dataclass(frozen=True)
class _NoOptions:
    """Nothing beside the recipe's flags."""
