"""Runs as one page that needs nothing else: curves, tables, what models wrote, settings, machines and costs.

The page holds its data and its script itself, and asks for nothing; a browser that obeys its policy would refuse to. It
says the same without the script, which only lets charts be looked into.
"""

import base64
import datetime
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from itertools import groupby

import spanloom
from spanloom.evaluation.fill import LEGEND as FILL_LEGEND
from spanloom.evaluation.result_rows import NAMES as ROW_NAMES
from spanloom.evaluation.result_rows import table_of
from spanloom.report import run_tables
from spanloom.report.charts import Chart, charts_of
from spanloom.report.differences import differences
from spanloom.report.html import folded, table, text
from spanloom.report.plot import COLOURS, svg
from spanloom.report.references import NANOT5, Reference, fitting
from spanloom.report.run_files import NoRunError
from spanloom.report.run_style import RUN_CSS
from spanloom.report.run_view import View
from spanloom.report.samples import MOST_TASKS, filled_html, over_time_html, sample_html, samples_of
from spanloom.report.settings_table import Baseline, all_settings, settings_table, spanloom_defaults
from spanloom.report.style import CSS

Baselines = Mapping[str, Sequence[Baseline | None]]
"""By label of the run, what each of its stages is compared with; None, or absent: Spanloom's defaults."""

_FIRST_CHARTS = 6
"""Charts that are not folded away."""


def page(
    views: Sequence[View], made: str, *, references: str = "auto", baselines: Baselines | None = None, live: float = 0
) -> str:
    """The page, HTML. `made`: a line that says when and by what; `references`: auto, none or nanot5; `live`: seconds
    between questions for what is new, where a server answers them.
    """
    title = text(title_of(views))
    charts = charts_of(views, references_of(views, references))
    script = files("spanloom.report").joinpath("charts.js").read_text(encoding="utf-8")
    asks = "connect-src 'self'; " if live else ""
    policy = f"default-src 'none'; {asks}style-src 'unsafe-inline'; script-src 'sha256-{_digest(script)}'"
    status = '<p class="note" id="status">live</p>' if live else ""
    seconds = f' data-live="{live:g}"' if live else ""
    return "\n".join(
        [
            '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{title}</title>\n<style>\n{CSS}\n{RUN_CSS}\n</style></head>",
            f"<body{seconds}>\n<h1>{title}</h1>{status}\n<main>",
            main(views, charts, made, baselines or {}),
            f'</main>\n<script type="application/json" id="charts">{embedded(charts)}</script>',
            f"<script>{script}</script>\n</body></html>\n",
        ]
    )


def made_now() -> str:
    """The line that says when a page was made, and by what."""
    now = datetime.datetime.now(datetime.UTC).isoformat(" ", timespec="minutes").removesuffix("+00:00")
    return f"made by spanloom {spanloom.__version__}, {now} UTC"


def title_of(views: Sequence[View]) -> str:
    """What the page is about."""
    names = [view.label for view in views]
    return f"Run {names[0]}" if len(names) == 1 else f"Runs {', '.join(names[:-1])} and {names[-1]}"


def embedded(charts: Sequence[Chart]) -> str:
    """The charts as JSON that can stand inside of a script element, whatever their names are."""
    data = json.dumps([chart.data for chart in charts], separators=(",", ":"), allow_nan=False)
    return data.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def references_of(views: Sequence[View], asked: str) -> tuple[Reference, ...]:
    """The published curves to show: those asked for, or (auto) those whose losses the runs' compare with."""
    if asked == "nanot5":
        return NANOT5
    run = views[0].stages[0].run
    return fitting(run) if asked == "auto" and all(len(view.stages) == 1 for view in views) else ()


def main(views: Sequence[View], charts: Sequence[Chart], made: str, baselines: Baselines) -> str:
    """All that changes while a run goes on, HTML."""
    return "\n".join(_sections(views, charts, made, baselines))


def _sections(views: Sequence[View], charts: Sequence[Chart], made: str, baselines: Baselines) -> Iterator[str]:
    yield table(*run_tables.summary(views), run_tables.WORDS)
    yield from (f'<p class="warning">{text(said)}</p>' for said in _warnings(views))
    yield from _curves(charts)
    yield from _titled("Held-out loss by task", run_tables.heldout(views), "nats a target token; a nat is 1.44 bits")
    for view in views:
        yield from _forgetting(view, views)
    yield from _evaluations(views)
    yield from _over_time(views)
    yield from _filled(views)
    yield from _samples(views)
    yield from _titled("Data", run_tables.data(views), run_tables.padding(views))
    yield from _settings(views, baselines)
    yield from _differences(views)
    note = (
        "Hours of the clock, evaluating and saving included; compiling, and steps lost with a kill, are not in them. "
        "From start to end they are, and so is the time in which nothing ran."
    )
    yield from _titled("Cost", run_tables.costs(views), note)
    yield from _titled("Machines and versions", run_tables.machines(views))
    yield from _titled("Commands", run_tables.commands(views))
    yield f'<p class="note">{text(made)}</p>'


