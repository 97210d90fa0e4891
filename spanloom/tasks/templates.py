"""Which text a row gives: a field's name ('text', 'meta.title') or a template ('{title}\\n{text}')."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from spanloom.settings.nearest import nearest
from spanloom.tasks.shown import shown

_TOKEN = re.compile(r"\{\{|\}\}|\{([^{}]+)\}|[{}]")
_NAME = 40  # characters of a name that is proposed
_ESCAPES = {"\\n": "\n", "\\t": "\t", "\\\\": "\\"}


class FieldError(ValueError):
    """A row that does not give the text asked for; `reason` is short, for counting, `fix` says what to do."""

    def __init__(self, what: str, fix: str, reason: str) -> None:
        super().__init__(what)
        self.fix = fix
        self.reason = reason


@dataclass(frozen=True)
class Template:
    """Text with fields in it, or one field alone."""

    parts: tuple[str, ...]
    """Literal text at even places, field names at odd ones."""
    is_field: bool
    """One field alone, whose value must be text; a template also takes numbers and booleans."""

    @property
    def fields(self) -> tuple[str, ...]:
        """Names of the fields, in order of appearance."""
        return self.parts[1::2]

    def render(self, row: Mapping[str, Any]) -> str:
        """The row's text. Raises FieldError for a missing field, and for one whose value is no text."""
        if self.is_field:
            return _text(value_of(row, self.parts[1]), self.parts[1])
        values = (_written(value_of(row, name), name) if place % 2 else name for place, name in enumerate(self.parts))
        return "".join(values)


def parse(text: str) -> Template:
    """A template: '{name}' stands for a field, '{{' and '}}' for braces; '\\\\n' and '\\\\t', as typed in a shell, for
    a newline and a tab. Text without braces is a field's name. Raises ValueError for a lone brace.
    """
    if "{" not in text and "}" not in text:
        return Template(("", text), is_field=True)
    parts, literal, end = [], "", 0
    for match in _TOKEN.finditer(text):
        literal += text[end : match.start()]
        end = match.end()
        if match[1]:
            parts += [_unescape(literal), match[1]]
            literal = ""
        elif match[0] in ("{{", "}}"):
            literal += match[0][0]
        else:
            raise ValueError(f"template {text!r} has a lone {match[0]!r} at {match.start()}: write {match[0] * 2!r}")
    parts.append(_unescape(literal + text[end:]))
    if len(parts) == 1:
        raise ValueError(f"template {text!r} names no field: write one in braces, such as '{{text}}'")
    return Template(tuple(parts), is_field=False)


def value_of(row: Mapping[str, Any], name: str) -> Any:
    """A field's value: by its very name, else a path of names and list positions joined by dots.

    Raises FieldError, naming the fields that exist and the nearest one.
    """
    if name in row:
        return row[name]
    value: Any = row
    for depth, key in enumerate(name.split(".")):
        if isinstance(value, Mapping) and key in value:
            value = value[key]
        elif isinstance(value, Sequence) and not isinstance(value, str) and key.isdecimal() and int(key) < len(value):
            value = value[int(key)]
        else:
            inside = ".".join(name.split(".")[:depth])
            names = [str(key) for key in value] if isinstance(value, Mapping) else []
            raise missing(name, [f"{inside}.{key}" if inside else key for key in names])
    return value


def missing(name: str, names: Iterable[str], what: str = "field") -> FieldError:
    """The error for a field or column that does not exist among `names`."""
    names = list(names)
    near = nearest(name, names, count=1, likeness=0.5)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    there = ", ".join(map(shown, names[:20])) + (", ..." if len(names) > 20 else "") or "none"
    example = (near or [name for name in names if len(name) <= _NAME] or ["NAME"])[0]
    return FieldError(
        f"no {what} {name!r}; the {what}s are {there}{hint}",
        f"Name one that exists (such as {example!r}) or a template such as '{{{example}}}'",
        f"missing {what} {name!r}",
    )


def _text(value: Any, name: str) -> str:
    if isinstance(value, str):
        return value
    kind = _kind(value)
    if value is None:
        fix = "Leave such rows out"
    elif isinstance(value, bool | int | float):
        fix = f"To write it as text use the template '{{{name}}}'"
    elif isinstance(value, Mapping):
        inner = next(iter(value), "NAME")
        fix = f"Name a field inside, such as '{name}.{inner}'"
    elif _is_list(value):
        fix = f"Name one of its {len(value)}, from 0: '{name}.0'" if len(value) else "Leave such rows out"
    else:
        fix = "Write the column as strings (with pyarrow: column.cast('string'))"
    raise FieldError(f"field {name!r} is {kind}, not text", fix, f"field {name!r} is {_kind(value, brief=True)}")


def _written(value: Any, name: str) -> str:
    if isinstance(value, bool | int | float):
        return json.dumps(value)
    return _text(value, name)


def _kind(value: Any, *, brief: bool = False) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool | int | float):
        return "a number" if brief else f"a number or boolean ({shown(value)})"
    if isinstance(value, Mapping):
        return "an object"
    return "a list" if _is_list(value) else f"of type {type(value).__name__}"


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def _unescape(text: str) -> str:
    return re.sub(r"\\[nt\\]", lambda match: _ESCAPES[match[0]], text)
