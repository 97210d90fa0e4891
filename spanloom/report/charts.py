"""Which curves a report shows, and how they are put into charts: one run by its tasks, several runs side by side."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from spanloom.report.downsample import Columns, columns_of
from spanloom.report.metrics import Curve
from spanloom.report.references import Reference
from spanloom.report.run_view import Stage, View
from spanloom.report.visible import visible

MOST_LINES = 16
"""Lines of one chart; of more tasks the table tells."""
MOST_CHARTS = 24
"""Charts of one number, where each task has its own."""
_STRETCHES = 40
_SIX = 6  # digits, as many as float32 has and a chart can show


@dataclass(frozen=True)
class Line:
    """One curve of a chart."""

    label: str
    """What it is."""
    colour: int
    """Number of its colour."""
    columns: Columns
    """What is drawn of it."""
    is_reference: bool = False
    """Whether somebody else measured it."""

    @property
    def data(self) -> dict[str, Any]:
        """As JSON data for the page's script."""
        shown = self.columns
        found: dict[str, Any] = {
            "label": visible(self.label),
            "colour": self.colour,
            "x": shown.steps.astype(int).tolist(),
        }
        found |= {"y": _numbers(shown.mean), "reference": self.is_reference}
        if shown.is_band:
            found |= {"low": _numbers(shown.low), "high": _numbers(shown.high)}
        return found


@dataclass(frozen=True)
class Chart:
    """One picture."""

    name: str
    """What tells it from others of the page."""
    title: str
    """What is shown."""
    unit: str
    """Of its values; empty where they are plain numbers or shares."""
    lines: tuple[Line, ...]
    """None of them empty."""
    borders: tuple[tuple[float, str], ...] = ()
    """Where stages begin, and what they are called."""
    note: str = ""
    """What must be known to read it."""

    @property
    def data(self) -> dict[str, Any]:
        """As JSON data for the page's script."""
        borders = [[step, visible(label)] for step, label in self.borders]
        return {"name": visible(self.name), "lines": [line.data for line in self.lines], "borders": borders}


TRAINING = (
    ("loss", "Training loss", "nats a target token"),
    ("accuracy", "Training accuracy", ""),
    ("learning_rate", "Learning rate", ""),
    ("grad_norm", "Norm of the gradient", ""),
    ("tokens_per_second", "Throughput", "real tokens a second"),
    ("mfu", "Model FLOPs utilisation", "share of the measured peak"),
    ("seconds_per_step", "Time of a step", "seconds"),
    ("data_wait", "Waiting for data", "share of the time"),
    ("memory_peak", "Peak of memory", "bytes"),
    ("skipped", "Updates left out", ""),
)
"""Numbers of training lines with a chart of their own: name in metrics.jsonl, title, unit."""
_SPLIT = (("step_time", "steps"), ("data_wait", "data"), ("eval_time", "evaluating"), ("checkpoint_time", "saving"))
_HELDOUT = ("heldout_loss", "Held-out loss", "nats a target token")
_MEASURES = {"heldout_accuracy": "Held-out accuracy", "heldout_text_loss": "Held-out loss of text alone"}
_CONSTANT = ("_tokens", "majority", "commonest_target")
"""Endings of what does not change from one evaluation to the next."""


def charts_of(views: Sequence[View], references: Sequence[Reference] = ()) -> list[Chart]:
    """The charts, those looked at most first; empty ones are left out."""
    several = len(views) > 1
    found = [_training(views, *TRAINING[0], references), *_evaluated(views, *_HELDOUT)]
    found += [_training(views, *one) for one in TRAINING[1:]]
    found += [_split(views[0])] if not several else []
    found += [_padding(views, side) for side in ("encoder", "decoder")]
    for name in _measures(views):
        found += _evaluated(views, name, _MEASURES.get(name, name.replace("_", " ").capitalize()), "")
    return [chart for chart in found if chart.lines]


def joined(stages: Iterable[Stage], kind: str, name: str, task: str = "") -> Curve:
    """One number over the steps of all stages."""
    curves = [(stage.first, stage.metrics.curve(kind, name, task)) for stage in stages]
    return Curve(
        np.concatenate([first + curve.steps for first, curve in curves] or [np.empty(0)]),
        np.concatenate([curve.values for _, curve in curves] or [np.empty(0)]),
    )


