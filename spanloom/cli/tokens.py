"""A command line cut into flags with their values, before anything is known about what the flags mean."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from spanloom.cli.errors import USAGE, UsageError


@dataclass(frozen=True)
class Flag:
    """One flag as it was given."""

    typed: str
    """As the user wrote it, dashes included."""
    name: str
    """Dotted, with `_` for `-` and without leading dashes."""
    values: tuple[str, ...]
    """What follows it up to the next flag."""

    def argv(self) -> list[str]:
        """The flag as tyro wants it."""
        return ["--" + self.name.replace("_", "-"), *self.values]

    def words(self) -> list[str]:
        """The flag as words that are read as it again: a value that looks like a flag is read as a value after =."""
        if self.values and self.values[0].startswith("-"):
            return [f"{self.typed}={self.values[0]}", *self.values[1:]]
        return [self.typed, *self.values]


Takes = Callable[[Flag, str], bool]
"""Whether a flag, with the values that it has, takes one more word."""


def split(argv: Sequence[str], takes: Takes | None = None) -> tuple[list[str], list[Flag]]:
    """Positional words and the flags, both in order.

    `--name=value` is `--name value`; a word with one dash (a negative number) is a value; what follows `--` are words.
    Where `takes` is known, a flag ends with the first word that it does not take, or with its `=`; else with the next
    flag.
    """
    words: list[str] = []
    flags: list[Flag] = []
    ended = True
    for place, word in enumerate(argv):
        if word == "--":
            words += argv[place + 1 :]
            break
        if word == "-h":
            word = "--help"
        if word.startswith("--"):
            typed, equals, value = word.partition("=")
            flags.append(Flag(typed, typed[2:].replace("-", "_"), (value,) if equals else ()))
            ended = bool(equals) and takes is not None
        elif not ended and (takes is None or takes(flags[-1], word)):
            last = flags[-1]
            flags[-1] = Flag(last.typed, last.name, (*last.values, word))
        else:
            ended = True
            words.append(word)
    return words, flags


def first_word(argv: Sequence[str], usage: str, comes_first: str) -> str:
    """The word that a command must begin with. Without any, and for --help, prints `usage` and raises SystemExit.

    Raises UsageError, saying what `comes_first`, where a flag is in its place.
    """
    if not argv or argv[0] in ("-h", "--help"):
        print(usage, end="")
        raise SystemExit(0 if argv else USAGE)
    if argv[0].startswith("-"):
        raise UsageError(comes_first)
    return argv[0]


def merge_repeated(flags: Iterable[Flag], lists: Iterable[str]) -> list[Flag]:
    """One flag of each name: the values of list-like ones are joined in order, of others the last one counts."""
    lists = set(lists)
    merged: dict[str, Flag] = {}
    for flag in flags:
        before = merged.get(flag.name)
        values = flag.values if before is None or flag.name not in lists else (*before.values, *flag.values)
        merged[flag.name] = Flag(flag.typed, flag.name, values)
    return list(merged.values())
