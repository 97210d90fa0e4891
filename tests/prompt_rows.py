"""Rows made up for a prompt template: what its columns must be is read off how it uses them.

Text does for most uses. A column whose attributes are asked for is a table, one that counts or numbers something is a
number, and one whose members are taken apart is a list.
"""

import hashlib
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from jinja2 import nodes

from spanloom.tasks.prompts.rendering import Prompt, environment

_METHODS = {"split", "strip", "rstrip", "lstrip", "lower", "upper", "title", "capitalize", "replace", "format", "join"}
_METHODS |= {
    "startswith",
    "endswith",
    "find",
    "rfind",
    "index",
    "count",
    "isdigit",
    "partition",
    "rsplit",
    "splitlines",
}
_LISTS = {"append", "pop", "extend", "insert", "remove"}
_ARITHMETIC = (nodes.Add, nodes.Sub, nodes.Mul, nodes.Div, nodes.FloorDiv, nodes.Mod)
_NUMBERS = {"abs", "round"}


@dataclass
class Use:
    """How a value is used."""

    name: str
    fields: dict[str, "Use"] = field(default_factory=dict)
    member: "Use | None" = None
    is_number: bool = False
    is_list: bool = False
    is_text: bool = False
    words: list[str] = field(default_factory=list)
    """Texts that are looked for in it."""
    equal: "Use | str | int | None" = None
    """What it is one of."""

    def inside(self, name: str) -> "Use":
        return self.fields.setdefault(name, Use(name))

    def each(self) -> "Use":
        self.member = self.member or Use(f"{self.name} member")
        return self.member

    def value(self) -> Any:
        if self.fields and self.fields.keys() - {"*"}:
            return {name: use.value() for name, use in self.fields.items()}
        if "*" in self.fields:
            return {"a": self.fields["*"].value(), "b": self.fields["*"].value()}
        if isinstance(self.equal, str | int):
            return self.equal
        if self.equal is not None and (members := self.equal.value()):
            return members[0]
        inner = self.member
        is_deep = inner is not None and (inner.fields or inner.is_number or inner.member)
        if is_deep or (self.is_list and not self.is_text):
            return [self.each().value() for _ in range(3)]
        return 0 if self.is_number else " ".join([f"made up {self.name}, with words.", *self.words])


