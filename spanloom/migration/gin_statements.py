"""The statements of a gin file, read by gin-config's own parser: bindings, imports and includes with their places.

Nothing is imported and nothing is configured: references and macros stay what they are, so that a file can be read
where T5X and its modules are not installed.
"""

import io
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

_LONGEST = 1 << 22


class GinError(ValueError):
    """A gin file that cannot be read; the message names file, line and fix."""


@dataclass(frozen=True)
class Place:
    """Where a statement stands."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True)
class Reference:
    """`@scope/name`, or with `()` what it returns."""

    name: str
    call: bool

    @property
    def scope(self) -> str:
        """The scopes before the name, joined by slashes; empty without one."""
        return self.name.rpartition("/")[0]

    @property
    def selector(self) -> str:
        """The name with its modules."""
        return self.name.rpartition("/")[2]

    @property
    def short(self) -> str:
        """The name without its modules."""
        return self.selector.rpartition(".")[2]

    def __repr__(self) -> str:
        return f"@{self.name}{'()' if self.call else ''}"


@dataclass(frozen=True)
class Macro:
    """`%NAME`."""

    name: str

    def __repr__(self) -> str:
        return f"%{self.name}"


@dataclass(frozen=True)
class Binding:
    """`scope/selector.argument = value`; of a macro the selector is its name, and the argument empty."""

    scope: str
    selector: str
    argument: str
    value: Any
    place: Place

    @property
    def key(self) -> str:
        """The left side, as it stands in the file but for what a block joins."""
        name = f"{self.selector}.{self.argument}" if self.argument else self.selector
        return f"{self.scope}/{name}" if self.scope else name

    @property
    def macro(self) -> str | None:
        """The name of the macro that it sets, in either of gin's spellings; None where it sets none."""
        if not self.argument and not self.scope:
            return self.selector
        return self.scope if self.selector in ("macro", "gin.macro") and self.argument == "value" else None


@dataclass(frozen=True)
class Import:
    """`import a.b` or `from a import b`."""

    text: str
    place: Place


@dataclass(frozen=True)
class Include:
    """`include 'file.gin'`."""

    file: str
    place: Place


Statement = Binding | Import | Include


def statements(text: str, file: str) -> Iterator[Statement]:
    """The statements of `text`, which stands in `file`, in order.

    Raises GinError for what is no gin, and where gin-config is not installed.
    """
    try:
        from gin import config_parser
    except ImportError:
        raise GinError(
            "gin files are read by gin-config, which is not installed: pip install 'spanloom[gin]'"
        ) from None
    if len(text) > _LONGEST:
        raise GinError(f"{file} has {len(text):,} characters, which no gin file has")
    try:
        for found in config_parser.ConfigParser(io.StringIO(text), _delegate()):
            if (statement := _ours(found, file)) is not None:
                yield statement
    except SyntaxError as error:
        raise GinError(f"{file}:{_line_of(error)}: {error.msg or error}".replace("\n", " ")) from None
    except tokenize.TokenError as error:
        raise GinError(f"{file}:{error.args[1][0]}: {error.args[0]}: is a bracket or a quote left open?") from None
    except RecursionError:
        raise GinError(f"{file}: brackets within brackets, too deep to be a setting") from None
    except ValueError as error:
        raise GinError(f"{file}: {error}") from None


def _delegate() -> Any:
    from gin import config_parser

    class Delegate(config_parser.ParserDelegate):
        def configurable_reference(self, scoped_configurable_name: str, evaluate: bool) -> Reference:
            return Reference(scoped_configurable_name, evaluate)

        def macro(self, macro_name: str) -> Macro:
            return Macro(macro_name)

    return Delegate()


def _ours(found: Any, file: str) -> Statement | None:
    place = Place(file, found.location.line_num)
    match type(found).__name__:
        case "BindingStatement":
            return Binding(found.scope, found.selector, found.arg_name, found.value, place)
        case "ImportStatement":
            return Import(found.format(), place)
        case "IncludeStatement":
            return Include(found.filename, place)
    return None  # the head of a block, whose bindings follow


def _line_of(error: SyntaxError) -> int:
    """gin's errors hold its own location, Python's (an indentation that fits nothing) a line number."""
    if len(error.args) > 1:
        return int(getattr(error.args[1], "line_num", None) or error.args[1][1] or 1)
    return error.lineno or 1
