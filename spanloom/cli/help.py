"""`--help` of a recipe: usage, what it is with examples, then its own flags, those used most, and all others by part.

Made without arrays and without the parser, so that it is there at once: types come from annotations, meanings from the
docstrings under the fields.
"""

import ast
import dataclasses
import functools
import inspect
import shlex
import shutil
import sys
import textwrap
import types
import typing
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

from spanloom.settings.compare import within
from spanloom.settings.kinds import holds_settings

MOST_USED = (
    "out",
    "steps",
    "batch_size",
    "seed",
    "optimizer.learning_rate",
    "checkpoint.every",
    "eval.every",
    "log.every",
)
"""Fields of a run that are shown before all others."""

MUST_BE_GIVEN = "Must be given."

VALUES = """INT, FLOAT and STR are one value, {a,b} is one of these, [STR ...] is any number of values with blanks
between (put globs in quotes). None unsets a value and empties a list. --flag VALUE and --flag=VALUE are alike, and so
are - and _ in names. Switches take true and false, yes and no, on and off, or no value for true."""


@dataclass(frozen=True)
class Entry:
    """One flag."""

    name: str
    """Dotted, with `_`."""
    hint: Any
    text: str
    default: str
    """What stands after "default: "; empty where the flag must be given."""
    word: str = ""
    """What stands for a value that is no flag, such as CHECKPOINT."""

    def lines(self, width: int) -> list[str]:
        """The flag as lines of at most `width` columns."""
        hint = f"(default: {self.default})" if self.default else "(must be given)"
        if MUST_BE_GIVEN in self.text:
            hint = ""  # a recipe checks it by itself, in its own words
        head = self.word or f"--{self.name.replace('_', '-')} {metavar(self.hint)}"
        heads = textwrap.wrap(head, width, initial_indent="  ", subsequent_indent=" " * 10, break_on_hyphens=False)
        return heads + _wrapped(f"{self.text} {hint}".strip(), width, " " * 6)


@dataclass(frozen=True)
class Group:
    """Flags under a heading."""

    title: str
    text: str
    entries: tuple[Entry, ...]

    def lines(self, width: int) -> list[str]:
        """The group as lines of at most `width` columns."""
        text = _wrapped(self.text, width, "  ") if self.text else []
        return ["", f"{self.title}:", *text, *(line for entry in self.entries for line in entry.lines(width))]


def render(usage: str, doc: str, groups: Sequence[Group], width: int | None = None) -> str:
    """The whole help. `width` in columns; None: the terminal's, at most 120."""
    width = width or max(min(shutil.get_terminal_size().columns, 120), 40)
    lines = [*_command(f"usage: {usage}", width), "", *_paragraphs(doc, width), "", *_wrapped(VALUES, width, "")]
    return "\n".join([*lines, *(line for group in groups for line in group.lines(width) if group.entries)])


def groups_of_run(run: Any, left_out: Collection[str], unknown: Mapping[str, str]) -> list[Group]:
    """The most used fields of a run, its other plain ones, and those of each part in the order of the settings.

    `left_out` are fields that are shown elsewhere; for `unknown` ones (or groups of them) it says what decides them.
    """
    entries = {entry.name: entry for entry in _entries(run, "", unknown) if entry.name not in left_out}
    often = tuple(entries[name] for name in MOST_USED if name in entries)
    groups = [Group("flags used most", "", often)]
    for prefix, part in _parts_of(run, ""):
        names = [f"{prefix}{f.name}" for f in dataclasses.fields(part)]
        text = "" if part is run else _first_paragraph(type(part))
        rest = tuple(entries[name] for name in names if name in entries and name not in MOST_USED)
        groups.append(Group(f"--{prefix.rstrip('.')}" if prefix else "the run", text, rest))
    return groups


def entries_of(settings: Any, unknown: Mapping[str, str] | None = None) -> tuple[Entry, ...]:
    """An entry for every plain field of an instance of a settings class."""
    return tuple(_entries(settings, "", unknown or {}))


def entries_of_class(cls: type) -> tuple[Entry, ...]:
    """An entry for every field of a class of options, and of the settings among them."""
    hints, texts = typing.get_type_hints(cls, include_extras=True), field_texts(cls)
    found: list[Entry] = []
    for f in dataclasses.fields(cls):
        place = get_args(hints[f.name]) if get_origin(hints[f.name]) is typing.Annotated else ()
        words = [word for extra in place[1:] if (word := getattr(extra, "metavar", None))]
        if dataclasses.is_dataclass(hints[f.name]):
            found += _entries(hints[f.name](), f"{f.name}.", {})
            continue
        default = "" if f.default is dataclasses.MISSING else shown(f.default)
        found.append(Entry(f.name, hints[f.name], texts.get(f.name, ""), default, word="".join(words)))
    return tuple(found)


