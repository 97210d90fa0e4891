import json

import pytest

from spanloom.training.checkpoint_paths import CheckpointError
from spanloom.training.lost import refuse_lost

pytestmark = pytest.mark.short


def write(directory, *events):
    (directory / "metrics.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))


TRAINED = [{"kind": "start", "step": 0}, *({"kind": "train", "step": step} for step in (1, 2, 3))]


def test_a_run_killed_before_its_first_checkpoint_begins_anew(tmp_path):
    refuse_lost(tmp_path)
    (tmp_path / "checkpoints").mkdir()
    write(tmp_path, *TRAINED)
    refuse_lost(tmp_path)
    refuse_lost(tmp_path, 2)  # the first save may have been under way


def test_nor_is_anything_lost_before_the_first_step(tmp_path):
    write(tmp_path, TRAINED[0])
    refuse_lost(tmp_path)


@pytest.mark.parametrize(
    ("make", "state"),
    [
        (lambda place: None, "is missing"),
        (lambda place: place.write_text(""), "is no folder"),
        (lambda place: place.symlink_to("gone"), "is a link to gone, which is not there"),
    ],
)
def test_the_folder_made_before_the_first_step_is_out_of_reach(tmp_path, make, state):
    make(tmp_path / "checkpoints")
    write(tmp_path, *TRAINED)
    with pytest.raises(CheckpointError, match=f"has trained 3 steps .*checkpoints {state}.*--out.*deleting"):
        refuse_lost(tmp_path)


def test_an_emptied_folder(tmp_path):
    (tmp_path / "checkpoints").mkdir()
    write(tmp_path, *TRAINED)
    with pytest.raises(CheckpointError, match="holds none"):
        refuse_lost(tmp_path, 1)
    write(tmp_path, {"kind": "start", "step": 2}, TRAINED[-1])
    with pytest.raises(CheckpointError, match="holds none"):
        refuse_lost(tmp_path)
