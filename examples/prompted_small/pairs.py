"""Pairs of sentences out of text without labels, to learn from whether both have words in common.

    python examples/prompted_small/pairs.py OUT TEXT...

TEXT are JSON lines with a column `text`, gzip too. Its sentences of 5 to 24 words, in an order drawn once, become
OUT/short and OUT/mixed, each with train.jsonl and validation.jsonl (1,000 pairs), columns sentence1, sentence2 and

- short: same (1: the second has the first one's words in another order; 0: it is another sentence), 4 to 7 words each;
- mixed: share (0 to 4: fifths of the words of both that stand in both) and same (1: more than half of them do). One of
  the two is the other with some words lost, some replaced by those of another sentence, some moved.

A model that has to tell mixed pairs apart stays at the commonest answer for long; after some hundred steps of short
ones it does not (from easy to hard: Bengio et al. 2009). OUT/short.yaml and OUT/mixed.yaml have prompts for them.
"""

import gzip
import json
import random
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from shared_words import shared

HELD_OUT = 1_000
SHORT = 4, 7
"""Fewest and most words of a sentence of a short pair."""
PROMPTS = {
    "short": """\
dataset: short
templates:
  - name: same words
    inputs: "{{ sentence1 }} | {{ sentence2 }}"
    targets: "{{ answer_choices[same] }}"
    answer_choices: ["no", "yes"]
""",
    "mixed": """\
dataset: mixed
templates:
  - name: how much
    inputs: "{{ sentence1 }}\\nHow many of its words are in this? {{ sentence2 }}"
    targets: "{{ answer_choices[share] }}"
    answer_choices: ["none", "few", "some", "most", "all"]
  - name: same
    inputs: "{{ sentence1 }}\\n{{ sentence2 }}\\nDo both say the same? Yes or no?"
    targets: "{{ answer_choices[same] }}"
    answer_choices: ["no", "yes"]
""",
}
"""A file of prompts for each kind of pair."""

Row = dict[str, Any]


def sentences(paths: Iterable[Path]) -> Iterator[list[str]]:
    """The words of each sentence of 5 to 24 words."""
    for path in paths:
        with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as file:
            for line in file:
                for sentence in re.split(r"(?<=[.!?])[\"”’']*\s+", json.loads(line)["text"]):
                    if 5 <= len(words := sentence.split()) <= 24:
                        yield words


def short_pair(words: list[str], other: list[str], draw: random.Random) -> Row:
    """The first words of a sentence, and the same in another order or the first of `other`, each half of the time."""
    first, second = words[: draw.randint(*SHORT)], other[: draw.randint(*SHORT)]
    same = draw.random() < 0.5
    if same:
        second = draw.sample(first, len(first))
    return {"sentence1": " ".join(first), "sentence2": " ".join(second), "same": int(same)}


def mixed_pair(words: list[str], other: list[str], draw: random.Random) -> Row:
    """A sentence and what becomes of it when a share, drawn anew for each, of its words is that of `other`."""
    replaced, lost = draw.random(), 0.3 * draw.random()
    becomes = [
        other[place * len(other) // len(words)] if draw.random() < replaced else word
        for place, word in enumerate(words)
        if draw.random() > lost
    ]
    if draw.random() < 0.3 and len(becomes) > 6:
        begin, end = sorted(draw.sample(range(len(becomes)), 2))
        becomes = becomes[end:] + becomes[begin:end] + becomes[:begin]
    pair = [" ".join(words), " ".join(becomes or other)]
    draw.shuffle(pair)
    share = shared(*pair)
    return {"sentence1": pair[0], "sentence2": pair[1], "share": min(4, int(5 * share)), "same": int(share > 0.5)}


def make(out: Path, texts: Iterable[Path]) -> int:
    """Writes all of it; how many pairs there are of each kind."""
    draw = random.Random(0)
    pool = list(sentences(texts))
    draw.shuffle(pool)
    if len(pool) <= HELD_OUT:
        raise SystemExit(f"{len(pool):,} sentences of 5 to 24 words: more than {HELD_OUT:,} are needed")
    for kind, pair in (("short", short_pair), ("mixed", mixed_pair)):
        rows = [pair(words, pool[number - 1], draw) for number, words in enumerate(pool)]
        (out / kind).mkdir(parents=True, exist_ok=True)
        for part, some in (("validation", rows[:HELD_OUT]), ("train", rows[HELD_OUT:])):
            with (out / kind / f"{part}.jsonl").open("w", encoding="utf-8") as file:
                file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in some)
        (out / f"{kind}.yaml").write_text(PROMPTS[kind], encoding="utf-8")
    return len(pool)


if __name__ == "__main__":
    if len(sys.argv) < 3:
        raise SystemExit(__doc__)
    print(f"{make(Path(sys.argv[1]), map(Path, sys.argv[2:])):,} pairs of each kind in {sys.argv[1]}")
