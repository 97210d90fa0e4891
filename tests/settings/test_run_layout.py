from pathlib import Path

import pytest

from spanloom.settings.run_layout import DELETED, FACTS, PARTIAL, is_checkpoint, is_run_directory, steps_in

pytestmark = pytest.mark.short


def make(*paths: Path) -> None:
    for path in paths:
        path.mkdir(parents=True)
        (path / FACTS).write_text("{}")


def test_steps_are_whole_checkpoints_named_by_a_number(tmp_path: Path) -> None:
    make(*(tmp_path / name for name in ("10", "9", "007", "best", f"11{PARTIAL}", f"8{DELETED}")))
    (tmp_path / "12").write_text("a file")
    assert steps_in(tmp_path) == [9, 10]
    assert steps_in(tmp_path / "absent") == []


def test_a_run_is_known_by_its_checkpoints(tmp_path: Path) -> None:
    (tmp_path / "run" / "checkpoints").mkdir(parents=True)
    assert not is_run_directory(tmp_path / "run")
    make(tmp_path / "run" / "checkpoints" / "5")
    assert is_run_directory(tmp_path / "run") and is_run_directory(tmp_path / "run" / "checkpoints")
    assert not is_run_directory(tmp_path)


def test_a_checkpoint_is_one_only_when_whole(tmp_path: Path) -> None:
    make(tmp_path / "5", tmp_path / f"6{PARTIAL}", tmp_path / f"7{DELETED}")
    assert [path.name for path in sorted(tmp_path.iterdir()) if is_checkpoint(path)] == ["5"]
