"""A command line cut into flags with their values, before anything is known about what the flags mean."""

from collections.abc import Iterable, Sequence
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


def split(argv: Sequence[str]) -> tuple[list[str], list[Flag]]:
    """Positional words (those before the first flag), and the flags in order.

    `--name=value` is `--name value`; a word with one dash (a negative number) is a value.
    """
    words: list[str] = []
    flags: list[Flag] = []
    for word in argv:
        if word == "-h":
            word = "--help"
        if word.startswith("--") and len(word) > 2:
            typed, equals, value = word.partition("=")
            flags.append(Flag(typed, typed[2:].replace("-", "_"), (value,) if equals else ()))
        elif flags:
            last = flags[-1]
            flags[-1] = Flag(last.typed, last.name, (*last.values, word))
        else:
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
