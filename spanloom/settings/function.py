"""How settings hold code: by name and arguments, so that a run can be written down, sent to processes and repeated.

`package.module:name` is imported; `/folder/file.py:name` is a function of a recipe's own file. Whoever writes a recipe
gives the callable itself, of which `as_function` takes the name; `spanloom.tasks.functions` makes it a callable again.
"""

import dataclasses
import functools
import inspect
import os
import sys
import sysconfig
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from spanloom.settings.nearest import did_you_mean

_KEYS = {"class", "name", "arguments"}
_NO_NAMES: Mapping[str, str] = {}
_PLAIN = "None, booleans, numbers, texts, functions, and lists, tuples and dicts of these"


class FunctionError(ValueError):
    """Code that settings cannot hold; the message says why, and what to do instead."""


@dataclass(frozen=True)
class Function:
    """A function of one example, or an object that is called like one, by its name."""

    name: str
    """`package.module:qualified.name`, or `/folder/file.py:qualified.name`."""
    arguments: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """Further arguments by name, of a class those of its instance; plain data, in which lists are tuples."""

    def __post_init__(self) -> None:
        """Raises FunctionError for a name without a colon, and for arguments that are no plain data."""
        place, _, name = self.name.rpartition(":")
        if not place or not name:
            raise FunctionError(f"function {self.name!r}: a name is 'package.module:name' or '/folder/file.py:name'")
        arguments = {key: as_plain(value, f"argument {key!r} of {self.name}") for key, value in self.arguments.items()}
        object.__setattr__(self, "arguments", arguments)

    @property
    def place(self) -> str:
        """The module, or the file's path."""
        return self.name.rpartition(":")[0]

    @property
    def qualname(self) -> str:
        """The name inside of it."""
        return self.name.rpartition(":")[2]

    @property
    def is_of_file(self) -> bool:
        """Whether it is read from a file, not imported."""
        return self.place.endswith(".py")

    def __str__(self) -> str:
        """As it is called in messages: 'Translate(source_language='en', ...)' without its module."""
        inside = ", ".join(f"{key}={_shown(value)}" for key, value in self.arguments.items())
        return f"{self.qualname}({inside})" if inside else self.qualname


def as_function(code: Any, names: Mapping[str, str] = _NO_NAMES) -> Function:
    """The name of a callable: a function at the top of a module, one with keywords filled in by `functools.partial`, or
    an instance of a frozen dataclass with `__call__`, whose fields are its arguments; or one of `names`, short names of
    functions that come with us.

    Raises FunctionError for what no other process could find by its name, and says what to write instead.
    """
    if isinstance(code, Function):
        return code
    if isinstance(code, str) and names:
        if code not in names:
            known = did_you_mean(code, names) or f"; known are {', '.join(names)}"
            raise FunctionError(f"there is none called {code!r}{known}")
        return Function(names[code])
    if isinstance(code, functools.partial):
        if code.args:
            raise FunctionError(f"{_called(code.func)}: fill in partial's arguments by name, not by position")
        inner = as_function(code.func)
        return Function(inner.name, {**inner.arguments, **code.keywords})
    if isinstance(code, type) or not callable(code):
        raise FunctionError(_no_function(code))
    if inspect.isfunction(code) or inspect.isbuiltin(code):
        _check_function(code)
        return Function(f"{_place(code)}:{code.__qualname__}")
    cls = type(code)
    if dataclasses.is_dataclass(cls):
        _check_class(cls)
        values = {f.name: getattr(code, f.name) for f in dataclasses.fields(code) if f.init}
        return Function(f"{_place(cls)}:{cls.__qualname__}", values)
    what = "a bound method" if inspect.ismethod(code) else f"an object of class {cls.__name__}"
    raise FunctionError(
        f"{_called(code)} is {what}, which a run cannot write down: use a function at the top of a module, with "
        "functools.partial for its further arguments, or a frozen dataclass with __call__"
    )


