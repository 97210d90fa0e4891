"""What became of each binding: none is dropped in silence."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from spanloom.migration.gin_config import REQUIRED, GinConfig, same
from spanloom.migration.gin_statements import Binding, Macro, Reference

Kind = Literal["lost", "changed", "needless", "overridden", "carried"]
"""lost: not carried over; changed: carried over as something else; needless: what it sets is so anyway, or is of no
meaning here; overridden: a later binding wins; carried: it is in the recipe."""


@dataclass(frozen=True)
class Note:
    """What became of one line of the input."""

    kind: Kind
    place: str
    """File and line."""
    what: str
    """The line, in short."""
    why: str
    """The reason, and what to do."""


class Bindings:
    """The bindings of a configuration, each of which is taken, or gets a note."""

    def __init__(self, config: GinConfig):
        self.config = config
        self._fates: dict[int, tuple[Kind, str]] = {}
        self._macros: dict[str, list[Binding]] = {}
        self.last: Binding | None = None
        """The binding whose value was asked for last."""
        self._numbers = {id(one): number for number, one in enumerate(config.bindings)}

    def find(self, selector: str, argument: str, scope: str = "") -> Binding | None:
        """The binding that holds, without taking it."""
        return self.config.find(selector, argument, scope)

    def take(self, selector: str, argument: str, default: Any = None, scope: str = "") -> Any:
        """The value of an argument, macros replaced, which is carried over; `default` where it is not bound or where
        its value is still to be given.
        """
        found = self.find(selector, argument, scope)
        return default if found is None else self._take(found, default)

    def take_macro(self, name: str, default: Any = None) -> Any:
        """The value of a macro, likewise."""
        found = self.config.macros.get(name)
        return default if found is None else self._take(found, default)

    def _take(self, found: Binding, default: Any) -> Any:
        value = self._value(found)
        if isinstance(value, Macro):
            self._set(found, "lost", f"{self._asked(found.value, value)}, and nothing gives it")
            return default
        self._set(found, "carried", "")
        return value

    def reference(self, selector: str, argument: str, scope: str = "") -> Reference | None:
        """The reference that an argument holds; None for anything else."""
        value = self.take(selector, argument, None, scope)
        return value if isinstance(value, Reference) else None

    def note(self, kind: Kind, why: str, selector: str, argument: str, scope: str = "") -> None:
        """Say what became of the binding that holds, if there is one."""
        if (found := self.find(selector, argument, scope)) is not None:
            self._value(found)
            self._set(found, kind, why)

    def _value(self, found: Binding) -> Any:
        self.last, used = found, set[str]()
        value = self.config.value(found.value, used)
        for name in used:
            self._macros.setdefault(name, []).append(found)
        return value

    def _asked(self, written: Any, unset: Macro) -> str:
        name = written.name if isinstance(written, Macro) else unset.name
        return f"{name} must be given (--gin.{name}=...)" if unset == REQUIRED else f"macro {name} is never set"

    def _set(self, binding: Binding, kind: Kind, why: str) -> None:
        self._fates[self._numbers[id(binding)]] = (kind, why)

    def notes(self, reasons: Mapping[str, tuple[Kind, str]]) -> list[Note]:
        """A note for every binding, in order, those that were carried over included.

        `reasons` are those of bindings that nothing takes: "Class.argument", "Class.*" or "scope/Class.argument" to
        kind and reason.
        """
        found = []
        for number, binding in enumerate(self.config.bindings):
            kind, why = self._fates.get(number) or self._fate(binding, reasons)
            found.append(Note(kind, str(binding.place), shown(binding), why))
        return found

    def _fate(self, binding: Binding, reasons: Mapping[str, tuple[Kind, str]]) -> tuple[Kind, str]:
        later = self._winner(binding)
        if later is not None and later is not binding:
            return "overridden", f"{later.place} sets it again: {shown(later)}"
        if binding.macro:
            return self._macro_fate(binding, reasons)
        found = self._reason(binding, reasons)
        return found if found is not None else ("lost", "nothing here reads it")

    def _macro_fate(self, binding: Binding, reasons: Mapping[str, tuple[Kind, str]]) -> tuple[Kind, str]:
        """That of the bindings that use it: the best of them."""
        name = binding.macro or ""
        users = self._users(name)
        fates = [
            self._fates.get(self._numbers[id(one)])
            or (self._macro_fate(one, reasons) if one.macro else self._fate(one, reasons))
            for one in users
        ]
        if any(kind == "carried" for kind, _ in fates):
            return "carried", ""
        if not users:
            if before := [one for one in self.config.bindings if name in _macros_in(one.value)]:
                return "overridden", f"{before[-1].place} used it, for {before[-1].key}, which a later line sets again"
            found = self._reason(binding, reasons)
            unused = "no binding uses this macro, so that it has no effect there either"
            return found if found is not None else ("lost", unused)
        order = ("changed", "needless", "lost", "overridden")
        kind, why = min(fates, key=lambda fate: order.index(fate[0]))
        if self.config.value(binding.value) == REQUIRED and kind == "needless":
            return "needless", why
        return kind, f"it is used for {users[0].key} alone: {why}"

    def _users(self, name: str) -> list[Binding]:
        """Bindings that hold and use a macro."""
        found = list(self._macros.get(name, []))
        for one in self.config.bindings:
            if one.macro == name or one in found:
                continue
            if name in _macros_in(one.value) and self._winner(one) is one:
                found.append(one)
        return found

    def _winner(self, binding: Binding) -> Binding | None:
        if binding.macro:
            return self.config.macros.get(binding.macro)
        for one in reversed(self.config.bindings):
            if one.scope == binding.scope and one.argument == binding.argument and same(one.selector, binding.selector):
                return one
        return None

    def _reason(self, binding: Binding, reasons: Mapping[str, tuple[Kind, str]]) -> tuple[Kind, str] | None:
        owner = binding.selector.rpartition(".")[2]
        for name in (
            f"{binding.scope}/{owner}.{binding.argument}",
            f"{binding.scope}/{owner}.*",
            f"{owner}.{binding.argument}",
            f"{owner}.*",
            binding.key,
        ):
            if name in reasons:
                if reasons[name][0] == "lost" and self.config.value(binding.value) is None:
                    return "needless", "it is unset there, too"
                return reasons[name]
        return None


def _macros_in(value: Any) -> set[str]:
    if isinstance(value, Macro):
        return {value.name}
    if isinstance(value, Mapping):
        return {name for one in value.values() for name in _macros_in(one)}
    return {name for one in value for name in _macros_in(one)} if isinstance(value, list | tuple) else set()


def shown(binding: Binding) -> str:
    """The binding in one line, a long value cut."""
    text = f"{binding.key} = {binding.value!r}"
    return text if len(text) <= 100 else f"{text[:97]}..."
