"""Gin files with what they include, and what their bindings come to: gin's rules, without what they configure.

Of two bindings of the same argument the later wins, under whatever name: `PjitPartitioner` and
`partitioning.PjitPartitioner` are the same. A binding with a scope holds inside of it alone, and wins there. Macros may
be used before they are set.
"""

import itertools
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from spanloom.migration.gin_statements import Binding, GinError, Import, Include, Macro, Place, statements
from spanloom.migration.t5x_files import t5x_file

REQUIRED = Macro("gin.REQUIRED")
"""What stands for a value that must be given."""
COMMAND_LINE = "command line"
_DEEPEST = 50
_MOST_INCLUDES = 1_000
_MOST_PARTS = 100_000


@dataclass(frozen=True)
class GinConfig:
    """All bindings in order, those of included files where they are included."""

    bindings: tuple[Binding, ...]
    imports: tuple[Import, ...] = ()
    includes: tuple[Include, ...] = ()
    """Every include that was found, in the order of reading."""
    missing: tuple[Include, ...] = ()
    """Includes whose file is nowhere."""
    known: tuple[Include, ...] = ()
    """Includes of T5X's own files that are nowhere, of which Spanloom's knowledge of them stands in."""
    macros: Mapping[str, Binding] = field(default_factory=dict)
    """The last binding of each macro."""

    def find(self, selector: str, argument: str, scope: str = "") -> Binding | None:
        """The binding of an argument that holds in a scope; None where it is not bound."""
        found = [one for one in self.bindings if one.argument == argument and same(one.selector, selector)]
        holding = [one for one in found if _within(scope, one.scope)]
        # the sort is stable: of equal depth the last one stays last
        return max(enumerate(holding), key=lambda pair: (_depth(pair[1].scope), pair[0]), default=(0, None))[1]

    def value(self, value: Any, used: set[str] | None = None) -> Any:
        """The value with macros replaced, also inside of lists, tuples and dicts; what is never set stays a Macro.

        `used` gets the names of the macros on the way. Raises GinError for macros that name one another in a circle,
        or grow without end.
        """
        return self._replaced(value, used if used is not None else set(), (), itertools.count())

    def _replaced(self, value: Any, used: set[str], path: tuple[str, ...], parts: Iterator[int]) -> Any:
        if next(parts) > _MOST_PARTS:
            raise GinError(f"macros within macros make more than {_MOST_PARTS:,} values: {' -> '.join(path)}")
        if isinstance(value, Macro):
            if value.name in path:
                raise GinError(f"macros name one another in a circle: {' -> '.join((*path, value.name))}")
            found = self.macros.get(value.name)
            if found is None:
                return value
            used.add(value.name)
            return self._replaced(found.value, used, (*path, value.name), parts)
        if isinstance(value, list | tuple):
            return type(value)(self._replaced(one, used, path, parts) for one in value)
        if isinstance(value, dict):
            return {
                self._replaced(k, used, path, parts): self._replaced(v, used, path, parts) for k, v in value.items()
            }
        return value

    def as_written(self) -> dict[str, Any]:
        """The last value under each key as it stands in the file, whatever other names the key has."""
        return {one.key: one.value for one in self.bindings}

    def resolved(self) -> dict[str, Any]:
        """The same with macros replaced."""
        return {key: self.value(value) for key, value in self.as_written().items()}


def same(one: str, other: str) -> bool:
    """Whether two selectors name the same thing: one may leave out modules that the other begins with."""
    return one == other or one.endswith(f".{other}") or other.endswith(f".{one}")


def _within(scope: str, bound: str) -> bool:
    """Whether what is bound in one scope holds in another."""
    return not bound or scope == bound or scope.startswith(f"{bound}/")


def _depth(scope: str) -> int:
    return len(scope.split("/")) if scope else 0


def read_gin(
    files: Sequence[str], overrides: Sequence[tuple[str, str]] = (), search: Sequence[str | Path] = ()
) -> GinConfig:
    """Gin files one after the other, then `overrides` (name, value as gin writes it), as T5X takes them.

    An include is looked for as it is named, then in each folder of `search`, beside the file that includes it and in
    the folders above that one; T5X's own files are known where they are in none of these. Raises GinError for files
    that are not there, cannot be read, or include themselves.
    """
    reading = _Reading(tuple(Path(folder).expanduser() for folder in search))
    for file in files:
        path = reading.find(file, None)
        if path is None and t5x_file(file) is None:
            raise GinError(f"{file}: no such file (give the folder that it is in with --gin-search-paths)")
        reading.read(file, path, ())
    for number, (name, value) in enumerate(overrides, 1):
        reading.override(name, value, number)
    macros = {one.macro: one for one in reading.bindings if one.macro}
    config = GinConfig(
        tuple(reading.bindings),
        tuple(reading.imports),
        tuple(reading.includes),
        tuple(reading.missing),
        tuple(reading.known),
        macros,
    )
    config.resolved()  # refuses circles
    return config


class _Reading:
    """What has been read so far."""

    def __init__(self, search: tuple[Path, ...]):
        self.search = search
        self.bindings: list[Binding] = []
        self.imports: list[Import] = []
        self.includes: list[Include] = []
        self.missing: list[Include] = []
        self.known: list[Include] = []

    def find(self, name: str, beside: Path | None) -> Path | None:
        """The file that an include names; None where it is nowhere."""
        if Path(name).is_absolute():
            return Path(name) if Path(name).is_file() else None
        above = [] if beside is None else list(beside.absolute().parents)
        return next((at for folder in (Path(), *self.search, *above) if (at := folder / name).is_file()), None)

    def read(self, name: str, path: Path | None, within: tuple[str, ...]) -> None:
        """One file and all that it includes."""
        if len(within) > _DEEPEST or str(path or name) in within:
            raise GinError(f"{name} includes itself: {' -> '.join((*within, str(path or name)))}")
        text = t5x_file(name) if path is None else _text(path)
        shown = f"known:{name}" if path is None else str(path)
        for one in statements(text or "", shown):
            if isinstance(one, Binding):
                self.bindings.append(one)
            elif isinstance(one, Import):
                if one.text not in [known.text for known in self.imports]:
                    self.imports.append(one)
            else:
                self._include(one, path, (*within, str(path or name)))

    def _include(self, include: Include, beside: Path | None, within: tuple[str, ...]) -> None:
        path = self.find(include.file, beside)
        if path is None and t5x_file(include.file) is None:
            self.missing.append(include)
            return
        if path is None and include.file not in [one.file for one in self.known]:
            self.known.append(include)
        self.includes.append(include)
        if len(self.includes) > _MOST_INCLUDES:
            raise GinError(
                f"{include.place}: more than {_MOST_INCLUDES:,} includes: the same files include one another"
            )
        self.read(include.file, path, within)

    def override(self, name: str, value: str, number: int) -> None:
        """One binding of the command line."""
        place = Place(COMMAND_LINE, number)
        try:
            found = list(statements(f"{name} = {value}\n", COMMAND_LINE))
        except GinError as error:
            quoted = shlex.quote(f'--gin.{name}="{value}"')
            why = str(error).partition(": ")[2]
            raise GinError(f"--gin.{name}={value}: {why}. Is it a text? Then it needs quotes: {quoted}") from None
        self.bindings += [
            Binding(one.scope, one.selector, one.argument, one.value, place)
            for one in found
            if isinstance(one, Binding)
        ]


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise GinError(f"{path} is no text in UTF-8 (byte {error.start}), so no gin file") from None
