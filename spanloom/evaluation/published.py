"""What was measured beside what others published: a table by data set, with the macro average."""

import statistics
from collections.abc import Iterator, Mapping, Sequence

from spanloom.evaluation.result_rows import Row
from spanloom.settings.published import Published

_MEAN = "mean"


def beside_published(rows: Sequence[Row], published: Published) -> list[list[str]]:
    """Cells of the table, the header first: a column for each checkpoint in `rows` (see `with_averages`), then one for
    each published model.

    A checkpoint's figure of a data set is the mean over its templates, of several data sets that are published as one
    the mean of theirs, where all of them were measured. The first average is over the data sets that every checkpoint
    was measured on, for the published models, too; the second over all that are published. Empty where no checkpoint
    was measured on any.
    """
    ours = {name: _scores(rows, name, published) for name in dict.fromkeys(row.checkpoint for row in rows)}
    theirs = {model.name: model.scores for model in published.models}
    measured = [name for name in published.data_sets if any(name in scores for scores in ours.values())]
    if not measured:
        return []
    columns = {**ours, **theirs}
    return [
        ["data set", *columns],
        *([name, *(_text(scores.get(name)) for scores in columns.values())] for name in published.data_sets),
        *_averages(columns, ours, published),
    ]


def published_markdown(table: Sequence[Sequence[str]], published: Published) -> str:
    """The table for people, with its sources below it."""
    head, *lines = table
    rule = "|---|" + "---:|" * (len(head) - 1)
    cells = ["| " + " | ".join(line) + " |" for line in (head, *lines)]
    sources = [f"- {model.name}: {model.source}" for model in published.models]
    about = f"{published.measure}, percent, mean over templates; the first average is over what was measured here."
    return "\n".join([cells[0], rule, *cells[1:], "", about, "", *sources]) + "\n"


def _scores(rows: Sequence[Row], checkpoint: str, published: Published) -> dict[str, float]:
    means = {
        row.data_set: row.numbers[published.measure]
        for row in rows
        if row.checkpoint == checkpoint and row.kind == _MEAN and published.measure in row.numbers
    }
    return {
        name: statistics.fmean(means[part] for part in parts)
        for name, parts in published.data_sets.items()
        if all(part in means for part in parts)
    }


def _averages(
    columns: Mapping[str, Mapping[str, float]], ours: Mapping[str, Mapping[str, float]], published: Published
) -> Iterator[list[str]]:
    common = [name for name in published.data_sets if all(name in scores for scores in ours.values())]
    if 0 < len(common) < len(published.data_sets):
        averages = [statistics.fmean(scores[name] for name in common) for scores in columns.values()]
        yield [f"macro average of {len(common)}", *map(_text, averages)]
    yield [
        f"macro average of all {len(published.data_sets)}",
        *(_text(_of_all(one, published)) for one in columns.values()),
    ]


def _of_all(scores: Mapping[str, float], published: Published) -> float | None:
    whole = all(name in scores for name in published.data_sets)
    return statistics.fmean(scores[name] for name in published.data_sets) if whole else None


def _text(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}"
