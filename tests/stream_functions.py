"""Functions that give streams of rows, for tests: endless ones, ones that end, ones that begin where they are told."""

import itertools
import json
import time
from collections.abc import Iterator
from pathlib import Path

WORDS = "the a model learns to fill masked spans of bytes and every run goes on where it stopped"


def row(number: int, seed: int = 0) -> dict[str, str]:
    state = (number * 2 + seed * 7919 + 1) * 0x9E3779B97F4A7C15 % 2**64
    words = WORDS.split(" ")
    picks = [words[(state >> shift) % len(words)] for shift in range(0, 4 * (3 + number % 9), 4)]
    return {"text": f"{number} " + " ".join(picks), "inputs": f"in {number}", "targets": " ".join(picks[:3])}


def endless(seed: int = 0, split: str = "train", pause: float = 0.0) -> Iterator[dict[str, str]]:
    for number in itertools.count():
        if pause:
            time.sleep(pause)
        yield row(number, seed + (split != "train"))


def ending(rows: int) -> Iterator[dict[str, str]]:
    return (row(number) for number in range(rows))


def skipping(skip: int = 0) -> Iterator[dict[str, str]]:
    return (row(number) for number in itertools.count(skip))


def counted(log: str) -> Iterator[dict[str, str]]:
    """Writes down where it was begun."""
    with Path(log).open("a") as file:
        file.write("begun\n")
    return endless()


def from_file(path: str) -> Iterator[dict[str, str]]:
    """What a file says now: the seed of an endless stream."""
    return endless(json.loads(Path(path).read_text()))


def failing(after: int) -> Iterator[dict[str, str]]:
    for number in range(after):
        yield row(number)
    raise OSError("the line is dead")


class Restoring:
    """Rows with a state of their own."""

    def __init__(self) -> None:
        self.at = 0

    def __iter__(self) -> Iterator[dict[str, str]]:
        while True:
            self.at += 1
            yield row(self.at - 1)

    def state_dict(self) -> dict[str, int]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.at = state["at"]


def restoring() -> Restoring:
    return Restoring()


def nothing(example: dict[str, str]) -> bool:
    return False
