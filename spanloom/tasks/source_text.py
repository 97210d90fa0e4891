"""The source text that decides what a function does: its own, and that of whatever it uses of its own file.

So a recipe's other lines (its steps, its learning rate) can change without a change of its preprocessors. What
installed packages do is not looked at, nor are data files: where these change, the outputs of probe rows tell, or the
task's version.
"""

import ast
import functools
import io
import os
import sysconfig
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

_DEFINITION = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
_IMPORT = ast.Import | ast.ImportFrom
_PACKAGE = Path(__file__).resolve().parent.parent
Imports = tuple[tuple[int, str], ...]
"""Level (dots before the name, 0 for none) and name of imported modules, or of what may be one."""


def source_of(text: str, name: str, path: Path) -> str:
    """The statements of a module (`text`, of the file `path`) that `name` depends on, in their order, and the whole
    text of the user's own files that these import, and that those import in turn: files beside it and of its package.
    The whole text where it cannot be parsed.
    """
    own, imports = _own_text(text, name)
    return own + "".join(_neighbours(imports, path))


@functools.lru_cache(maxsize=1024)
def _own_text(text: str, name: str) -> tuple[str, Imports]:
    """The statements that `name` depends on, and what these import."""
    try:
        statements = ast.parse(text).body
    except (SyntaxError, ValueError):
        return text, ()
    lines = io.StringIO(text, newline="").readlines()  # str.splitlines breaks at form feeds, too, and ast does not
    used = _used(statements, name)
    return "".join(_lines(lines, statement) for statement in used), tuple(_imported(used))


@functools.lru_cache(maxsize=1024)
def _all_imports(text: str) -> Imports:
    """What a whole module imports."""
    try:
        return tuple(_imported(ast.parse(text).body))
    except (SyntaxError, ValueError):
        return ()


def _used(statements: list[ast.stmt], name: str) -> list[ast.stmt]:
    """Statements that bind `name`, or anything that these use; and those that may change a variable among them."""
    bound = [set(_bound(one)) for one in statements]
    named = [_names([one]) for one in statements]
    assigned = [
        names for one, names in zip(statements, bound, strict=True) if isinstance(one, ast.Assign | ast.AnnAssign)
    ]
    variables = set[str]().union(*assigned)
    functions = {one.name: _names([one]) for one in statements if isinstance(one, _DEFINITION)}
    changed = [_reached(_names(_run_at_once(one)), functions) & variables for one in statements]
    wanted, left = {name}, dict(enumerate(statements))
    while found := [number for number in left if wanted & (bound[number] | changed[number]) or "*" in bound[number]]:
        for number in found:
            del left[number]
            wanted |= named[number]
    return [statement for number, statement in enumerate(statements) if number not in left]


def _names(nodes: Iterable[ast.AST]) -> set[str]:
    return {node.id for one in nodes for node in ast.walk(one) if isinstance(node, ast.Name)}


def _run_at_once(statement: ast.stmt) -> list[ast.AST]:
    """The parts of a statement that run when the module is loaded and may change a variable: of a definition its
    decorators, which may put it into a table; nothing of an assignment of a name.
    """
    if isinstance(statement, _DEFINITION):
        return [*statement.decorator_list]
    if isinstance(statement, ast.Assign | ast.AnnAssign) and any(_bound(statement)):
        return []
    return [] if _is_main(statement) else [statement]


def _is_main(statement: ast.stmt) -> bool:
    """Whether it is what only a script runs: if __name__ == "__main__"."""
    return isinstance(statement, ast.If) and "__name__" in _names([statement.test])


def _reached(names: set[str], functions: Mapping[str, set[str]]) -> set[str]:
    """Names, and those in functions of the module among them, and so on."""
    reached, waiting = set[str](), set(names)
    while waiting:
        name = waiting.pop()
        reached.add(name)
        waiting |= functions.get(name, set()) - reached
    return reached


def _bound(statement: ast.stmt) -> Iterator[str]:
    """Names that a statement binds in its module."""
    if isinstance(statement, _DEFINITION):
        yield statement.name
        return
    for node in ast.walk(statement):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, _DEFINITION):
            yield node.name
        elif isinstance(node, _IMPORT):
            yield from ((alias.asname or alias.name).split(".")[0] for alias in node.names)


def _lines(lines: list[str], statement: ast.stmt) -> str:
    """The statement's lines, with those of its decorators."""
    decorators = getattr(statement, "decorator_list", [])
    first = min([statement.lineno, *(one.lineno for one in decorators)])
    return "".join(lines[first - 1 : statement.end_lineno]).rstrip() + "\n"


def _imported(used: list[ast.stmt]) -> Iterator[tuple[int, str]]:
    for node in (node for statement in used for node in ast.walk(statement)):
        if isinstance(node, ast.Import):
            yield from ((0, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            package = [node.module] if node.module else []
            yield node.level, ".".join(package)
            yield from ((node.level, ".".join([*package, alias.name])) for alias in node.names)  # may be files, too


def _neighbours(imports: Imports, path: Path) -> Iterator[str]:
    """Texts of the user's own files of these names, and of those that they import in turn, each once."""
    roots = list(dict.fromkeys([path.parent, _above_package(path)]))
    seen, waiting = {path}, list(_files(imports, path, roots))
    while waiting:
        file = waiting.pop(0)
        if file in seen or not file.is_file():
            continue
        seen.add(file)
        text = file.read_text(encoding="utf-8", errors="replace")
        yield text
        waiting += _files(_all_imports(text), file, roots)


def _files(imports: Imports, path: Path, roots: list[Path]) -> Iterator[Path]:
    """Where modules that the file `path` imports would lie, if they are the user's own."""
    for level, name in imports:
        parts = name.split(".") if name else []
        for root in [path.parents[min(level, len(path.parents)) - 1]] if level else roots:
            place = root.joinpath(*parts)
            for file in (place.with_name(f"{place.name}.py"), place / "__init__.py"):
                if not _is_foreign(file):
                    yield file


def _above_package(path: Path) -> Path:
    """The folder from which the file's package is imported; its own folder if it is in none."""
    folder = path.parent
    while (folder / "__init__.py").is_file() and folder != folder.parent:
        folder = folder.parent
    return folder


def _is_foreign(file: Path) -> bool:
    """Whether a file is of Python, of an installed package or of this one."""
    return any(file.is_relative_to(root) for root in (_PACKAGE, *_installed()))


@functools.cache
def _installed() -> tuple[Path, ...]:
    paths = (sysconfig.get_path(kind) for kind in ("stdlib", "platstdlib", "purelib", "platlib"))
    return tuple(Path(os.path.realpath(path)) for path in paths)
