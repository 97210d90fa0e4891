"""Settings as JSON and back: every dataclass is an object tagged with its class name; round trips are exact.

Reading is strict. A field or a class that does not exist is an error that names the nearest one; a field that is absent
takes its default, so that a run written before a setting existed can still be read.
"""

import dataclasses
import types
import typing
from collections.abc import Mapping
from typing import Any, Literal, Union, get_args, get_origin

from spanloom.settings.function import FunctionError
from spanloom.settings.nearest import did_you_mean
from spanloom.settings.run import Run
from spanloom.settings.weights import NO_FLOAT16

TAG = "class"
"""Key that holds the class name."""


class SettingsError(ValueError):
    """Settings that cannot be read or contradict each other; the message names the setting and the fix."""


def to_json(settings: Any) -> Any:
    """JSON-ready dicts, lists and scalars of a settings dataclass (a `Run`, usually)."""
    if dataclasses.is_dataclass(settings) and not isinstance(settings, type):
        fields = {f.name: to_json(getattr(settings, f.name)) for f in dataclasses.fields(settings)}
        return {TAG: type(settings).__name__, **fields}
    if isinstance(settings, list | tuple):
        return [to_json(item) for item in settings]
    if isinstance(settings, Mapping):
        return {key: to_json(value) for key, value in settings.items()}
    if settings is None or isinstance(settings, bool | int | float | str):
        return settings
    raise SettingsError(f"settings hold plain data only, not {type(settings).__name__}: {settings!r}")


def from_json(value: Any, kind: Any = Run) -> Any:
    """The settings of type `kind` that `to_json` made `value` of.

    Raises SettingsError, naming the dotted field, on an unknown class or field, a missing field or a wrong type.
    """
    return _read(kind, value, "")


def _read(hint: Any, value: Any, where: str) -> Any:
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return _read_union(args, value, where)
    if origin is Literal:
        if value not in args or type(value) not in {type(a) for a in args}:
            reason = f" ({NO_FLOAT16})" if value == "float16" else ""
            raise _wrong(where, f"must be one of {', '.join(map(str, args))}{reason}", value)
        return value
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise _wrong(where, "must be a list", value)
        kinds = [args[0]] * len(value) if len(args) == 2 and args[1] is Ellipsis else list(args)
        if len(kinds) != len(value):
            raise _wrong(where, f"must have {len(kinds)} items", value)
        return tuple(_read(k, v, f"{where}[{i}]") for i, (k, v) in enumerate(zip(kinds, value, strict=True)))
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return _read_dataclass((hint,), value, where)
    if origin is Mapping:
        if not isinstance(value, Mapping):
            raise _wrong(where, "must be an object", value)
        return {key: _read(args[1], one, f"{where}.{key}") for key, one in value.items()}
    return _read_scalar(hint, value, where)


def _read_union(kinds: tuple[Any, ...], value: Any, where: str) -> Any:
    classes = tuple(k for k in kinds if isinstance(k, type) and dataclasses.is_dataclass(k))
    if classes and isinstance(value, dict):
        return _read_dataclass(classes, value, where)
    errors = []
    for kind in kinds:
        try:
            return _read(kind, value, where)
        except SettingsError as error:
            errors.append(str(error))
    raise SettingsError(errors[0])


def _read_dataclass(classes: tuple[Any, ...], value: Any, where: str) -> Any:
    if not isinstance(value, dict):
        raise _wrong(where, f"must be an object with a {TAG!r} key", value)
    by_name = {c.__name__: c for c in classes}
    name = value.get(TAG)
    if not isinstance(name, str) or name not in by_name:
        if name is None:
            raise SettingsError(
                f"{where or 'settings'}: the {TAG!r} key is missing; it says which of {list(by_name)} this is"
            )
        raise SettingsError(f"{where or 'settings'}: unknown class {name!r}{did_you_mean(str(name), by_name)}")
    cls = by_name[name]
    hints = typing.get_type_hints(cls)
    prefix = f"{where}." if where else ""
    known = [f.name for f in dataclasses.fields(cls)]
    for key in value:
        if key != TAG and key not in known:
            raise SettingsError(f"{prefix}{key}: {name} has no such field{did_you_mean(key, known)}")
    for f in dataclasses.fields(cls):
        if f.name not in value and f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING:
            raise SettingsError(f"{prefix}{f.name}: missing, and {name} has no default for it")
    values = {k: _read(hints[k], v, prefix + k) for k, v in value.items() if k != TAG}
    try:
        return cls(**values)
    except FunctionError as error:
        raise SettingsError(f"{where or 'settings'}: {error}") from None


def _read_scalar(kind: Any, value: Any, where: str) -> Any:
    if kind is Any:
        return value
    if kind in (None, type(None)):
        fits = value is None
    elif kind is float:
        fits = isinstance(value, int | float) and not isinstance(value, bool)
    elif kind is int:
        fits = isinstance(value, int) and not isinstance(value, bool)
    else:
        fits = isinstance(value, kind)
    if not fits:
        raise _wrong(where, f"must be {'null' if kind is type(None) else kind.__name__}", value)
    return value


def _wrong(where: str, must: str, value: Any) -> SettingsError:
    return SettingsError(f"{where or 'settings'}: {must}, not {value!r}")
