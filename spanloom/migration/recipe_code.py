"""Settings as the Python that makes them: a recipe's text, formatted as ruff formats it, with the imports it needs."""

import dataclasses
import functools
import keyword
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from spanloom.model.sizes import SIZES
from spanloom.settings.function import Function
from spanloom.settings.measures import METRICS, POSTPROCESSORS
from spanloom.settings.model import HOW_COMPUTED, Model

WIDTH = 120
RECIPE = "recipe"
"""The place of functions that stand in the recipe itself: `recipe:name`."""
_ALWAYS = {
    "Run": {"optimizer", "schedule", "batch_size", "steps"},
    "SpanCorruption": {"inputs_length", "noise_density", "mean_span_length"},
    "Adafactor": {"learning_rate"},
    "Rsqrt": {"warmup_steps"},
}
"""Fields that are written although they have their defaults: what a reader looks for first."""
_TEXT_PREPROCESSORS = "spanloom.tasks.text_preprocessors"
_SHORT = {name: short for known in (METRICS, POSTPROCESSORS) for short, name in known.items() if short != "rouge_mean"}


class Expression(str):
    """A text that the recipe computes: its value with the parameters' defaults, and the code."""

    code: str

    def __new__(cls, value: str, code: str) -> "Expression":
        """The text `value`, written as `code`."""
        made = super().__new__(cls, value)
        made.code = code
        return made


class Expressions(tuple[str, ...]):
    """Texts that the recipe computes, likewise."""

    code: str

    def __new__(cls, values: Iterable[str], code: str) -> "Expressions":
        """The texts `values`, written as `code`."""
        made = super().__new__(cls, values)
        made.code = code
        return made