def _training(views: Sequence[View], name: str, title: str, unit: str, others: Sequence[Reference] = ()) -> Chart:
    lines = _lines((view.label, joined(view.stages, "train", name)) for view in views)
    if lines:
        for number, other in enumerate(others, len(lines)):
            lines.append(Line(other.name, number, columns_of(other.curve), is_reference=True))
    note = " ".join(other.note for other in others) if lines else ""
    return Chart(name, title, unit, tuple(lines), _borders(views), note)


def _evaluated(views: Sequence[View], name: str, title: str, unit: str) -> Iterator[Chart]:
    """Of one run all tasks in one chart; of several runs a chart for each task."""
    tasks = list(dict.fromkeys(task for view in views for task in view.tasks))
    if len(views) == 1:
        curves = [(task or views[0].label, joined(views[0].stages, "eval", name, task)) for task in tasks]
        curves = [(label, curve) for label, curve in curves if len(curve)]
        more = len(curves) - MOST_LINES
        note = f"The first {MOST_LINES} tasks; {more:,} more are in the table of held-out parts." if more > 0 else ""
        yield Chart(f"eval-{name}", title, unit, tuple(_lines(curves[:MOST_LINES])), _borders(views), note)
        return
    for number, task in enumerate(tasks[:MOST_CHARTS]):
        lines = _lines((view.label, joined(view.stages, "eval", name, task)) for view in views)
        of_task = f"{title}, {task}" if task and len(tasks) > 1 else title
        yield Chart(f"eval-{name}-{number}", of_task, unit, tuple(lines), _borders(views))


def _lines(curves: Iterable[tuple[str, Curve]]) -> list[Line]:
    """Lines of curves that are not empty; a curve keeps its colour whichever are."""
    return [Line(label, number, columns_of(curve)) for number, (label, curve) in enumerate(curves) if len(curve)]


def _split(view: View) -> Chart:
    """Means over stretches of the run: evaluating and saving come seldom, and take all of the time then."""
    curves = [(label, joined(view.stages, "train", name)) for name, label in _SPLIT]
    means = [(label, columns_of(curve, _STRETCHES)) for label, curve in curves if len(curve)]
    lines = (
        Line(label, number, replace(shown, low=shown.mean, high=shown.mean))
        for number, (label, shown) in enumerate(means)
    )
    return Chart("time", "Where the time goes", "share of the time", tuple(lines), _borders([view]))


def _padding(views: Sequence[View], side: str) -> Chart:
    curves = [(view.label, padding_of(view, side)) for view in views]
    if not any((curve.values > 0).any() for _, curve in curves):
        curves = []  # rows are filled exactly
    title = f"Padding of the {side}"
    return Chart(f"padding-{side}", title, "share of its tokens", tuple(_lines(curves)), _borders(views))


def padding_of(view: View, side: str) -> Curve:
    """The share of a side's tokens that was padding, over steps."""
    real = joined(view.stages, "train", f"{side}_tokens_per_second")
    padded = joined(view.stages, "train", f"{side}_tokens_per_second_padded")
    if len(real) != len(padded):
        return Curve(np.empty(0), np.empty(0))
    with np.errstate(divide="ignore", invalid="ignore"):
        return Curve(real.steps, 1.0 - real.values / padded.values)


def _measures(views: Sequence[View]) -> list[str]:
    """Names of what is measured beside the held-out loss and changes from evaluation to evaluation."""
    found = dict.fromkeys(
        name
        for view in views
        for stage in view.stages
        for task in stage.metrics.tasks
        for name in stage.metrics.names("eval", task)
    )
    return [name for name in found if name != _HELDOUT[0] and not name.endswith(_CONSTANT)]


def _borders(views: Sequence[View]) -> tuple[tuple[float, str], ...]:
    """Where the stages of an only run begin."""
    if len(views) > 1 or len(views[0].stages) < 2:
        return ()
    return tuple((float(stage.first), stage.name) for stage in views[0].stages if stage.steps)


def _numbers(values: np.ndarray) -> list[float | None]:
    """Rounded, and None for what is no number, as JSON has it."""
    return [None if value != value else float(f"{value:.{_SIX}g}") for value in values.tolist()]
