"""The source text that decides what a function does: its own, and that of whatever it uses of its own file.

So a recipe's other lines (its steps, its learning rate) can change without a change of its preprocessors. What other
packages do is not looked at: where that changes, the outputs of probe rows tell, or the task's version.
"""

import ast
import functools
from collections.abc import Iterator
from pathlib import Path


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
    lines = text.splitlines(keepends=True)
    used = _used(statements, name)
    return "".join(_lines(lines, statement) for statement in used), tuple(_imported(used))


def _used(statements: list[ast.stmt], name: str) -> list[ast.stmt]:
    """Statements that bind `name`, or anything that these use; and those that may change a variable among them."""
    wanted, found = {name}, set[int]()
    while True:
        before = len(found)
        for number, statement in enumerate(statements):
            if number in found or not _concerns(statement, wanted, statements):
                continue
            found.add(number)
            wanted |= {node.id for node in ast.walk(statement) if isinstance(node, ast.Name)}
        if len(found) == before:
            return [statements[number] for number in sorted(found)]


def _concerns(statement: ast.stmt, wanted: set[str], statements: list[ast.stmt]) -> bool:
    if wanted & set(_bound(statement)):
        return True
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Import | ast.ImportFrom):
        return False
    plain = ast.Assign | ast.AnnAssign | ast.AugAssign | ast.Expr | ast.For | ast.With
    variables = {name for one in statements if isinstance(one, ast.Assign | ast.AnnAssign) for name in _bound(one)}
    mentioned = {node.id for node in ast.walk(statement) if isinstance(node, ast.Name)}
    changes = not (isinstance(statement, ast.Assign | ast.AnnAssign) and set(_bound(statement)))  # TABLE["x"] = 1
    return isinstance(statement, plain) and changes and bool(mentioned & wanted & variables)


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
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


def _neighbours(imported: tuple[str, ...], path: Path) -> Iterator[str]:
    """Texts of files beside `path` of these names; what they import is not followed further."""
    for name in imported:
        file = path.parent / (name.replace(".", "/") + ".py")
        if file.is_file():
            yield file.read_text(encoding="utf-8", errors="replace")
