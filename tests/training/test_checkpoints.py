import logging
import resource
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny_training import same_arrays, tiny_run

from spanloom.model.params import declare, initialize
from spanloom.optim.build import build
from spanloom.settings.optimizer import Adafactor
from spanloom.settings.run import Checkpoints
from spanloom.settings.run_layout import steps_in
from spanloom.training import checkpoints
from spanloom.training.checkpoint_paths import CheckpointError, add_heldout_loss, clean_up, latest, open_checkpoint
from spanloom.training.checkpoints import CheckpointWriter, restore
from spanloom.training.facts import Facts, read_facts, vocabulary_of
from spanloom.training.state import TrainState, fresh_state

RUN = tiny_run(Path("text.txt"), 100).resolve()
SPECS = declare(RUN.model)
OPTIMIZER = build(RUN.optimizer, RUN.schedule, SPECS)


@pytest.fixture(scope="module")
def state():
    return fresh_state(jax.jit(lambda key: initialize(SPECS, key))(jax.random.key(0)), OPTIMIZER)


def facts(step, run=RUN, heldout_loss=None):
    return Facts(step, {"examples": 4 * step}, run, {"jax": "1", "spanloom": "0"}, 2.5, heldout_loss)


def write(directory, state, steps, settings=None, losses=(), files=None):
    writer = CheckpointWriter(directory / "checkpoints", settings or Checkpoints(keep=100), files or {})
    try:
        for index, step in enumerate(steps):
            here = TrainState(jnp.asarray(step, jnp.int32), state.params, state.opt_state)
            writer.save(here, facts(step, heldout_loss=losses[index] if losses else None))
    finally:
        writer.close()
    return directory / "checkpoints"


def test_everything_comes_back(tmp_path, state):
    path = write(tmp_path, state, [7]) / "7"
    restored = restore(path, opt_state_like=jax.eval_shape(lambda: state.opt_state))
    assert same_arrays(restored.params, state.params)
    assert same_arrays(restored.opt_state, state.opt_state)
    assert jax.tree.structure(restored.opt_state) == jax.tree.structure(state.opt_state)
    assert (restored.run, restored.step, restored.position) == (RUN, 7, {"examples": 28})
    assert restored.facts == facts(7) == read_facts(path)
    assert vocabulary_of(path, restored.facts).size == 384


def test_weights_alone_need_no_optimizer(tmp_path, state):
    path = write(tmp_path, state, [7]) / "7"
    restored = restore(path)
    assert restored.opt_state is None
    assert same_arrays(restored.params, state.params)


def test_what_is_saved_is_the_state_at_that_moment(tmp_path, state):
    """The next steps overwrite the donated state while the save is still under way."""
    step = jax.jit(lambda s: jax.tree.map(lambda x: x + 1, s), donate_argnums=0)
    writer = CheckpointWriter(tmp_path, Checkpoints(keep=100), {})
    moving, saved = jax.tree.map(jnp.copy, state), {}
    for number in range(1, 9):
        moving = step(moving)
        saved[number] = jax.tree.map(lambda x: np.array(x, copy=True), moving)
        writer.save(moving, facts(number))
    writer.close()
    for number, expected in saved.items():
        restored = restore(tmp_path / str(number), opt_state_like=jax.eval_shape(lambda: state.opt_state))
        assert same_arrays(restored.params, expected.params)
        assert same_arrays(restored.opt_state, expected.opt_state)


def test_only_while_it_writes_are_others_logs_quiet(tmp_path, monkeypatch):
    logger = logging.getLogger("absl")
    before, seen = logger.level, []
    monkeypatch.setattr(sys, "unraisablehook", seen.append)
    original = sys.unraisablehook
    writer = CheckpointWriter(tmp_path, Checkpoints(), {})
    assert logger.level == logging.CRITICAL
    for error in (RuntimeError("Event loop is closed"), RuntimeError("other"), OSError("Event loop is closed")):
        sys.unraisablehook(SimpleNamespace(exc_type=type(error), exc_value=error))
    assert [str(args.exc_value) for args in seen] == ["other", "Event loop is closed"]
    assert seen[1].exc_type is OSError
    writer.close()
    assert logger.level == before != logging.CRITICAL
    assert sys.unraisablehook is original


