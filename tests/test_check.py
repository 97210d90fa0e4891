"""What `make check` says of a part that it cannot run."""

import importlib.util
import sys
from pathlib import Path

import pytest


@pytest.fixture
def check(monkeypatch):
    spec = importlib.util.spec_from_file_location("check", Path(__file__).parent.parent / "scripts" / "check.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "check", module)  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.mark.short
@pytest.mark.parametrize(("ci", "said", "status"), [("", "skipped", 0), ("true", "FAILED", 1)])
def test_a_python_that_is_not_there_is_never_ok(check, monkeypatch, capsys, ci, said, status):
    monkeypatch.setenv("CI", ci)
    monkeypatch.setattr(check, "parts", lambda everything: [check.short_set("3.99")])
    monkeypatch.setattr(sys, "argv", ["check.py"])
    assert check.main() == status
    row = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("short set"))
    assert row.split()[-6:] == [f"{said}:", "this", "Python", "was", "not", "found"]