class Reader(dict[str, Use]):
    """Uses of the columns of a template, by name."""

    def __init__(self) -> None:
        super().__init__()
        self._tables: dict[str, nodes.Dict] = {}

    def read(self, text: str) -> None:
        self._walk(environment().parse(text), {})

    def _use(self, node: nodes.Node, scope: dict[str, Use | None]) -> Use | None:
        """The part of a column that an expression is; None for anything computed."""
        match node:
            case nodes.Name():
                return scope[node.name] if node.name in scope else self.setdefault(node.name, Use(node.name))
            case nodes.Getattr():
                inner = self._use(node.node, scope)
                return inner and inner.inside(node.attr)
            case nodes.Getitem(arg=nodes.Const(value=str() as key)):
                inner = self._use(node.node, scope)
                return None if inner is None else inner.inside(key)
            case nodes.Getitem():
                inner = self._use(node.node, scope)
                is_slice = isinstance(node.arg, nodes.Slice)
                return inner if inner is None or is_slice else inner.each()
            case nodes.Filter(name="list" | "sort" | "unique" | "reverse"):
                return self._use(node.node, scope) if node.node else None
            case nodes.Filter(name="choice" | "random" | "first" | "last" | "most_frequent" as name):
                inner = self._use(node.node, scope) if node.node else None
                if inner is None or name == "most_frequent":
                    return inner
                inner.is_list = inner.is_list or name in ("choice", "random")
                return inner.each()
        return None

    def _key(self, table: nodes.Node, key: nodes.Node, scope: dict[str, Use | None]) -> None:
        """What is looked up in a table that stands in the template is the first of its keys with a text."""
        use = self._use(key, scope)
        if isinstance(table, nodes.Name):
            table = self._tables.get(table.name, table)
        if use is None or not isinstance(table, nodes.Dict):
            return
        for pair in table.items:
            is_empty = isinstance(pair.value, nodes.Const) and pair.value.value == ""
            if isinstance(pair.key, nodes.Const) and use.equal is None and not is_empty:
                use.equal = pair.key.value

    def _number(self, node: nodes.Node, scope: dict[str, Use | None]) -> None:
        use = self._use(node, scope)
        if use is not None:
            use.is_number = True

    def _walk(self, node: nodes.Node, scope: dict[str, Use | None]) -> None:
        self._use(node, scope)
        match node:
            case nodes.For():
                self._walk_for(node, scope)
                return
            case nodes.Assign(target=nodes.Name(name=name)):
                self._walk(node.node, scope)
                scope[name] = self._use(node.node, scope)
                if isinstance(node.node, nodes.Dict):
                    self._tables[name] = node.node
                return
            case nodes.Call(node=nodes.Getattr(attr=attr)):
                self._method(node, attr, scope)
                for inside in (node.node.node, *node.args):
                    self._walk(inside, scope)
                return
            case nodes.Filter(name="join" | "length" | "count") if node.node and (owner := self._use(node.node, scope)):
                owner.is_list = True
            case nodes.Getitem(arg=nodes.Name() | nodes.Getattr() | nodes.Getitem() as arg):
                self._number(arg, scope)
                self._key(node.node, arg, scope)
            case nodes.Getitem(arg=nodes.Slice() as arg):
                for bound in (arg.start, arg.stop):
                    if bound is not None:
                        self._number(bound, scope)
            case nodes.Add(left=nodes.List()) | nodes.Add(right=nodes.List()):
                for side in (node.left, node.right):
                    if use := self._use(side, scope):
                        use.is_list = True
            case nodes.BinExpr() if isinstance(node, _ARITHMETIC):
                sides = [node.left, node.right]
                is_text = any(isinstance(side, nodes.Const) and isinstance(side.value, str) for side in sides)
                if not is_text and any(map(self._is_number, sides)):
                    for side in sides:
                        self._number(side, scope)
            case nodes.Compare():
                for operand in node.ops:
                    left, right = self._use(node.expr, scope), self._use(operand.expr, scope)
                    if operand.op in ("in", "notin") and left and right and (left.is_number or left.member):
                        right.is_list = True
                values = [node.expr, *(operand.expr for operand in node.ops)]
                if any(isinstance(v, nodes.Const) and type(v.value) in (int, float) for v in values):
                    for value in values:
                        self._number(value, scope)
            case nodes.Filter(name=name) if name in _NUMBERS:
                self._number(node.node, scope)
            case nodes.Filter(name="map" | "selectattr" | "rejectattr" | "sort") if node.node:
                self._walk_map(node, scope)
            case nodes.Call(node=nodes.Name(name="range")):
                for argument in node.args:
                    self._number(argument, scope)
        for child in node.iter_child_nodes():
            self._walk(child, scope)

    def _method(self, node: nodes.Call, attr: str, scope: dict[str, Use | None]) -> None:
        owner, first = self._use(node.node.node, scope), node.args[0] if node.args else None
        sought = self._use(first, scope) if first is not None else None
        if attr == "index" and sought is not None:
            if owner is not None:
                owner.is_list, sought.equal = True, owner
            elif isinstance(node.node.node, nodes.List) and isinstance(node.node.node.items[0], nodes.Const):
                sought.equal = str(node.node.node.items[0].value)
        elif owner is None:
            return
        elif attr in _LISTS:
            owner.is_list = True
        elif attr in ("items", "keys", "values"):
            owner.inside("*")
        elif attr in _METHODS:
            owner.is_text = True
            if isinstance(first, nodes.Const) and attr not in ("replace", "strip", "lstrip", "rstrip"):
                owner.words.append(str(first.value))

    def _is_number(self, node: nodes.Node) -> bool:
        if isinstance(node, nodes.Const):
            return type(node.value) in (int, float)
        if isinstance(node, nodes.Filter):
            return node.name in ("int", "length", "abs", "round", "count")
        return isinstance(node, nodes.BinExpr) and (self._is_number(node.left) or self._is_number(node.right))

    def _walk_map(self, node: nodes.Filter, scope: dict[str, Use | None]) -> None:
        owner = self._use(node.node, scope)
        names = [pair.value.value for pair in node.kwargs if pair.key == "attribute"]
        names += [a.value for a in node.args[:1] if isinstance(a, nodes.Const) and node.name.endswith("attr")]
        for name in names:
            if owner is not None:
                owner.each().inside(str(name))

    def _walk_for(self, node: nodes.For, scope: dict[str, Use | None]) -> None:
        self._walk(node.iter, scope)
        inner = dict(scope)
        found = self._use(node.iter, scope)
        names = [node.target.name] if isinstance(node.target, nodes.Name) else [t.name for t in node.target.items]
        inner |= dict.fromkeys([*names, "loop"])
        if isinstance(node.target, nodes.Name) and found is not None:
            inner[names[0]] = found.each()
        match node.iter:
            case nodes.Call(node=nodes.Name(name="zip"), args=args):
                for name, argument in zip(names, args, strict=False):
                    inner[name] = (use := self._use(argument, scope)) and use.each()
            case nodes.Call(node=nodes.Getattr(attr="items", node=owner)):
                inner[names[-1]] = (use := self._use(owner, scope)) and use.inside("*")
        for child in (*node.body, *node.else_, *([node.test] if node.test else [])):
            self._walk(child, inner)