def test_last_best_and_every_are_kept(tmp_path, state):
    losses = [3.0, 1.0, None, 2.0, 5.0, 4.0]
    directory = write(tmp_path, state, [1, 2, 3, 4, 5, 6], Checkpoints(keep=2, keep_best=1, keep_every=4), losses)
    assert steps_in(directory) == [2, 4, 5, 6]
    assert open_checkpoint(tmp_path, "best").name == "2"
    assert latest(tmp_path).name == "6"


def test_finding_names_what_there_is(tmp_path, state):
    directory = write(tmp_path, state, [10, 200])
    assert open_checkpoint(tmp_path) == open_checkpoint(directory) == open_checkpoint(directory / "200")
    assert open_checkpoint(str(tmp_path), 10) == open_checkpoint(tmp_path, "10") == directory / "10"
    for which, words in [(11, r"no checkpoint 11.*\[10, 200\]"), ("best", "no checkpoint .* held-out loss")]:
        with pytest.raises(CheckpointError, match=words):
            open_checkpoint(tmp_path, which)
    with pytest.raises(CheckpointError, match="does not exist"):
        open_checkpoint(tmp_path / "absent")
    (tmp_path / "empty").mkdir()
    with pytest.raises(CheckpointError, match="holds no Spanloom checkpoint"):
        open_checkpoint(tmp_path / "empty")


def test_a_half_written_or_half_deleted_one_is_none(tmp_path, state):
    directory = write(tmp_path, state, [10])
    (directory / "10").rename(directory / "20.partial")
    assert latest(tmp_path) is None
    (directory / "20.partial").rename(directory / "10.deleted")
    assert latest(tmp_path) is None
    with pytest.raises(CheckpointError):
        open_checkpoint(directory / "10.deleted")
    clean_up(directory)
    assert list(directory.iterdir()) == []


def damage(path, how):
    content = path.read_bytes()
    if how == "gone":
        path.unlink()
    elif how == "cut":
        path.write_bytes(content[: len(content) // 2])
    elif how == "empty":
        path.write_bytes(b"")
    else:
        middle = len(content) // 2
        path.write_bytes(content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :])


@pytest.mark.parametrize("how", ["gone", "cut", "empty", "flipped"])
def test_damage_to_any_file_is_named_and_the_one_before_is_offered(tmp_path, state, how):
    directory = write(tmp_path, state, [10, 20, 30])
    damage(directory / "20" / "checkpoint.json", "cut")  # so that the offer must go further back
    files = sorted(p.relative_to(directory / "30") for p in (directory / "30").rglob("*") if p.is_file())
    assert len(files) > 5
    for name in files:
        path = directory / "30" / name
        content = path.read_bytes()
        if how != "gone" and not content:
            continue
        damage(path, how)
        with pytest.raises(CheckpointError) as error:
            restore(directory / "30")
        message = str(error.value)
        assert str(path) in message, message
        assert f"step 10, is whole. To go on from that one, move the damaged one away (mv {directory / '30'}" in message
        path.write_bytes(content)
    restore(directory / "30")


def test_no_intact_one_before(tmp_path, state):
    directory = write(tmp_path, state, [10])
    damage(directory / "10" / "manifest.json", "cut")
    with pytest.raises(CheckpointError, match="There is no earlier checkpoint"):
        restore(directory / "10")


def test_another_optimizer_is_refused_by_name(tmp_path, state):
    path = write(tmp_path, state, [10]) / "10"
    other = build(Adafactor(), RUN.schedule, SPECS)
    with pytest.raises(CheckpointError, match=r"optimizer state .* not that of these settings.*fresh optimizer"):
        restore(path, opt_state_like=jax.eval_shape(other.init, state.params))


def test_a_failed_save_is_an_error_and_leaves_the_earlier_ones(tmp_path, state, monkeypatch):
    directory = write(tmp_path, state, [10])

    def full(path):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoints, "seal", full)
    with pytest.raises(CheckpointError, match=r"checkpoints/20 .*No space left.*step 10 is intact.*keep fewer"):
        write(tmp_path, state, [20])
    assert [p.name for p in directory.iterdir()] == ["10"]
    restore(directory / "10")