def as_functions(codes: Any, where: str, names: Mapping[str, str] = _NO_NAMES) -> tuple[Function, ...]:
    """The names of several callables, see `as_function`. Raises FunctionError that begins with `where`."""
    if callable(codes) or not isinstance(codes, list | tuple):
        raise FunctionError(f"{where}: must be a list of functions, even if it is one: ({_called(codes)},)")
    try:
        return tuple(as_function(code, names) for code in codes)
    except FunctionError as error:
        raise FunctionError(f"{where}: {error}") from None


def as_plain(value: Any, where: str) -> Any:
    """The value as JSON gives it back, lists as tuples and code as `Function`.

    Raises FunctionError that begins with `where` for what a run cannot write down.
    """
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Function):
        return value
    if isinstance(value, list | tuple):
        return tuple(as_plain(one, where) for one in value)
    if isinstance(value, Mapping):
        if set(value) == _KEYS and value["class"] == Function.__name__:
            return Function(value["name"], value["arguments"])
        if not all(isinstance(key, str) for key in value):
            raise FunctionError(f"{where} is a dict with keys that are no texts: turn it into a list of pairs")
        return {key: as_plain(one, where) for key, one in value.items()}
    if callable(value):
        try:
            return as_function(value)
        except FunctionError as error:
            raise FunctionError(f"{where}: {error}") from None
    raise FunctionError(f"{where} is of type {type(value).__name__}, which a run cannot write down: give {_PLAIN}")


def _no_function(code: Any) -> str:
    if isinstance(code, type):
        return f"{code.__name__} is a class: give an instance of it, {code.__name__}(...)"
    return f"{code!r} is no function: give the function itself, not what it returns"


def _check_function(code: Callable[..., Any]) -> None:
    fix = "define it with `def` at the top of the file, and give its further arguments by functools.partial"
    if "<lambda>" in code.__qualname__:
        raise FunctionError(f"a lambda has no name by which other processes could find it: {fix}")
    if "<locals>" in code.__qualname__:
        raise FunctionError(f"{code.__qualname__} is defined inside of another function: {fix}")


def _check_class(cls: type) -> None:
    if not cls.__dataclass_params__.frozen:  # type: ignore[attr-defined]
        raise FunctionError(f"{cls.__name__} may change while it is used: make it @dataclass(frozen=True)")
    if "<locals>" in cls.__qualname__:
        raise FunctionError(f"{cls.__qualname__} is defined inside of a function: define it at the top of the file")


def _called(code: Any) -> str:
    return getattr(code, "__qualname__", None) or repr(code)


def _place(code: Any) -> str:
    """The module's name where any process could import it, else the path of its file."""
    name = code.__module__
    module = sys.modules.get(name)
    path = getattr(module, "__file__", None)
    if name == "__main__":
        raise FunctionError(
            f"{code.__qualname__} is defined in the script that runs, which other processes do not see: move it to a "
            "module beside it, or to a recipe file"
        )
    if path is None or _is_installed(path) or ("." in name and _is_importable(name, path)):
        return str(name)
    return os.path.abspath(path)


def _is_installed(path: str) -> bool:
    """Whether a file came with Python or a package: those of the user's own folders are named by their paths."""
    roots = {sysconfig.get_path(kind) for kind in ("stdlib", "platstdlib", "purelib", "platlib")}
    return any(os.path.realpath(path).startswith(os.path.realpath(root) + os.sep) for root in roots)


def _is_importable(name: str, path: str) -> bool:
    """Whether an import of this name finds this very file."""
    parts, search, spec = name.split("."), None, None
    for depth in range(len(parts)):
        full = ".".join(parts[: depth + 1])
        found = (finder.find_spec(full, search) for finder in sys.meta_path if hasattr(finder, "find_spec"))
        spec = next((one for one in found if one is not None), None)
        if spec is None:
            return False
        search = spec.submodule_search_locations
    origin = None if spec is None else spec.origin
    return origin is not None and os.path.realpath(origin) == os.path.realpath(path)


def _shown(value: Any) -> str:
    text = str(value) if isinstance(value, Function) else repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
