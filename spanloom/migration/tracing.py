"""What a small tf.data function of the user's does to an example, found by running it on an example of names.

A function that only renames fields, and joins, strips, lowers or replaces texts, comes back as an expression for each
field of what it returns; one that asks for a value (a condition, a loop, a length) cannot be followed.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from spanloom.migration.recipe_code import quoted
from spanloom.migration.stand_ins import Called, UntraceableError

_OF_ONE = {
    "strings.lower": "encode().lower().decode",
    "strings.upper": "encode().upper().decode",
    "strings.strip": "encode().strip().decode",
}
"""Functions of one text that know no letters and spaces but ASCII's, as the methods of bytes do."""
ALL = "*"
"""The key that stands for every field which the example had."""


@dataclass(frozen=True, eq=False)
class Value:
    """A value of the example, known by how it is computed."""

    def __add__(self, other: Any) -> "Value":
        return joined(self, other)

    def __radd__(self, other: Any) -> "Value":
        return joined(other, self)

    def __eq__(self, other: object) -> Any:
        raise UntraceableError("two values are compared")

    def __ne__(self, other: object) -> Any:
        raise UntraceableError("two values are compared")

    def __hash__(self) -> int:
        return id(self)

    def __bool__(self) -> bool:
        raise UntraceableError("it is asked whether a value is true")

    def __iter__(self) -> Iterator[Any]:
        raise UntraceableError("a value is looped over")

    def __len__(self) -> int:
        raise UntraceableError("a value is asked for its length")

    def __str__(self) -> str:
        raise UntraceableError("a value is written into a text (f-string, format): use +")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise UntraceableError(f"a value is asked for .{name}")


@dataclass(frozen=True, eq=False)
class Field(Value):
    """A field of the example, or one inside of another: ("translation", "de")."""

    path: tuple[str, ...]

    def __getitem__(self, key: Any) -> "Field":
        if not isinstance(key, str):
            raise UntraceableError(f"a value is indexed by {type(key).__name__}")
        return Field((*self.path, key))


@dataclass(frozen=True, eq=False)
class Joined(Value):
    """Texts one after the other."""

    parts: tuple[Any, ...]


def joined(one: Any, other: Any) -> Joined:
    """Two texts, one after the other."""
    parts = [part for value in (one, other) for part in (value.parts if isinstance(value, Joined) else (value,))]
    return Joined(tuple(parts))


class Row:
    """An example, known by the names of its fields."""

    def __getitem__(self, key: Any) -> Any:
        if not isinstance(key, str):
            raise UntraceableError(f"an example is indexed by {type(key).__name__}")
        return ALL if key == ALL else Field((key,))

    def keys(self) -> list[str]:
        """For `{**example}`."""
        return [ALL]

    def get(self, key: str, default: Any = None) -> Field:
        """A field."""
        return Field((key,))

    def __contains__(self, key: object) -> bool:
        raise UntraceableError("it is asked whether an example has a field")

    def __iter__(self) -> Iterator[Any]:
        raise UntraceableError("an example is looped over")


class Stream:
    """A tf.data.Dataset of which only what is done to each example is kept."""

    def __init__(self, element: Any):
        self.element = element

    def map(self, function: Any, *args: Any, **kwargs: Any) -> "Stream":
        """The same of what the function makes of each example."""
        return Stream(function(self.element))

    def prefetch(self, *args: Any, **kwargs: Any) -> "Stream":
        """The same."""
        return self

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise UntraceableError(f"the data set is asked for .{name}")


def renamed(fields: Mapping[str, Any]) -> dict[str, str] | None:
    """New name -> old name of fields that are only renamed, empty texts as ""; None where anything else is done."""
    found: dict[str, str] = {}
    for name, value in fields.items():
        if value is None or (isinstance(value, str) and value == "" and name != ALL):
            found[name] = ""
        elif isinstance(value, Field):
            found[name] = "/".join(value.path)
        else:
            return None
    return found


