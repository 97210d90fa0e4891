"""Settings of a run that are not those it would have had by itself: its recipe's, or Spanloom's own."""

from collections.abc import Sequence
from dataclasses import dataclass, fields

from spanloom.report.numbers import Table
from spanloom.settings.compare import Change, changes, within
from spanloom.settings.run import Run
from spanloom.settings.serialize import SettingsError

_ITS_OWN = ("out", "start", "name", "task", "model", "eval.also")
"""What every run has its own of, beside Spanloom's defaults."""


@dataclass(frozen=True)
class Baseline:
    """What a run is compared with."""

    run: Run
    """Settings nobody changed."""
    name: str
    """What they are, after "differs from"."""
    ignored: tuple[str, ...] = ("out", "start")
    """Fields, with all below them, that say nothing."""


def spanloom_defaults(run: Run) -> Baseline | None:
    """Spanloom's own defaults, with the run's task and model; None where these allow no run."""
    needed = {f.name: getattr(run, f.name) for f in fields(Run) if f.name in ("name", "task", "model")}
    try:
        return Baseline(Run(**needed, start=run.start).resolve(), "Spanloom's defaults", _ITS_OWN)
    except (SettingsError, ValueError):
        return None


def settings_table(run: Run, baseline: Baseline) -> Table:
    """Each setting that differs: name, the baseline's value, the run's."""
    found = [one for one in changes(baseline.run, run) if not within(one.field, baseline.ignored)]
    return ("setting", baseline.name, "this run"), [_row(one) for one in found]


def _row(change: Change) -> tuple[str, str, str]:
    return (change.field, *change.shown)


def all_settings(runs: Sequence[Run]) -> str:
    """Everything that decides the runs, as JSON."""
    import json

    from spanloom.settings.serialize import to_json

    return json.dumps(
        [to_json(run) for run in runs] if len(runs) > 1 else to_json(runs[0]), indent=1, ensure_ascii=False
    )
