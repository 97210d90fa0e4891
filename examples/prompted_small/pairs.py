"""Pairs of sentences out of text without labels, to learn from how many words two sentences have in common.

    python examples/prompted_small/pairs.py OUT TEXT...

TEXT are JSON lines with a column `text`, gzip too. Its sentences of 5 to 24 words, each once, in an order drawn once,
become OUT/short and OUT/mixed, each with train.jsonl and validation.jsonl (of 1,000 sentences that train.jsonl has
none of), columns sentence1, sentence2 and

- short: same (1: the second has the first one's words in another order; 0: it is another sentence, cut to as many
  words), 4 to 7 words each;
- mixed: share (0 to 4: fifths of the words of both that stand in both) and same (1: more than half of them do). One of
  the two is the other with some words lost, some replaced by those of another sentence, some moved.

Short ones come before mixed ones, for curriculum learning (Bengio et al. 2009). OUT/short.yaml and OUT/mixed.yaml have
prompts for them.
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
    inputs: "{{ sentence1 }}\\n{{ sentence2 }}\\nHow many of their words do both have?"
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
Words = tuple[str, ...]


def sentences(paths: Iterable[Path]) -> Iterator[Words]:
    """The words of each sentence of 5 to 24 words. Ends the program at a file or line that is not as it should be."""
    for path in paths:
        number = 0
        try:
            with (
                gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as file
            ):
                for number, line in enumerate(file, 1):  # noqa: B007 (the message names it)
                    for sentence in re.split(r"(?<=[.!?])[\"”’']*\s+", json.loads(line)["text"]):
                        if 5 <= len(words := sentence.split()) <= 24:
                            yield tuple(words)
        except (OSError, EOFError, ValueError, KeyError, TypeError) as error:
            raise SystemExit(f"{path}, line {number}: {error!r}; JSON objects with a text are needed") from error


def short_pair(words: Words, other: Words, draw: random.Random) -> Row:
    """As many first words of two sentences, or those of the first twice in two orders, each half of the time."""
    length = min(draw.randint(*SHORT), len(words), len(other))
    first, second = list(words[:length]), list(other[:length])
    if draw.random() < 0.5:
        second = draw.sample(first, length)
        while second == first and len(set(first)) > 1:
            draw.shuffle(second)
    same = sorted(first) == sorted(second)
    return {"sentence1": " ".join(first), "sentence2": " ".join(second), "same": int(same)}


def mixed_pair(words: Words, other: Words, draw: random.Random) -> Row:
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
    pool = list(dict.fromkeys(sentences(texts)))
    draw.shuffle(pool)
    if len(pool) < HELD_OUT + 2:
        raise SystemExit(f"{len(pool):,} sentences of 5 to 24 words: more than {HELD_OUT + 1:,} are needed")
    for kind, pair in (("short", short_pair), ("mixed", mixed_pair)):
        (out / kind).mkdir(parents=True, exist_ok=True)
        for part, some in (("validation", pool[:HELD_OUT]), ("train", pool[HELD_OUT:])):
            rows = (pair(words, some[number - 1], draw) for number, words in enumerate(some))
            with (out / kind / f"{part}.jsonl").open("w", encoding="utf-8") as file:
                file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        (out / f"{kind}.yaml").write_text(PROMPTS[kind], encoding="utf-8")
    return len(pool)


if __name__ == "__main__":
    if len(sys.argv) < 3:
        raise SystemExit(__doc__)
    print(f"{make(Path(sys.argv[1]), map(Path, sys.argv[2:])):,} pairs of each kind in {sys.argv[1]}")
