"""Stand-ins for libraries that a SeqIO module imports: whatever is asked of them is a name, and whatever is called is
kept with its arguments.
"""

import functools
import sys
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any


class UntraceableError(TypeError):
    """Code that asks a stand-in for a value."""


class Named:
    """A thing of a library that is not there, by its dotted name."""

    def __init__(self, name: str, known: Mapping[str, Any]):
        """`known`: what stands for some names, instead of a Named."""
        self.__dict__["_name"] = name
        self.__dict__["_known"] = known

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        return _member(f"{self._name}.{attribute}", self._known)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The call, kept."""
        return Called(self._name, args, kwargs, self._known)

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[type, ...]:
        return (_Base,)

    def __getitem__(self, key: Any) -> "Named":
        return self  # of a type, as in a signature

    def __or__(self, other: Any) -> "Named":
        return self

    __ror__ = __or__

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Named) and type(other) is type(self) and other._name == self._name

    def __hash__(self) -> int:
        return hash(self._name)

    def __repr__(self) -> str:
        return str(self._name)


class Called(Named):
    """What a call of such a thing returned."""

    def __init__(self, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], known: Mapping[str, Any]):
        """The call's name and arguments; `known` as of Named."""
        super().__init__(name, known)
        self.__dict__["_args"] = args
        self.__dict__["_kwargs"] = dict(kwargs)

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)

    def __add__(self, other: Any) -> Any:
        from spanloom.migration.tracing import joined

        return joined(self, other)

    def __radd__(self, other: Any) -> Any:
        from spanloom.migration.tracing import joined

        return joined(other, self)

    def __bool__(self) -> bool:
        raise UntraceableError(f"{self._name}(...) is asked whether it is true")

    def __repr__(self) -> str:
        return f"{self._name}(...)"


class _Base:
    """What a class of a library that is not there is derived from."""

    def __init__(self, *args: Any, **kwargs: Any):
        self.__dict__.update(kwargs)


class StandInModule(types.ModuleType):
    """A module that is not there."""

    def __init__(self, name: str, known: Mapping[str, Any]):
        """`known` as of Named."""
        super().__init__(name)
        self.__dict__["_known"] = known
        self.__path__: list[str] = []

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        return _member(f"{self.__name__}.{attribute}", self._known)


def _member(name: str, known: Mapping[str, Any]) -> Any:
    return known[name] if name in known else Named(name, known)


def name_of(thing: Any) -> str | None:
    """The dotted name of a stand-in that was not called; None for anything else."""
    if isinstance(thing, StandInModule):
        return thing.__name__
    return thing._name if isinstance(thing, Named) and not isinstance(thing, Called) else None


def unwrapped(code: Any) -> tuple[Any, dict[str, Any]]:
    """What a functools.partial is of, and the arguments that it fills in by name (by position: 0, 1, ...)."""
    given: dict[str, Any] = {}
    while isinstance(code, functools.partial):
        given = {**{str(number): one for number, one in enumerate(code.args)}, **code.keywords, **given}
        code = code.func
    return code, given


def place_of(code: Any) -> str:
    """File and line where a function of the user's is defined; empty for what is no function."""
    code, _ = unwrapped(code)
    code = getattr(code, "function", code)
    inner = getattr(code, "__code__", None)
    return f"{inner.co_filename}:{inner.co_firstlineno}" if inner is not None else ""


def caller(files: Callable[[str], bool]) -> str:
    """File and line of the nearest caller whose file is one of `files`; empty where there is none."""
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None:
        if files(frame.f_code.co_filename):
            return f"{frame.f_code.co_filename}:{frame.f_lineno}"
        frame = frame.f_back
    return ""
