"""The tables of a report: how far runs have come, what they cost, held-out losses, stages, data, machines, commands."""

import math
import shlex
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from spanloom.report.charts import joined, padding_of
from spanloom.report.costs import cost_of
from spanloom.report.differences import MACHINE
from spanloom.report.metrics import Curve
from spanloom.report.numbers import Table
from spanloom.report.run_view import Stage, View
from spanloom.settings.mixture import Mixture
from spanloom.tasks.rates import Size, task_rates
from spanloom.tasks.rows import ROW
from spanloom.training.progress import amount

RECENT, PARTS = 50, 20
"""The last training loss is a mean over so many lines, or one of so many parts of a short run: the loss of its first
steps, which falls fast, tells nothing of its last."""
WORDS = ("run", "state", "task", "part", "stage", "machine", "when", "command", "setting", "version", "what", "files")
"""Headings of columns that hold words."""
MOST_TASKS = 500
"""Rows of a table of tasks."""


def summary(views: Sequence[View]) -> Table:
    """Each run in one row."""
    headings = (
        "run",
        "state",
        "steps",
        "parameters",
        "training loss, recent",
        "held-out loss",
        "lowest",
        "tokens",
        "tokens/s",
        "MFU",
        "last line (UTC)",
    )
    return headings, [_summary(view) for view in views]


def _summary(view: View) -> tuple[str, ...]:
    cost = cost_of(view.stages)
    heldout = mean_heldout(view)
    pace, mfu = (joined(view.stages, "train", name) for name in ("tokens_per_second", "mfu"))
    parameters: Any = next((start.get("parameters") for stage in view.stages for start in stage.metrics.starts), None)
    return (
        view.label,
        state_of(view),
        f"{view.steps:,}" if view.planned is None else f"{view.steps:,} of {view.planned:,}",
        amount(parameters) if _is_count(parameters) else "-",
        number(recent(joined(view.stages, "train", "loss"))),
        number(heldout.last),
        number(heldout.lowest),
        amount(cost.tokens) if cost.tokens else "-",
        "-" if not len(pace) else amount(_median(pace)),
        "-" if not len(mfu) else f"{_median(mfu):.1%}",
        _last_written(view),
    )


def _last_written(view: View) -> str:
    """When a run wrote its last line: one that goes on did so a moment ago."""
    times = [stage.metrics.times[1] for stage in view.stages if stage.metrics.times]
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(max(times))) if times else "-"


def state_of(view: View) -> str:
    """How it stands with a run, as far as its files tell."""
    if any(stage.metrics.diverged for stage in view.stages):
        return "diverged"
    if not any(stage.metrics.starts or stage.steps for stage in view.stages):
        return "not begun"
    if view.planned is not None and view.steps >= view.planned:
        return "done"
    of_stage = next((stage for stage in reversed(view.stages) if stage.steps), view.stages[0])
    where = f" in stage {view.stages.index(of_stage) + 1} of {len(view.stages)}" if view.is_staged else ""
    return f"{view.steps / view.planned:.0%} done{where}" if view.planned else "begun"


