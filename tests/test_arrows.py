"""The house's arrows point downwards only (DESIGN.md, "The house"), and what must be quick to load stays light."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import spanloom

FLOORS = (
    "cli",
    "recipes",
    "launch",
    "migration",  # writes recipes: it knows settings, sizes and foreign layouts, and nothing of training
    "report",
    "training",
    "evaluation",
    "conversion",
    "scale",
    "optim",
    "model",
    "pipeline",
    "tasks",
    "vocabularies",
    "settings",
)
"""From the top down; a file imports from its own floor and those below."""
ROOT = Path(spanloom.__file__).parent
pytestmark = pytest.mark.short


def imported(path: Path) -> Iterator[str]:
    """Packages of ours that a file imports from, at its top or inside of a function."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        for parts in (name.split(".") for name in names):
            if parts[0] == "spanloom" and len(parts) > 1:
                yield parts[1]


def upward(path: Path, floor: str) -> list[str]:
    """What a file on `floor` imports from above it."""
    return [name for name in imported(path) if FLOORS.index(name) < FLOORS.index(floor)]


@pytest.mark.parametrize("floor", FLOORS)
def test_arrows_point_downwards(floor: str) -> None:
    files = sorted((ROOT / floor).rglob("*.py"))
    assert files
    assert not {str(path): found for path in files if (found := upward(path, floor))}


def test_no_package_is_forgotten() -> None:
    assert {path.name for path in ROOT.iterdir() if (path / "__init__.py").is_file()} <= set(FLOORS)


def test_an_arrow_upwards_would_be_seen(tmp_path: Path) -> None:
    file = tmp_path / "x.py"
    file.write_text("def f():\n    from spanloom.training.loop import train\n    import spanloom.cli.main\n")
    assert upward(file, "model") == ["training", "cli"] and upward(file, "cli") == []
