"""The text of a plain function of the user's, with all that it uses of its own file, for a recipe to hold."""

import ast
import builtins
import inspect
import textwrap
import types
from collections.abc import Callable
from typing import Any

from spanloom.migration.recipe_code import Writer
from spanloom.migration.stand_ins import Named, StandInModule

_PLAIN = (str, int, float, bool, bytes, type(None))
_TAKEN = {"recipe", "named", "partial", "Run", "Task"}


class NotPlainError(ValueError):
    """A function that cannot stand in a recipe; the message says why."""


def lifted(function: Callable[..., Any]) -> tuple[dict[str, str], set[str]]:
    """Texts by name, in the order in which they are needed, and import statements. Raises NotPlainError."""
    texts: dict[str, str] = {}
    imports: set[str] = set()
    _lift(function, texts, imports, ())
    return texts, imports


def _lift(code: Any, texts: dict[str, str], imports: set[str], within: tuple[str, ...]) -> None:
    name = code.__name__
    if name in within:
        return
    if not name.isidentifier() or "<" in code.__qualname__ or "." in code.__qualname__:
        raise NotPlainError("it has no name at the top of its file")
    if name in _TAKEN:
        raise NotPlainError(f"a recipe has a {name} of its own")
    try:
        text = textwrap.dedent(inspect.getsource(code))
        tree = ast.parse(text)
    except (OSError, TypeError, SyntaxError):
        raise NotPlainError("its text is not there") from None
    if getattr(tree.body[0], "decorator_list", None):
        raise NotPlainError("it is decorated")
    known = code.__globals__
    if any(isinstance(known.get(word), Named | StandInModule) for word in _annotation_names(tree)):
        tree = ast.fix_missing_locations(_WithoutTypes().visit(tree))
        text = ast.unparse(tree) + "\n"
    if texts.get(name) == text:
        return
    own = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    own |= {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    used = [node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id not in own]
    for word in dict.fromkeys(used):
        if word != name and word in known:
            _lift_name(word, known[word], texts, imports, (*within, name))
        elif word != name and not hasattr(builtins, word):
            raise NotPlainError(f"it uses {word}, which is not there")
    keep(texts, name, text)


def keep(texts: dict[str, str], name: str, text: str) -> None:
    """Add a text under its name. Raises NotPlainError where another has that name: one would stand for both."""
    if texts.setdefault(name, text) != text:
        raise NotPlainError(f"the recipe has another {name}: give one of them another name")


def _annotation_names(tree: ast.AST) -> set[str]:
    """Names that types are written with."""
    types = [node.annotation for node in ast.walk(tree) if isinstance(node, ast.arg | ast.AnnAssign)]
    types += [node.returns for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    return {one.id for found in types if found for one in ast.walk(found) if isinstance(one, ast.Name)}


class _WithoutTypes(ast.NodeTransformer):
    """A function without the types of what it takes and returns."""

    def visit_arg(self, node: ast.arg) -> ast.arg:
        """A parameter."""
        node.annotation = None
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        """A function, and those inside of it."""
        node.returns = None
        self.generic_visit(node)
        return node


def _lift_name(word: str, value: Any, texts: dict[str, str], imports: set[str], within: tuple[str, ...]) -> None:
    if isinstance(value, Named | StandInModule):
        raise NotPlainError(f"it uses {value!r}" if isinstance(value, Named) else f"it uses {value.__name__}")
    if isinstance(value, types.ModuleType):
        alias = "" if value.__name__ == word else f" as {word}"
        if "." in value.__name__ and not alias:
            raise NotPlainError(f"it uses {value.__name__}")
        imports.add(f"import {value.__name__}{alias}")
    elif getattr(value, "__module__", None) == "typing":
        imports.add(f"from typing import {word}")
    elif isinstance(value, type) or inspect.isroutine(value):
        home = getattr(value, "__module__", None)
        if home in (None, "builtins"):
            return
        if inspect.isfunction(value) and _is_users(value):
            _lift(value, texts, imports, within)
            if value.__name__ != word:
                keep(texts, word, f"{word} = {value.__name__}\n")
        else:
            alias = "" if value.__name__ == word else f" as {word}"
            imports.add(f"from {home} import {value.__name__}{alias}")
    elif _is_plain(value):
        keep(texts, word, f"{word} = {Writer().code(value, 0, len(word) + 3)}\n")
    else:
        raise NotPlainError(f"it uses {word}, a {type(value).__name__}")


def _is_users(function: Any) -> bool:
    """Whether a function is the user's own: what is installed can be imported."""
    return "site-packages" not in function.__code__.co_filename and "/lib/python" not in function.__code__.co_filename


def _is_plain(value: Any) -> bool:
    if isinstance(value, list | tuple | set | frozenset):
        return all(map(_is_plain, value))
    if isinstance(value, dict):
        return all(map(_is_plain, value)) and all(map(_is_plain, value.values()))
    return isinstance(value, _PLAIN)