def made_up_row(prompt: Prompt) -> dict[str, Any]:
    """A row with the columns that a prompt names."""
    reader = Reader()
    for text in filter(None, (prompt.answer_choices, prompt.jinja)):
        reader.read(text)
    if prompt.fixed_choices and "answer_choices" in reader:
        reader["answer_choices"].member = Use("choice", equal=prompt.fixed_choices[0])
    return {name: reader[name].value() if name in reader else f"made up {name}" for name in sorted(prompt.columns)}


_ROUGH: tuple[Callable[[str], str], ...] = (
    lambda text: text,
    lambda text: f" \t\n{text}\r\n\u00a0",
    lambda text: f"\u2003a & b <c> \"q\" 'x' ||| {text} \\n\x1c\u200b",
    lambda text: "",
    lambda text: f"{text}  two\tkinds of\u3000space ||| \n" * 60,
    lambda text: "longword" * 255 + "|||" + text,
)
"""White space of all kinds around and within a text, characters that mean something elsewhere, and texts to be cut."""


def rough_rows(row: dict[str, Any]) -> list[dict[str, Any]]:
    """A row, and others like it whose texts are not as neat and whose numbers are higher."""
    return [_changed(row, change, number) for number, change in enumerate(_ROUGH)]


def _changed(value: Any, change: Callable[[str], str], more: int) -> Any:
    if isinstance(value, dict):
        return {name: _changed(inner, change, more) for name, inner in value.items()}
    if isinstance(value, list):
        return [_changed(inner, change, more) for inner in value]
    return change(value) if isinstance(value, str) else value + more


def middle(items: Iterable[Any]) -> Any:
    """What stands for a draw where what two renderers make is compared."""
    several = list(items)
    return several[len(several) // 2]


def digest_of(prompt: Prompt, render: Callable[[dict[str, Any]], Any]) -> str:
    """What tells the parts and the choices of a prompt's made-up rows from any others."""
    return hashlib.blake2b(json.dumps(made(prompt, render)).encode(), digest_size=3).hexdigest()


def made(prompt: Prompt, render: Callable[[dict[str, Any]], Any]) -> list[Any]:
    """The parts and the choices of each of a prompt's made-up rows, or "error" where it has none."""
    found = []
    for row in rough_rows(made_up_row(prompt)):
        try:
            found.append(render(row))
        except Exception:  # whatever the template's own code raises
            found.append("error")
    return found
