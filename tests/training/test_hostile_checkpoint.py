"""A checkpoint of our own with any of its files hostile: an error that names it, or the same weights."""

import time

import jax
import numpy as np
from hostile import damaged_copies
from tiny_training import tiny_run

from spanloom.conversion.errors import ConversionError
from spanloom.model.params import declare, initialize
from spanloom.optim.build import build
from spanloom.settings.run import Checkpoints
from spanloom.training.checkpoint_paths import CheckpointError
from spanloom.training.checkpoints import CheckpointWriter, restore
from spanloom.training.facts import Facts
from spanloom.training.inspected import inspect
from spanloom.training.state import fresh_state


def test_any_damage_is_an_error_that_names_the_checkpoint(tmp_path):
    run = tiny_run(tmp_path / "text.txt", 100).resolve()
    params = initialize(declare(run.model), jax.random.key(3))
    writer = CheckpointWriter(tmp_path / "run" / "checkpoints", Checkpoints(), {})
    writer.save(
        fresh_state(params, build(run.optimizer, run.schedule, declare(run.model))), Facts(5, {"examples": 20}, run, {})
    )
    writer.close()
    wanted = jax.tree.leaves(params)
    refused = 0
    for how, place in damaged_copies(tmp_path / "run" / "checkpoints" / "5", tmp_path, seed=0, count=3, most_files=8):
        started = time.process_time()
        said = []
        try:
            inspect(place)
        except (CheckpointError, ConversionError) as error:
            said.append(str(error))
        try:
            found = jax.tree.leaves(restore(place).params)
            assert all(np.array_equal(one, other) for one, other in zip(found, wanted, strict=True)), how
        except CheckpointError as error:
            said.append(str(error))
            refused += 1
        assert all(str(place) in message for message in said), how
        assert time.process_time() - started < 20, how
    assert refused > 30