def _titled(title: str, made: tuple[Sequence[str], Sequence[Sequence[str]]], note: str = "") -> Iterator[str]:
    if made[1]:
        yield f"<h2>{title}</h2>"
        yield table(*made, run_tables.WORDS)
        if note:
            yield f'<p class="note">{text(note)}</p>'


def _warnings(views: Sequence[View]) -> Iterator[str]:
    for view in views:
        for stage in view.stages:
            where = stage.files.place
            if stage.problem:
                yield f"{where}: settings cannot be read: {stage.problem}"
            if stage.metrics.damaged > 1:  # the last line of a run that goes on, or was killed, may be torn
                yield f"{where}: {stage.metrics.damaged:,} lines of metrics.jsonl are damaged and left out"
            if (event := stage.metrics.diverged) is not None:
                yield f"{where}: diverged at step {event['step']:,}: loss or gradient were no numbers"


def _curves(charts: Sequence[Chart]) -> Iterator[str]:
    if not charts:
        yield '<p class="note">No step has been logged yet.</p>'
        return
    yield "<h2>Curves</h2>"
    yield (
        '<p class="controls"><label>smoothing <input id="smooth" type="range" min="0" max="0.99" step="0.01" value="0">'
        '</label> <label><input id="log-x" type="checkbox"> log steps</label> '
        '<span class="note">drag to zoom, "whole" for all, with the first steps; shades: lowest to highest</span></p>'
    )
    yield f'<div class="charts">{"".join(map(_figure, charts[:_FIRST_CHARTS]))}</div>'
    if more := charts[_FIRST_CHARTS:]:
        yield folded(
            f"{len(more)} more charts",
            f'<div class="charts">{"".join(map(_figure, more))}</div>',
            is_open=len(more) <= 12,
        )


def _figure(chart: Chart) -> str:
    unit = f' <span class="note">{text(chart.unit)}</span>' if chart.unit else ""
    note = f'<p class="note">{text(chart.note)}</p>' if chart.note else ""
    buttons = "".join(
        f'<button class="c{line.colour % COLOURS}{" dashed" if line.is_reference or line.colour >= COLOURS else ""}" '
        f'data-colour="{line.colour}" type="button"><i></i>{text(line.label)}</button>'
        for line in (chart.lines if len(chart.lines) > 1 else ())
    )
    return (
        f'<figure class="chart" data-chart="{text(chart.name)}"><figcaption><b>{text(chart.title)}</b>{unit}'
        '<span class="tools"><button class="log" type="button">log</button>'
        '<button class="whole" type="button">whole</button></span></figcaption>'
        f'{svg(chart)}<p class="values note"></p><p class="legend">{buttons}</p>{note}</figure>'
    )


def _forgetting(view: View, views: Sequence[View]) -> Iterator[str]:
    found = run_tables.forgetting(view)
    if not found or not found[1]:
        return
    tasks, rows = found
    title = "Stages, and what is forgotten" + (f", {view.label}" if len(views) > 1 else "")
    columns = {task: [losses[task] for _, _, losses in rows if task in losses] for task in tasks}
    head = "".join(f"<th>{text(task)}</th>" for task in tasks)
    body = []
    for stage, steps, losses in rows:
        cells = "".join(_heat(losses.get(task), columns[task]) for task in tasks)
        body.append(f'<tr><td class="name">{text(stage)}</td><td>{steps:,}</td>{cells}</tr>')
    lost = "".join(f"<td>{run_tables.number(columns[task][-1] - min(columns[task]))}</td>" for task in tasks)
    body.append(f'<tr class="sum"><td class="name">forgotten</td><td></td>{lost}</tr>')
    yield f"<h2>{text(title)}</h2>"
    yield (
        f'<div class="scroll"><table><thead><tr><th class="name">after stage</th><th>steps</th>{head}</tr></thead>'
        f"<tbody>{''.join(body)}</tbody></table></div>"
    )
    yield '<p class="note">Held-out loss at the last evaluation of each stage; forgotten: the last over the lowest.</p>'


def _heat(loss: float | None, column: Sequence[float]) -> str:
    if loss is None:
        return "<td>-</td>"
    low, high = min(column), max(column)
    share = (loss - low) / (high - low) if high > low else 0.0
    return f'<td class="heat" style="--heat:{share:.2f}">{run_tables.number(loss)}</td>'