@dataclass
class Writer:
    """Turns settings into code, and keeps what that code imports."""

    variables: list[tuple[Any, str]] = field(default_factory=list)
    """Settings that are written once and called by a name from then on."""
    imports: dict[str, set[str]] = field(default_factory=dict)
    """Names that are imported, by module."""

    def name(self, module: str, name: str) -> str:
        """The name, which the recipe imports."""
        self.imports.setdefault(module, set()).add(name)
        return name

    def import_lines(self, more: Iterable[str] = ()) -> list[str]:
        """Import statements in order: those of others, a blank line, ours."""
        found = {True: list[str](), False: sorted(more)}
        for module in sorted(self.imports):
            names = sorted(self.imports[module], key=lambda one: (not one.isupper(), not one[0].isupper(), one))
            line = f"from {module} import {', '.join(names)}"
            if len(line) > WIDTH:
                line = "\n".join([f"from {module} import (", *(f"    {name}," for name in names), ")"])
            found[module.startswith("spanloom")].append(line)
        return [*found[False], *([""] if found[False] and found[True] else []), *found[True]]

    def assigned(self, name: str, value: Any, indent: int = 4) -> str:
        """`name = value` as lines; the value is called by that name from then on."""
        text = f"{' ' * indent}{name} = {self.code(value, indent, len(name) + 3)}"
        self.variables.append((value, name))
        return text

    def code(self, value: Any, indent: int = 0, taken: int = 0) -> str:
        """The value as code that begins after `taken` columns of a line at this indentation."""
        for known, name in self.variables:
            if type(known) is type(value) and known == value:
                return name
        if isinstance(value, Expression | Expressions):
            return value.code
        if isinstance(value, Function):
            return self._function(value, indent, taken)
        if isinstance(value, Model) and (named := self._named(value, indent, taken)):
            return named
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return self._settings(value, indent, taken)
        if isinstance(value, str):
            return quoted(value)
        if isinstance(value, Mapping):
            parts = [(f"{self.code(key)}: ", one) for key, one in value.items()]
            return self._joined("{", parts, "}", indent, taken)
        if isinstance(value, list | tuple):
            if len(value) == 1 and isinstance(value, tuple):
                one = self.code(value[0], indent, taken + 2)
                if "\n" not in one and indent + taken + len(one) + 4 <= WIDTH:
                    return f"({one},)"
            begin, end = "()" if isinstance(value, tuple) else "[]"
            return self._joined(begin, [("", one) for one in value], end, indent, taken)
        if isinstance(value, int) and not isinstance(value, bool):
            return f"{value:_}" if abs(value) >= 10_000 else str(value)
        if isinstance(value, float) and not math.isfinite(value):
            return f'float("{value}")'
        return repr(value)

    def call(self, name: str, parts: list[tuple[str, Any]], indent: int, taken: int) -> str:
        """`name(parts)`: each part is what stands before a value, such as `lengths=`, and the value."""
        return self._joined(f"{name}(", parts, ")", indent, taken)

    def _joined(self, begin: str, parts: list[tuple[str, Any]], end: str, indent: int, taken: int) -> str:
        """In one line where that fits, else a line for each part, with a comma after the last."""
        inside = ", ".join(before + self.code(value, 0, -10_000) for before, value in parts)
        line = f"{begin}{inside}{end}"
        if "\n" not in line and indent + taken + len(line) + 1 <= WIDTH:  # a comma may follow
            return line
        deeper = " " * (indent + 4)
        lines = [f"{deeper}{before}{self.code(value, indent + 4, len(before))}," for before, value in parts]
        return "\n".join([begin, *lines, " " * indent + end])

    def _settings(self, value: Any, indent: int, taken: int) -> str:
        """A settings class with the fields that differ from their defaults."""
        cls = type(value)
        parts = []
        for f in dataclasses.fields(cls):
            default = f.default_factory() if f.default_factory is not dataclasses.MISSING else f.default
            found = getattr(value, f.name)
            computed = isinstance(found, Expression | Expressions)
            if found == default and not computed and f.name not in _ALWAYS.get(cls.__name__, ()):
                continue
            if f.name in ("metrics", "postprocess"):
                found = _short(found)
            parts.append((f"{f.name}=", found))
        return self.call(self.name(cls.__module__, cls.__name__), parts, indent, taken)

    def _named(self, model: Model, indent: int, taken: int) -> str | None:
        """A published size by its name, with what differs; None for any other model."""
        size = SIZES.get(model.name)
        if size is None:
            return None
        parts: list[tuple[str, Any]] = [("", model.name)]
        for f in dataclasses.fields(Model):
            if getattr(model, f.name) != getattr(size, f.name):
                if f.name not in (*HOW_COMPUTED, "vocab_size"):
                    return None
                parts.append((f"{f.name}=", getattr(model, f.name)))
        return self.call(self.name("spanloom.model.sizes", "named"), parts, indent, taken)

    def _function(self, function: Function, indent: int, taken: int) -> str:
        """A function or an object of a class, with its further arguments."""
        if function.place == RECIPE:
            name = function.qualname
        elif function.place.startswith(f"{_TEXT_PREPROCESSORS}."):
            name = self.name(_TEXT_PREPROCESSORS, function.qualname)
        elif not function.is_of_file and function.qualname.isidentifier():
            name = self.name(function.place, function.qualname)
        else:
            return self._settings(function, indent, taken)
        parts = [(f"{key}=", value) for key, value in function.arguments.items()]
        if function.qualname[:1].isupper():
            return self.call(name, parts, indent, taken)
        if not parts:
            return name
        return self.call(self.name("functools", "partial"), [("", Code(name)), *parts], indent, taken)


def Code(text: str) -> Expression:
    """Code as it is."""
    return Expression(text, text)


def _short(found: Any) -> Any:
    """Metrics and postprocessors that come with us, by their short names."""
    if isinstance(found, Function):
        return _SHORT.get(found.name, found) if not found.arguments else found
    return tuple(map(_short, found)) if isinstance(found, tuple) else found


def quoted(text: str) -> str:
    """A text in double quotes, unless it holds more of these than of single ones."""
    plain = repr(text)
    if plain.startswith("'") and '"' not in text:
        return f'"{plain[1:-1]}"'
    return plain


@functools.cache
def identifier(text: str) -> str:
    """A name for a variable made of any text."""
    name = re.sub(r"\W+", "_", text).strip("_").lower() or "it"
    if name[0].isdigit() or keyword.iskeyword(name):
        name = f"_{name}"
    return name
