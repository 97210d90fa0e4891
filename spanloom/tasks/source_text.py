"""The source text that decides what a function does: its own, and that of whatever it uses of its own file.

So a recipe's other lines (its steps, its learning rate) can change without a change of its preprocessors. What other
packages do is not looked at: where that changes, the outputs of probe rows tell, or the task's version.
"""

import ast
import functools
import io
from collections.abc import Iterator
from pathlib import Path

_PLAIN = ast.Assign | ast.AnnAssign | ast.AugAssign | ast.Expr | ast.For | ast.With
"""Statements that may change a variable."""


def source_of(text: str, name: str, path: Path) -> str:
    """The statements of a module (`text`, of the file `path`) that `name` depends on, in their order, and the whole
    text of files beside it that these import. The whole text where it cannot be parsed.
    """
    own, imported = _own_text(text, name)
    return own + "".join(_neighbours(imported, path))


@functools.lru_cache(maxsize=1024)
def _own_text(text: str, name: str) -> tuple[str, tuple[str, ...]]:
    """The statements that `name` depends on, and the names of modules that these import."""
    try:
        statements = ast.parse(text).body
    except (SyntaxError, ValueError):
        return text, ()
    lines = io.StringIO(text, newline="").readlines()  # str.splitlines breaks at form feeds, too, and ast does not
    used = _used(statements, name)
    return "".join(_lines(lines, statement) for statement in used), tuple(_imported(used))


def _used(statements: list[ast.stmt], name: str) -> list[ast.stmt]:
    """Statements that bind `name`, or anything that these use; and those that may change a variable among them."""
    bound = [set(_bound(one)) for one in statements]
    named = [{node.id for node in ast.walk(one) if isinstance(node, ast.Name)} for one in statements]
    is_assignment = [isinstance(one, ast.Assign | ast.AnnAssign) for one in statements]
    variables = set[str]().union(*(names for names, assigns in zip(bound, is_assignment, strict=True) if assigns))
    changed = [  # by what is no assignment of a name: TABLE["x"] = 1
        mentions & variables if isinstance(one, _PLAIN) and not (assigns and names) else set[str]()
        for one, names, mentions, assigns in zip(statements, bound, named, is_assignment, strict=True)
    ]
    wanted, left = {name}, dict(enumerate(statements))
    while found := [number for number in left if wanted & (bound[number] | changed[number])]:
        for number in found:
            del left[number]
            wanted |= named[number]
    return [statement for number, statement in enumerate(statements) if number not in left]


def _bound(statement: ast.stmt) -> Iterator[str]:
    """Names that a statement binds in its module."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield statement.name
        return
    for node in ast.walk(statement):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield from ((alias.asname or alias.name).split(".")[0] for alias in node.names)


def _lines(lines: list[str], statement: ast.stmt) -> str:
    """The statement's lines, with those of its decorators."""
    decorators = getattr(statement, "decorator_list", [])
    first = min([statement.lineno, *(one.lineno for one in decorators)])
    return "".join(lines[first - 1 : statement.end_lineno]).rstrip() + "\n"


def _imported(used: list[ast.stmt]) -> Iterator[str]:
    for node in (node for statement in used for node in ast.walk(statement)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level < 2:
            package = [node.module] if node.module else []
            yield from package
            yield from (".".join([*package, alias.name]) for alias in node.names)  # which may be files, too


def _neighbours(imported: tuple[str, ...], path: Path) -> Iterator[str]:
    """Texts of files beside `path` of these names; what they import is not followed further."""
    for name in imported:
        place = path.parent / name.replace(".", "/")
        for file in (place.with_name(f"{place.name}.py"), place / "__init__.py"):
            if file.is_file():
                yield file.read_text(encoding="utf-8", errors="replace")