def _evaluations(views: Sequence[View]) -> Iterator[str]:
    for view in views:
        if view.evaluations:
            head, *lines = table_of(view.evaluations)
            yield f"<h2>{text('Evaluation' + (f', {view.label}' if len(views) > 1 else ''))}</h2>"
            made = table(head, lines, ROW_NAMES)
            yield made if len(lines) <= 40 else folded(f"{len(lines):,} rows", made)


def _filled(views: Sequence[View]) -> Iterator[str]:
    found = [
        (view, stage, one) for view in views for stage in view.stages for one in stage.filled if one.text or one.fills
    ]
    if not found:
        return
    yield "<h2>What finished runs are worth, and what they fill in</h2>"
    if any(one.fills for _, _, one in found):
        yield f'<p class="note">Held-out text, its gaps filled in: {text(FILL_LEGEND)}, as colours.</p>'
    for view, stage, one in found[:MOST_TASKS]:
        names = (
            [view.label] * (len(views) > 1)
            + [f"after stage {stage.name}"] * view.is_staged
            + [one.task] * bool(one.task)
        )
        yield f"<h3>{text(', '.join(names))}</h3>" if names else ""
        if one.text:
            yield f'<pre class="scroll">{"<br>".join(map(text, one.text.splitlines()))}</pre>'
        yield from map(filled_html, one.fills)


def _over_time(views: Sequence[View]) -> Iterator[str]:
    found = []
    for view in views:
        tasks = list(dict.fromkeys(task for stage in view.stages for task in stage.metrics.fills))
        for task in tasks[:MOST_TASKS]:
            if made := over_time_html(view.stages, task):
                names = [view.label] * (len(views) > 1) + [task] * (len(tasks) > 1)
                found.append(f"<h3>{text(', '.join(names))}</h3>{made}" if names else made)
    if found:
        yield "<h2>What was filled in, over time</h2>"
        yield f'<p class="note">Held-out text, its gaps filled in: {text(FILL_LEGEND)}, as colours.</p>'
        yield from found


def _samples(views: Sequence[View]) -> Iterator[str]:
    for view in views:
        for stage in view.stages:
            found = [one for one in samples_of(stage.files) if one.written]
            if not found:
                continue
            label = ", ".join([view.label] * (len(views) > 1) + [stage.name] * view.is_staged)
            yield f"<h2>{text('What each checkpoint writes' + (f', {label}' if label else ''))}</h2>"
            for task, samples in groupby(found, lambda one: one.task):
                yield f"<h3>{text(task)}</h3>{''.join(map(sample_html, samples))}"


def _settings(views: Sequence[View], baselines: Baselines) -> Iterator[str]:
    made: list[str] = []
    for view in views:
        made += _chosen(view, baselines.get(view.label, ()), [view.label] * (len(views) > 1))
        if runs := [stage.run for stage in view.stages if stage.run is not None]:
            of_run = f" of {view.label}" if len(views) > 1 else ""
            made.append(folded(f"all settings{of_run}", f"<pre>{text_lines(all_settings(runs))}</pre>"))
    if made:
        yield "<h2>Settings that were chosen</h2>"
        yield from made


def _chosen(view: View, baselines: Sequence[Baseline | None], label: list[str]) -> Iterator[str]:
    """What differs from the recipe; of a stage, what the first one does not have as well."""
    first: list[tuple[str, ...]] | None = None
    for number, stage in enumerate(view.stages):
        if stage.run is None:
            continue
        given = baselines[number] if number < len(baselines) else None
        if (baseline := given or spanloom_defaults(stage.run)) is None:
            continue
        headings, rows = settings_table(stage.run, baseline)
        names = [*label, f"stage {stage.name}"] if view.is_staged else label
        yield f"<h3>{text(', '.join(names))}</h3>" if names else ""
        shown = [row for row in rows if row not in first] if first else rows
        if shown:
            yield table(headings, shown, headings)
        if first is not None:
            yield '<p class="note">the others as in the first stage</p>'
        elif not rows:
            yield f'<p class="note">none differs from {text(baseline.name)}</p>'
        first = rows if first is None else first


def text_lines(words: str) -> str:
    """Text of several lines, HTML."""
    return "\n".join(map(text, words.split("\n")))


def _differences(views: Sequence[View]) -> Iterator[str]:
    first = views[0]
    for other in views[1:]:
        title = f"<h2>{text(f'How {other.label} differs from {first.label}')}</h2>"
        try:
            found = differences(first.files, other.files)
        except NoRunError as error:
            yield f'{title}<p class="note">{text(str(error))}</p>'
            continue
        rows = [
            (one.about, one.name, *one.shown)
            if len("".join(one.shown)) < 400
            else (one.about, one.name, one.text[:400], "")
            for one in found
        ]
        headings = ("what", "setting", first.label, other.label)
        yield title + (table(headings, rows, headings) if rows else '<p class="note">In nothing.</p>')