def test_a_save_whose_directory_was_removed_fails_in_words(tmp_path, state, monkeypatch):
    directory = tmp_path / "checkpoints"

    def removed(path):
        shutil.rmtree(directory)
        raise FileNotFoundError(2, "No such file or directory")

    monkeypatch.setattr(checkpoints, "seal", removed)
    with pytest.raises(CheckpointError, match=r"checkpoints/20 .*No such file.*No checkpoint was written before"):
        write(tmp_path, state, [20])


@pytest.mark.parametrize("what", ["delete", "say"])
def test_what_fails_after_a_save_is_not_called_a_failed_save(tmp_path, state, monkeypatch, what):
    def fail(*arguments):
        raise PermissionError(13, "Permission denied")

    if what == "delete":
        monkeypatch.setattr(checkpoints, "delete", fail)
    on_saved = fail if what == "say" else lambda *arguments: None
    writer = CheckpointWriter(tmp_path, Checkpoints(keep=1, keep_best=0), {}, on_saved)
    if what == "delete":
        writer.save(state, facts(10))  # nothing to delete yet
    writer.save(state, facts(20))
    with pytest.raises(CheckpointError, match=r"checkpoint .*/20 is whole, but .*Permission denied") as error:
        writer.close()
    assert "could not save" not in str(error.value)
    restore(tmp_path / "20")


def test_a_loss_measured_later_counts_for_the_best(tmp_path, state):
    directory = write(tmp_path, state, [1, 2, 3], losses=[3.0, None, 2.0])
    assert open_checkpoint(tmp_path, "best").name == "3"
    add_heldout_loss(directory / "2", 1.0)
    assert open_checkpoint(tmp_path, "best").name == "2"
    assert restore(directory / "2").facts.heldout_loss == 1.0
    write(tmp_path, state, [4, 5], Checkpoints(keep=1, keep_best=1), losses=[9.0, 9.0])
    assert steps_in(directory) == [2, 5]


FULL_DISK = """
import resource, sys
sys.path.insert(0, {tests!r})
from pathlib import Path
import test_checkpoints as t
state = t.fresh_state(t.initialize(t.SPECS, t.jax.random.key(0)), t.OPTIMIZER)
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
t.write(Path({directory!r}), state, [20])
"""


def test_no_room_for_the_arrays(tmp_path, state):
    """The kernel refuses to let files grow, as a full disk would, in the middle of Orbax's writing."""
    directory = write(tmp_path, state, [10])
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY
    here = str(Path(__file__).parent)
    program = FULL_DISK.format(tests=here, directory=str(tmp_path)).replace(
        "sys.path.insert(0,", f"sys.path.insert(0, {str(Path(__file__).parent.parent)!r}); sys.path.insert(0,"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
    assert result.returncode == 1, result.stderr[-2000:]
    assert "could not save checkpoint" in result.stderr
    assert "The checkpoint of step 10 is intact" in result.stderr
    assert [p.name for p in directory.iterdir()] == ["10"]
    restore(directory / "10")


@pytest.mark.short
def test_directories_that_only_look_like_a_step_are_no_checkpoints(tmp_path: Path) -> None:
    for name in ("7", "007", "8.partial", "notes"):
        (tmp_path / name).mkdir()
    (tmp_path / "9").write_text("a file")
    assert steps_in(tmp_path) == [7]
