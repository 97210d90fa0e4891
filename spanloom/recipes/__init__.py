"""The recipes that ship: one file each, with a function `recipe` that returns a `Run`, or several."""

from pathlib import Path


def shipped() -> dict[str, Path]:
    """Name and file of every shipped recipe, in alphabetical order."""
    return {path.stem: path for path in sorted(Path(__file__).parent.glob("*.py")) if not path.stem.startswith("_")}


def summary(path: Path) -> str:
    """The first line of a recipe file's docstring, read without importing it."""
    import ast

    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return text.splitlines()[0] if text else ""