def _entries(settings: Any, prefix: str, unknown: Mapping[str, str]) -> Iterator[Entry]:
    hints, texts = typing.get_type_hints(type(settings)), field_texts(type(settings))
    for f in dataclasses.fields(settings):
        value, name = getattr(settings, f.name), prefix + f.name
        if dataclasses.is_dataclass(value):
            yield from _entries(value, f"{name}.", unknown)
        elif not holds_settings(hints[f.name]):
            default = unknown_default(name, unknown) or shown(value)
            yield Entry(name, hints[f.name], texts.get(f.name, ""), default)


def unknown_default(name: str, unknown: Mapping[str, str]) -> str:
    """What decides a field that is not known yet; empty for a known one."""
    return next((text for group, text in unknown.items() if within(name, [group])), "")


def _parts_of(settings: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    yield prefix, settings
    for f in dataclasses.fields(settings):
        value = getattr(settings, f.name)
        if dataclasses.is_dataclass(value):
            yield from _parts_of(value, f"{prefix}{f.name}.")


def metavar(hint: Any) -> str:
    """What a value of this type may be: INT, {a,b}, None|STR, [STR ...]."""
    origin, args = get_origin(hint), get_args(hint)
    if origin is typing.Annotated:
        return metavar(args[0])
    if origin in (Union, types.UnionType):
        kinds = sorted(args, key=lambda kind: kind is type(None))
        return "|".join(dict.fromkeys(metavar(kind) for kind in kinds))
    if origin is Literal:
        return "{" + ",".join(map(str, args)) + "}"
    if origin in (tuple, list):
        return f"[{metavar(args[0] if args else str)} ...]"
    if hint is bool:
        return "{true,false}"
    return "None" if hint is type(None) else getattr(hint, "__name__", str(hint)).upper()


def shown(value: Any) -> str:
    """A default as it would be typed; empty for one that does not exist."""
    if value is inspect.Parameter.empty:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return " ".join(map(shown, value)) or "None"
    return shlex.quote(value) if isinstance(value, str) else str(value)


def field_texts(cls: type) -> dict[str, str]:
    """The docstring under each field of a class, inherited ones too, in one line."""
    found: dict[str, str] = {}
    for base in filter(dataclasses.is_dataclass, reversed(cls.__mro__)):
        found |= _texts_in(sys.modules[base.__module__].__file__ or "").get(base.__qualname__.rpartition(".")[2], {})
    return found


@functools.cache
def _texts_in(file: str) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for node in ast.walk(ast.parse(Path(file).read_text(encoding="utf-8"))):
        if isinstance(node, ast.ClassDef):
            found[node.name] = {
                field.target.id: " ".join(text.value.value.split())
                for field, text in zip(node.body, node.body[1:], strict=False)
                if isinstance(field, ast.AnnAssign)
                and isinstance(field.target, ast.Name)
                and isinstance(text, ast.Expr)
                and isinstance(text.value, ast.Constant)
                and isinstance(text.value.value, str)
            }
    return found


def _first_paragraph(cls: type) -> str:
    return " ".join(inspect.cleandoc(cls.__doc__ or "").partition("\n\n")[0].split())


def _paragraphs(doc: str, width: int) -> list[str]:
    """Text filled to the width; indented lines are commands, which are broken where a shell may break them, and the
    lines of a list stay apart.
    """
    lines: list[str] = []
    for paragraph in doc.strip("\n").split("\n\n"):
        if paragraph.startswith(" "):
            lines += [line for command in paragraph.splitlines() for line in _command(command, width)]
        elif paragraph.startswith(("- ", "* ")):
            lines += [line for item in paragraph.splitlines() for line in _wrapped(item, width, "")]
        else:
            lines += _wrapped(paragraph, width, "")
        lines.append("")
    return lines[:-1]


def _command(line: str, width: int) -> list[str]:
    """A command, broken before flags, each line but the last with the backslash that a shell needs."""
    indent = " " * (len(line) - len(line.lstrip()))
    lines = [""]
    for part in line.strip().replace(" --", "\n--").replace(" [--", "\n[--").split("\n"):
        if lines[-1] and len(indent) + len(lines[-1]) + len(part) + 3 > width:
            lines[-1] += " \\"
            lines.append("    " + part)
        else:
            lines[-1] += (" " if lines[-1] else "") + part
    return [indent + line for line in lines]


def _wrapped(text: str, width: int, indent: str) -> list[str]:
    joined = " ".join(text.split())
    return textwrap.wrap(joined, width, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False)
