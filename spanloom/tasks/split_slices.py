"""Parts of splits, as TensorFlow Datasets and `datasets` write them: train[:10%], train[1000:], train+validation."""

import re
from dataclasses import dataclass

_PART = re.compile(r"^\s*([^\[\]+]+?)\s*(?:\[\s*(-?\d+%?)?\s*:\s*(-?\d+%?)?\s*\])?\s*$")


@dataclass(frozen=True)
class Part:
    """A split, or a run of its examples."""

    split: str
    first: str = ""
    """Number or percentage; negative: counted from the end; empty: from the first example."""
    stop: str = ""
    """The same; empty: to the last example."""

    def bounds(self, total: int) -> tuple[int, int]:
        """First example and the one after the last, of a split of `total`; percentages go to the nearest example."""
        first, stop = (_place(text, total) for text in (self.first or "0", self.stop or str(total)))
        return first, max(first, stop)


def parse(text: str) -> list[Part]:
    """The parts of a split's name. Raises ValueError for what is none."""
    parts = []
    for one in text.split("+"):
        match = _PART.match(one)
        if not match:
            raise ValueError(f"{text!r} is no split: write train, train[:10%], train[1000:] or train+validation")
        parts.append(Part(match[1], match[2] or "", match[3] or ""))
    return parts


def saved_split(name: str) -> str:
    """The split that was saved by itself, by the name it had: of a part, train[:10%], or none, as of rows in memory."""
    return parse(name or "train")[0].split


def _place(text: str, total: int) -> int:
    number = round(int(text[:-1]) * total / 100) if text.endswith("%") else int(text)
    return min(max(number + total if text.startswith("-") else number, 0), total)
