"""How far shared words alone tell whether two sentences say the same: a baseline for models that read both.

    python examples/prompted_small/shared_words.py DATA

DATA is what `prepare.py` wrote. Of MRPC (do both say the same?) and SICK (does one follow from the other?) the answer
is yes where the share of the words that stand in both (Jaccard 1912) is above a bound, which is right as often as one
can be on train.jsonl. Prints, for each other part, percent right, and beside it those of always giving its commonest
answer.
"""

import json
import re
import sys
from pathlib import Path

PAIRS = {"glue_mrpc": ("sentence1", "sentence2", 1), "sick": ("sentence_A", "sentence_B", 0)}
"""Columns of the two sentences, and the label that means yes."""

Scored = list[tuple[float, bool]]
"""Share of words in both, and whether the answer is yes, of each pair."""


def shared(one: str, other: str) -> float:
    """Share of the words of two sentences that stands in both, from 0 to 1."""
    words, others = (set(re.findall(r"\w+|[^\w\s]", text.lower())) for text in (one, other))
    return len(words & others) / max(len(words | others), 1)


def best_bound(pairs: Scored) -> float:
    """The bound above which yes is right most often; the lowest of several."""
    right = sum(yes for _, yes in pairs)
    best, bound = right, -1.0
    ordered = sorted(pairs)
    for number, (score, yes) in enumerate(ordered):
        right += -1 if yes else 1
        is_last_of_its_score = number + 1 == len(ordered) or ordered[number + 1][0] > score
        if is_last_of_its_score and right > best:
            best, bound = right, score
    return bound


def table(data: Path) -> str:
    """A Markdown table: a row for each part that nothing was chosen by."""
    lines = ["| | pairs | the commonest answer | shared words |", "|---|---|---|---|"]
    for name in PAIRS:
        bound = best_bound(_scored(data, name, "train"))
        for part in ("validation", "test"):
            pairs = _scored(data, name, part)
            yes = sum(answer for _, answer in pairs)
            right = sum((score > bound) == answer for score, answer in pairs)
            shares = (f"{100 * count / len(pairs):.1f}" for count in (max(yes, len(pairs) - yes), right))
            lines.append(f"| {name}, {part} | {len(pairs):,} | {' | '.join(shares)} |")
    return "\n".join(lines)


def _scored(data: Path, name: str, part: str) -> Scored:
    one, other, yes = PAIRS[name]
    rows = map(json.loads, (data / name / f"{part}.jsonl").read_text(encoding="utf-8").rstrip("\n").split("\n"))
    return [(shared(row[one], row[other]), row["label"] == yes) for row in rows]


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    print(table(Path(sys.argv[1])))