def function_text(name: str, fields: Mapping[str, Any], where: str) -> tuple[str, set[str]]:
    """A plain function of an example that gives these fields, and its imports. Raises UntraceableError."""
    imports: set[str] = set()
    parts = [
        "**example" if key == ALL else f"{quoted(key)}: {expression(value, imports)}" for key, value in fields.items()
    ]
    line = f"    return {{{', '.join(parts)}}}"
    if len(line) > 120:
        line = "\n".join(["    return {", *(f"        {part}," for part in parts), "    }"])
    return f'def {name}(example):\n    """As {where} has it."""\n{line}\n', imports


def expression(value: Any, imports: set[str]) -> str:
    """The Python of a value. Raises UntraceableError for what plain Python does not have."""
    if value is None:
        return '""'
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, bool | int | float):
        return repr(value)
    if isinstance(value, Field):
        return "example" + "".join(f"[{quoted(one)}]" for one in value.path)
    if isinstance(value, Joined):
        return " + ".join(expression(one, imports) for one in value.parts)
    if isinstance(value, list | tuple):
        return f"[{', '.join(expression(one, imports) for one in value)}]"
    if isinstance(value, Called):
        return _called(value, imports)
    raise UntraceableError(f"a {type(value).__name__} is no text and no number")


def _called(call: Called, imports: set[str]) -> str:
    """A function of TensorFlow in plain Python."""
    name, args, more = call._name, call._args, call._kwargs
    short = name.removeprefix("tensorflow.").removeprefix("compat.v1.").removeprefix("compat.v2.")

    def argument(place: int, key: str, default: Any = None) -> Any:
        return args[place] if len(args) > place else more.get(key, default)

    if short in ("constant", "convert_to_tensor", "identity"):
        return expression(argument(0, "value"), imports)
    if short in ("strings.join", "string_join"):
        inputs, separator = argument(0, "inputs"), argument(1, "separator", "")
        if isinstance(inputs, list | tuple) and not separator:
            return " + ".join(expression(one, imports) for one in inputs)
        return f"{quoted(separator)}.join({expression(inputs, imports)})"
    if short in ("strings.as_string", "as_string") and len(args) == 1 and not more:
        return f"str({expression(args[0], imports)})"
    if short in _OF_ONE and len(args) == 1 and more in ({}, {"encoding": "utf-8"}):
        text = expression(args[0], imports)
        method = short.rpartition(".")[2] if more else _OF_ONE[short]
        return f"({text}).{method}()" if " + " in text else f"{text}.{method}()"
    if short in ("strings.regex_replace", "regex_replace") and argument(3, "replace_global", True) is True:
        text, pattern, rewrite = argument(0, "input"), argument(1, "pattern"), argument(2, "rewrite")
        if isinstance(pattern, str) and isinstance(rewrite, str):
            imports.add("import re")
            return _substituted(pattern, rewrite, expression(text, imports))
    raise UntraceableError(f"{name} has no counterpart that is known here")


def _substituted(pattern: str, rewrite: str, text: str) -> str:
    """RE2's replacing by Python's: classes such as \\w are of ASCII there, and \\0 to \\9 are groups, of one digit.

    Raises UntraceableError for patterns that only RE2 has, or that mean something else to Python.
    """
    if "[[:" in pattern:
        raise UntraceableError(f"{pattern!r} has a class by name, which Python's patterns do not have")
    try:
        re.compile(pattern)
    except re.error as error:
        raise UntraceableError(f"{pattern!r} is no pattern of Python's: {error}") from None
    groups = re.sub(r"\\(\\|\d)", lambda found: found[0] if found[1] == "\\" else rf"\g<{found[1]}>", rewrite)
    flags = ", flags=re.ASCII" if re.search(r"\\[wWdDsSbB]", pattern) else ""
    return f"re.sub({quoted(pattern)}, {quoted(groups)}, {text}{flags})"
