"""Word and phoneme error rates of each language, beside those of copying the letters and those published: Markdown.

    spanloom train g2p --data DATA --out runs/g2p
    spanloom eval runs/g2p g2p --data DATA
    python examples/words_to_sounds/table.py runs/g2p/eval/g2p-2000

The argument is the folder with what `spanloom eval` kept of one checkpoint: a file of predictions for each language.
Rates are counted as SIGMORPHON 2020 did (Gorman et al. 2020): WER, words in 100 that are not right; PER, edits for 100
sounds; at the bottom the mean over languages. Copying writes each letter of the word as a sound of its own.
"""

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from spanloom.evaluation.metrics.edits import pronunciation

PUBLISHED = {
    "arm": (15.78, 3.44), "bul": (29.11, 6.70), "fre": (7.56, 2.12), "geo": (26.22, 5.36), "gre": (14.89, 2.75),
    "hin": (7.11, 1.70), "hun": (3.11, 0.60), "ice": (10.22, 2.44), "kor": (24.67, 6.80), "lit": (18.00, 3.86),
}  # fmt: skip
"""WER and PER of the task's own transformer baseline, a model for each language, tuned on the dev words: as reported
where it was added, https://github.com/sigmorphon/2020/pull/4. Five languages were not out yet."""

Rates = tuple[float, float]


@dataclass(frozen=True)
class Row:
    """One language."""

    language: str
    words: int
    ours: Rates
    """WER and PER."""
    copying: Rates

    @property
    def cells(self) -> list[str]:
        """Of its line."""
        published = PUBLISHED.get(self.language)
        last = ["", ""] if published is None else [f"{rate:.1f}" for rate in published]
        return [self.language, f"{self.words:,}", *(f"{rate:.1f}" for rate in (*self.ours, *self.copying)), *last]


def rows(folder: Path) -> Iterator[Row]:
    """In order of the languages."""
    for path in sorted(folder.glob("*.jsonl")):
        records = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        targets = [record["targets"] for record in records]
        written = [record["prediction"] for record in records]
        copied = [" ".join(_word(record["inputs"], path.stem)) for record in records]
        yield Row(path.stem, len(records), _rates(targets, written), _rates(targets, copied))


def table(folder: Path) -> str:
    """The table. Raises ValueError where there are no predictions."""
    found = list(rows(folder))
    if not found:
        raise ValueError(f"{folder}: no file of predictions; name what `spanloom eval` kept of one checkpoint")
    head = ["language", "words", "WER", "PER", "WER of copying", "PER of copying", "WER published", "PER published"]
    ours, copying = ((fmean(one[0] for one in side), fmean(one[1] for one in side)) for side in _sides(found))
    mean = Row("mean", sum(row.words for row in found), ours, copying)
    return "\n".join(map(_line, (head, ["---"] * len(head), *(row.cells for row in (*found, mean)))))


def _sides(found: list[Row]) -> tuple[list[Rates], list[Rates]]:
    return [row.ours for row in found], [row.copying for row in found]


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _rates(targets: list[str], written: list[str]) -> Rates:
    numbers = pronunciation(targets, written)
    return float(numbers["wer"]), float(numbers["per"])


def _word(inputs: str, language: str) -> str:
    """The word of ' {language} {word}'."""
    return inputs.strip().removeprefix(f"{language} ")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    print(table(Path(sys.argv[1])))
