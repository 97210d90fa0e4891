"""What models wrote for held-out examples, checkpoint by checkpoint, each masked span in one colour throughout."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any
from urllib.parse import unquote

from spanloom.evaluation.fill import Piece
from spanloom.pipeline.durable import json_object
from spanloom.report.html import text
from spanloom.report.run_files import RunFiles
from spanloom.report.run_view import EVALUATION, Stage, fills_in
from spanloom.report.style import SPAN_COLOURS
from spanloom.report.visible import NEWLINE, visible

EXAMPLES = 3
"""Examples of a task."""
MOST_TASKS = 12
"""Tasks of a run whose examples are shown."""
_SHOWN = 9
_CHARACTERS = 1_500
_SENTINEL = re.compile(r"<extra_id_(\d{1,4})>")
_STEP = re.compile(r"-(\d{1,15})$")


@dataclass
class Sample:
    """One example, and what was made of it."""

    task: str
    """Name of its task."""
    inputs: str
    """Its text, with sentinels in the place of spans."""
    targets: str
    """What was masked, or asked for."""
    written: dict[str, str] = field(default_factory=dict)
    """By name of the checkpoint, earliest first."""


def samples_of(files: RunFiles) -> list[Sample]:
    """The first examples of each task that `spanloom eval` had models write for."""
    found: dict[tuple[str, Any], Sample] = {}
    folders = [name for name in files.names(EVALUATION) if not name.startswith((".", "results."))]
    for checkpoint in sorted(folders, key=_by_step):
        names = [name for name in files.names(f"{EVALUATION}/{checkpoint}") if name.endswith(".jsonl")]
        for name in names[:MOST_TASKS]:
            task = unquote(name.removesuffix(".jsonl"))
            for record in _first(files, f"{EVALUATION}/{checkpoint}/{name}"):
                key = (task, record["example"])
                sample = found.setdefault(key, Sample(task, record["inputs"], record["targets"]))
                sample.written[checkpoint] = record["prediction"]
    return list(found.values())


def _by_step(name: str) -> tuple[int, str]:
    step = _STEP.search(name)
    return (int(step[1]) if step else 0, name)


def _first(files: RunFiles, name: str) -> Iterator[Mapping[str, Any]]:
    block = next(iter(files.blocks(name, 0)), b"")
    count = 0
    for line in block.splitlines():
        record = json_object(line)
        if record is None or not all(isinstance(record.get(one), str) for one in ("inputs", "targets", "prediction")):
            continue
        if type(record.get("example")) is int and count < EXAMPLES:
            count += 1
            yield record


def sample_html(sample: Sample) -> str:
    """The example as a list: text, what was there, and what each checkpoint wrote."""
    sides = {"text": sample.inputs, "was there": sample.targets, **sample.written}
    shown = "".join(
        f'<dt>{text(name)}</dt><dd class="text" dir="auto">{_coloured(side)}</dd>' for name, side in sides.items()
    )
    return f"<dl>{shown}</dl>"


def _coloured(words: str) -> str:
    """Sentinels as their numbers, and what follows each in its colour where nothing but spans is written."""
    words = words[:_CHARACTERS] + ("..." if len(words) > _CHARACTERS else "")
    before, *rest = _SENTINEL.split(words)
    only_spans = not before.strip()
    parts = [_lines(before)]
    for number, span in zip(rest[::2], rest[1::2], strict=True):
        colour = int(number) % SPAN_COLOURS
        parts.append(f'<bdi class="sentinel s{colour}" dir="ltr">&lt;{int(number)}&gt;</bdi>')
        parts.append(f'<span class="span s{colour}">{_lines(span)}</span>' if only_spans and span else _lines(span))
    return "".join(parts)


def _lines(words: str) -> str:
    return escape(visible(words)).replace(NEWLINE, f"{NEWLINE}<br>") if words else ""


def filled_html(pieces: Sequence[Piece]) -> str:
    """An example with its gaps filled in: right guesses, and wrong ones struck beside what was there."""
    return f'<p class="text filled" dir="auto">{_filled(pieces)}</p>'


def over_time_html(stages: Sequence[Stage], task: str) -> str:
    """What was filled into the same examples at one evaluation after another; empty where nothing was."""
    found: dict[str, list[tuple[Piece, ...]]] = {}
    for stage in stages:
        where = f", stage {stage.name}" if len(stages) > 1 else ""
        for step, fills in sorted(stage.metrics.fills.get(task, {}).items()):
            if examples := list(fills_in(fills)):
                found[f"step {stage.first + step:,}{where}"] = examples
    names = list(found)
    if len(names) > _SHOWN:
        names = [names[round(number * (len(names) - 1) / (_SHOWN - 1))] for number in range(_SHOWN)]
    made = []
    for number in range(min((len(found[name]) for name in names), default=0))[:EXAMPLES]:
        rows = (f"<dt>{text(name)}</dt>{_answer(found[name][number])}" for name in names)
        made.append(f"<dl>{''.join(rows)}</dl>")
    return "".join(made)


def _answer(pieces: Sequence[Piece]) -> str:
    return f'<dd class="text" dir="auto">{_filled(pieces)}</dd>'


def _filled(pieces: Sequence[Piece]) -> str:
    return "".join(map(_piece, pieces))


def _piece(piece: Piece) -> str:
    if piece.guess is None:
        return _lines(piece.text[:_CHARACTERS])
    if piece.right:
        return f'<span class="right">{_lines(piece.guess)}</span>'
    guess, there = (_lines(words[:_CHARACTERS]) for words in (piece.guess, piece.text))
    return f'<span class="wrong">{guess or "&nbsp;"}</span><span class="known">{there}</span>'
