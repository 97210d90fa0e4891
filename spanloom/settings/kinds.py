"""Parts of a run that come in kinds (optimizer, schedule, source, vocabulary, objective), and how kinds are named."""

import dataclasses
import re
import types
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Union, get_args, get_origin

from spanloom.settings.function import Function
from spanloom.settings.run import Run


@dataclass(frozen=True)
class Part:
    """One field of a run that is itself made of fields."""

    path: str
    """Dotted name."""
    kinds: dict[str, type]
    """The classes it may have, by kind name; one for parts that come in one kind."""


def kind_name(cls: type) -> str:
    """The name of a kind in flags: adafactor, adamw, adamw-rms, rsqrt, wsd, text-files, prefix-lm, ul2, ..."""
    words = re.findall(r"[A-Z]{2,}$|[A-Z]+[a-z0-9]*", cls.__name__.replace("AdamW", "Adamw"))
    return "-".join(words).lower()


def parts(cls: type = Run, prefix: str = "") -> Iterator[Part]:
    """Every part of a settings class, in order, those of all kinds of a part included, but no code."""
    hints = typing.get_type_hints(cls)
    for f in dataclasses.fields(cls):
        hint = hints[f.name]
        if holds_settings(hint):
            continue
        kinds = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
        classes = [c for c in kinds if isinstance(c, type) and dataclasses.is_dataclass(c)]
        if classes:
            yield Part(prefix + f.name, {kind_name(c): c for c in classes})
            for inner in classes:
                yield from parts(inner, f"{prefix}{f.name}.")


def holds_settings(hint: Any) -> bool:
    """Whether a field of this type is code, an object, or a list of settings, such as the parts of a mixture: no flag
    can say those.
    """
    if hint is Function or get_origin(hint) is Mapping:
        return True
    inside = [kind for kind in get_args(hint) if kind is not Ellipsis]
    if get_origin(hint) is tuple:
        return any(dataclasses.is_dataclass(kind) or holds_settings(kind) for kind in inside)
    return get_origin(hint) in (Union, types.UnionType) and any(holds_settings(kind) for kind in inside)


def all_fields() -> dict[str, tuple[str, ...]]:
    """Dotted name of every field of a run that a flag can say, with the kinds (`optimizer adamw`) that have it.

    A field that every kind of its part has, or whose part comes in one kind, is listed without kinds.
    """
    found: dict[str, tuple[str, ...]] = {f.name: () for f in _said(Run)}
    for part in parts():
        owners: dict[str, list[str]] = {}
        for kind, cls in part.kinds.items():
            for f in _said(cls):
                owners.setdefault(f"{part.path}.{f.name}", []).append(f"{part.path} {kind}")
        for name, kinds in owners.items():
            found[name] = () if len(kinds) == len(part.kinds) else tuple(kinds)
    return found


def _said(cls: type) -> list[dataclasses.Field[Any]]:
    hints = typing.get_type_hints(cls)
    return [f for f in dataclasses.fields(cls) if not holds_settings(hints[f.name])]


def get(settings: Any, path: str) -> Any:
    """The value at a dotted name."""
    for name in path.split("."):
        settings = getattr(settings, name)
    return settings


def put(settings: Any, path: str, value: Any) -> Any:
    """A copy of the settings with another value at a dotted name."""
    name, _, rest = path.partition(".")
    return dataclasses.replace(settings, **{name: put(getattr(settings, name), rest, value) if rest else value})
