"""A home of its own for each launch, a Python that trains nothing, and a recipe."""

from pathlib import Path

import pytest
from crew_process import RECIPE
from launch_stand_ins import Stub, hurry


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home directory of the launching machine, and where the command is given."""
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "recipe.py").write_text(RECIPE)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path / "here")
    hurry(tmp_path / "patience", monkeypatch)
    return tmp_path / "home"


@pytest.fixture
def stub(tmp_path: Path) -> Stub:
    """A Python for the hosts."""
    return Stub(tmp_path / "stub")
