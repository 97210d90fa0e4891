import json
import os
import shutil

import pytest

from spanloom.training import checkpoint_paths
from spanloom.training.checkpoint_paths import CheckpointError, add_heldout_loss, copy_checkpoint
from spanloom.training.integrity import seal, verify

pytestmark = pytest.mark.short


@pytest.fixture
def checkpoint(tmp_path):
    path = tmp_path / "old" / "checkpoints" / "7"
    (path / "arrays").mkdir(parents=True)
    (path / "checkpoint.json").write_text("{}")
    (path / "arrays" / "weights").write_bytes(bytes(1000))
    seal(path)
    return path


def test_a_copy_is_whole_and_on_disk(checkpoint, tmp_path, monkeypatch):
    synced, fsync = [], os.fsync

    def noted(descriptor):
        synced.append(os.path.realpath(f"/proc/self/fd/{descriptor}"))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", noted)
    place = copy_checkpoint(checkpoint, tmp_path / "new")
    assert place == tmp_path / "new" / "checkpoints" / "7"
    verify(place)
    partial = f"{place}.partial"
    for name in ("", "/checkpoint.json", "/manifest.json", "/arrays", "/arrays/weights"):
        assert partial + name in synced
    assert synced[-3:] == [str(place.parent), str(tmp_path / "new"), str(tmp_path)]


def test_what_its_run_is_writing_beside_it_is_not_copied(checkpoint, tmp_path):
    add_heldout_loss(checkpoint, 1.5)
    (checkpoint / "heldout.json.part").write_text("{")
    place = copy_checkpoint(checkpoint, tmp_path / "new")
    assert json.loads((place / "heldout.json").read_text()) == {"heldout_loss": 1.5}
    names = {path.relative_to(place).as_posix() for path in place.rglob("*") if path.is_file()}
    assert names == {"arrays/weights", "checkpoint.json", "heldout.json", "manifest.json"}


def test_a_damaged_one_is_not_copied(checkpoint, tmp_path):
    (checkpoint / "arrays" / "weights").write_bytes(bytes(999))
    with pytest.raises(CheckpointError, match=f"{checkpoint}/arrays/weights has 999 bytes"):
        copy_checkpoint(checkpoint, tmp_path / "new")
    assert list((tmp_path / "new" / "checkpoints").iterdir()) == []


def test_one_that_its_run_deletes_meanwhile_is_said(checkpoint, tmp_path, monkeypatch):
    def deleted(source, target):
        shutil.rmtree(checkpoint)
        raise FileNotFoundError(source)

    monkeypatch.setattr(checkpoint_paths.shutil, "copyfile", deleted)
    with pytest.raises(CheckpointError, match="was deleted by its run while it was copied"):
        copy_checkpoint(checkpoint, tmp_path / "new")
    assert list((tmp_path / "new" / "checkpoints").iterdir()) == []
