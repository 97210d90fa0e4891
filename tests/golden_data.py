"""Where reference values and shared data are, for tests. Absent data skips a test, and fails it where CI=true."""

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def golden_dir(*parts: str) -> Path:
    """The folder of golden values named by SPANLOOM_GOLDEN (default ../shared/golden), or a part of it."""
    return _find("SPANLOOM_GOLDEN", ROOT.parent / "shared" / "golden", parts)


def shared_dir(*parts: str) -> Path:
    """The folder of shared data named by SPANLOOM_SHARED (default ../shared), or a part of it."""
    return _find("SPANLOOM_SHARED", ROOT.parent / "shared", parts)


def _find(variable: str, default: Path, parts: tuple[str, ...]) -> Path:
    path = Path(os.environ.get(variable, default)).joinpath(*parts)
    if not path.exists():
        absent(f"{path} is absent: set {variable} to the folder that holds it")
    return path.resolve()


def absent(reason: str) -> None:
    """Skip the running test for want of data or of a package; fail it where CI=true."""
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)