def recent(curve: Curve) -> float | None:
    """The mean of the last lines: 50, or a twentieth of a short run."""
    last = curve.values[-min(RECENT, -(-len(curve) // PARTS)) :]
    last = last[np.isfinite(last)]
    return float(np.mean(last)) if len(last) else None


def _median(curve: Curve) -> float:
    known = curve.values[np.isfinite(curve.values)]
    return float(np.median(known)) if len(known) else 0.0


def mean_heldout(view: View) -> Curve:
    """The held-out loss of the tasks learnt, their mean at each step at which all of a stage's were measured."""
    steps, values = [np.empty(0)], [np.empty(0)]
    for stage in view.stages:
        learnt = stage.metrics.tasks if stage.run is None else [task.name for task in stage.run.tasks]
        curves = [stage.metrics.curve("eval", "heldout_loss", task) for task in learnt]
        curves = [curve for curve in curves if len(curve)]
        if not curves:
            continue
        found: dict[float, list[float]] = {}
        for curve in curves:
            for step, value in zip(curve.steps.tolist(), curve.values.tolist(), strict=True):
                found.setdefault(step, []).append(value)
        whole = sorted(step for step, losses in found.items() if len(losses) == len(curves))
        steps.append(np.array(whole) + stage.first)
        values.append(np.array([math.fsum(found[step]) / len(curves) for step in whole]))
    return Curve(np.concatenate(steps), np.concatenate(values))


def costs(views: Sequence[View]) -> Table:
    """Hours and what else was spent."""
    headings = (
        "run",
        "hours",
        "from start to end",
        "devices",
        "device-hours",
        "tokens",
        "FLOPs of the model",
        "evaluating",
        "saving",
        "waiting for data",
    )
    return headings, [_costs(view) for view in views]


def _costs(view: View) -> tuple[str, ...]:
    cost = cost_of(view.stages)
    kinds = dict.fromkeys(str(start.get("devices", "-")) for stage in view.stages for start in stage.metrics.starts)
    shares = [recent_share(view, name) for name in ("eval_time", "checkpoint_time", "data_wait")]
    return (
        view.label,
        _hours(cost.hours),
        _hours(cost.elapsed) if cost.elapsed else "-",
        ", ".join(kinds) or "-",
        _hours(cost.device_hours),
        amount(cost.tokens) if cost.tokens else "-",
        f"{amount(cost.flops)}FLOP" if cost.flops else "-",
        *shares,
    )


def _hours(hours: float) -> str:
    return f"{hours:,.2f}" if hours >= 0.1 else f"{hours:.2g}"


def recent_share(view: View, name: str) -> str:
    """A share of the time, over the whole run; every line tells that of the time since the line before it."""
    shares, steps = (joined(view.stages, "train", one) for one in (name, "seconds_per_step"))
    if not len(shares) or len(shares) != len(steps):
        return "-"
    weights = np.nan_to_num(steps.values) * np.diff(steps.steps, prepend=0.0)
    known = np.isfinite(shares.values) & (weights > 0)
    return f"{np.average(shares.values[known], weights=weights[known]):.1%}" if known.any() else "-"


def heldout(views: Sequence[View]) -> Table:
    """First, lowest and last held-out loss of each task."""
    several = len(views) > 1
    headings = (
        *(("run",) if several else ()),
        "task",
        "first",
        "lowest",
        "at step",
        "last",
        "at step",
        "bits",
        "tokens",
    )
    rows: list[tuple[str, ...]] = []
    for view in views:
        for task in view.tasks[:MOST_TASKS]:
            curve = joined(view.stages, "eval", "heldout_loss", task)
            known = np.flatnonzero(np.isfinite(curve.values))
            if not len(known):
                continue
            low = known[np.argmin(curve.values[known])]
            last, tokens = curve.values[known[-1]], joined(view.stages, "eval", "heldout_tokens", task).last
            cells = (
                task or "-",
                number(curve.values[known[0]]),
                number(curve.values[low]),
                f"{curve.steps[low]:,.0f}",
                number(last),
                f"{curve.steps[known[-1]]:,.0f}",
                number(last / math.log(2)),
                "-" if tokens is None else f"{tokens:,.0f}",
            )
            rows.append((view.label, *cells) if several else cells)
    return headings, rows


def forgetting(view: View) -> tuple[list[str], list[tuple[str, int, dict[str, float]]]] | None:
    """(tasks, rows of (stage, steps, losses)): held-out losses at the last evaluation of each stage that has trained.

    None where there are no stages.
    """
    if not view.is_staged:
        return None
    rows, tasks = [], dict[str, None]()
    for stage in view.stages:
        losses = {}
        for task in stage.metrics.tasks:
            if (last := stage.metrics.curve("eval", "heldout_loss", task).last) is not None:
                losses[task] = last
        tasks |= dict.fromkeys(losses)
        if losses:
            rows.append((stage.name, stage.steps, losses))
    learnt = [task.name for stage in view.stages if stage.run for task in stage.run.tasks if task.name in tasks]
    return list(dict.fromkeys([*learnt, *tasks])), rows


def data(views: Sequence[View]) -> Table:
    """The parts of each task, how much there is of them, and how often training draws them."""
    several = len(views) > 1
    rows: list[tuple[str, ...]] = []
    headings = (
        *(("run",) if several else ()),
        "task",
        "part",
        "documents",
        "examples",
        "tokens",
        "mean length (inputs+targets)",
        "rate",
        "files",
    )
    for view in views:
        for name, meta, stage in _stores(view):
            task, _, part = name.rpartition("/")
            rate = shares_of(stage).get(task) if part == "train" else None
            cells = (
                task,
                {"heldout": "held out"}.get(part, part),
                *_amounts(meta),
                "" if rate is None else f"{rate:.2%}",
                _files(meta),
            )
            rows.append((view.label, *cells) if several else cells)
    return headings, rows[:MOST_TASKS]


def _stores(view: View) -> Iterator[tuple[str, Mapping[str, Any], Stage]]:
    seen = set()
    for stage in view.stages:
        for name, meta in stage.stores.items():
            own = {task.name for task in stage.run.tasks} if stage.run else {name.rpartition("/")[0]}
            is_own = name.rpartition("/")[0] in own
            if name not in seen and (is_own or stage is view.stages[-1]):
                seen.add(name)
                yield name, meta, stage


def _amounts(meta: Mapping[str, Any]) -> tuple[str, str, str, str]:
    counts, report = (_dict(meta.get(name)) for name in ("counts", "report"))
    columns = _columns(counts)
    tokens = [one.get("tokens") for one in columns]
    rows = [one.get("rows") for one in columns]
    means = [f"{t / r:,.1f}" for t, r in zip(tokens, rows, strict=True) if _is_count(t) and _is_count(r) and r]
    return (
        _count(report.get("documents")),
        _count(counts.get("examples")),
        _count(sum(t for t in tokens if _is_count(t)) if tokens else None),
        "+".join(means) or "-",
    )


def _columns(counts: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Counts of the columns of tokens; what a row holds beside them is for metrics."""
    return [one for name, one in _dict(counts.get("columns")).items() if name != ROW and isinstance(one, dict)]


def _files(meta: Mapping[str, Any]) -> str:
    settings = _dict(_dict(meta.get("fingerprint")).get("source_settings"))
    files = settings.get("files") or settings.get("folders") or settings.get("dataset") or settings.get("folder") or ""
    names = [str(one) for one in files] if isinstance(files, list) else [str(files)]
    return ", ".join(names[:3]) + (f" and {len(names) - 3:,} more" if len(names) > 3 else "")


def shares_of(stage: Stage) -> dict[str, float]:
    """Share of each task among the draws, from the rates and the sizes of the stores; empty where sizes are missing."""
    if stage.run is None:
        return {}
    if not isinstance(stage.run.task, Mixture):
        return {stage.run.task.name: 1.0}
    sizes = {}
    for task in stage.run.tasks:
        meta = _dict(stage.stores.get(f"{task.name}/train"))
        counts, report = _dict(meta.get("counts")), _dict(meta.get("report"))
        tokens = [one.get("tokens", 0) for one in _columns(counts)]
        sizes[task.name] = Size(
            examples=counts.get("examples"),
            documents=report.get("documents"),
            characters=counts.get("characters"),
            tokens=sum(tokens) if counts else None,
        )
    try:
        rates = task_rates(stage.run.task, sizes)
    except (ValueError, TypeError):
        return {}
    return dict(zip(rates.names, rates.probabilities.tolist(), strict=True))


def padding(views: Sequence[View]) -> str:
    """What share of the tokens of each side was padding, in one sentence; empty where no line tells."""
    found = []
    for view in views:
        sides = [(side, _mean(padding_of(view, side))) for side in ("encoder", "decoder")]
        said = " and ".join(f"{share:.1%} of the {side}'s tokens" for side, share in sides if share is not None)
        if said:
            found.append(f"{view.label}: {said}" if len(views) > 1 else said)
    return f"Padding while training: {'; '.join(found)}." if found else ""


def _mean(curve: Curve) -> float | None:
    known = curve.values[np.isfinite(curve.values)]
    return float(np.mean(known)) if len(known) else None


def machines(views: Sequence[View]) -> Table:
    """Versions and devices, a column for each that differs from the one before it."""
    columns: list[tuple[str, Mapping[str, Any]]] = []
    for view in views:
        for stage in view.stages:
            for start in stage.metrics.starts:
                facts = {name: start.get(name) for name in MACHINE}
                if not columns or facts != columns[-1][1] or (len(views) > 1 and columns[-1][0] != view.label):
                    columns.append((view.label, facts))
    columns = columns[:12]
    labels = [
        label if len(views) > 1 else ("value" if len(columns) == 1 else f"start {n}")
        for n, (label, _) in enumerate(columns, 1)
    ]
    rows = [(name.replace("_", " "), *(str(facts[name] or "-") for _, facts in columns)) for name in MACHINE]
    return ("machine", *labels), rows if columns else []


def commands(views: Sequence[View]) -> Table:
    """What was typed, and when."""
    several = len(views) > 1
    rows: list[tuple[str, ...]] = []
    for view in views:
        for entry in _commands(view):
            words = entry.get("command")
            line = shlex.join(map(str, words)) if isinstance(words, list) else "-"
            step = entry.get("step")
            cells = (str(entry.get("time", "-")), _count(step) if step else "0", str(entry.get("version", "-")), line)
            rows.append((view.label, *cells) if several else cells)
    return (*(("run",) if several else ()), "when", "from step", "version", "command"), rows


def _commands(view: View) -> Iterable[Mapping[str, Any]]:
    """Of stages each command once: it is noted with each stage that it trained."""
    seen: set[str] = set()
    for stage in view.stages:
        for entry in stage.commands[-100:]:
            key = str((entry.get("time"), entry.get("command"))) if view.is_staged else str(len(seen))
            if key not in seen:
                seen.add(key)
                yield entry


def number(value: float | None) -> str:
    """A loss in a table."""
    if value is None:
        return "-"
    return f"{value:.4f}" if abs(value) < 1e4 else f"{value:.4g}"


def _dict(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**63


def _count(value: Any) -> str:
    return f"{value:,}" if _is_count(value) else "-"
