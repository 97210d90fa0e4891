"""Runs that begin with a checkpoint of T5X: continue, reset or take the weights alone, as asked."""

import dataclasses

import jax
import numpy as np
import pytest
from t5x_files import write_t5x
from tiny_training import same_arrays, tiny_run, train, write_text

from spanloom.conversion.convert import convert
from spanloom.conversion.t5x_checkpoint import open_checkpoint
from spanloom.conversion.t5x_names import their_layer
from spanloom.conversion.t5x_write import T5X
from spanloom.model.params import declare, flatten
from spanloom.optim.build import build
from spanloom.settings.follow import Follow
from spanloom.settings.optimizer import Adafactor, Rsqrt
from spanloom.settings.run import Checkpoints
from spanloom.settings.weights import Weights
from spanloom.training.checkpoint_paths import latest
from spanloom.training.checkpoints import restore
from spanloom.training.converted import SPANLOOM
from spanloom.training.read_model import open_model
from spanloom.training.start import StartError, find_start, load_start
from spanloom.training.state import state_shapes

ON = Follow(optimizer="continue", schedule="continue")
FACTORED = Adafactor(learning_rate=0.1, min_dim_size_to_factor=8, beta1=0.9)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    text = write_text(tmp_path_factory.mktemp("text") / "text.txt")
    changes = {"checkpoint": Checkpoints(every=3, keep=9), "optimizer": FACTORED, "schedule": Rsqrt()}
    return tiny_run(text, 3, **changes).resolve()


@pytest.fixture(scope="module")
def ours(run, tmp_path_factory):
    """A run directory with a checkpoint of step 3."""
    directory = tmp_path_factory.mktemp("ours")
    train(run, directory)
    return directory


@pytest.fixture(scope="module")
def theirs(run, ours, tmp_path_factory):
    """The same checkpoint as T5X would have written it."""
    shapes = state_shapes(declare(run.model), build(run.optimizer, run.schedule, declare(run.model)), run.weights)
    restored = restore(latest(ours), shapes.opt_state)
    arrays = {"state/step": np.asarray(3, np.int32)}
    for name, part in _their_parts(flatten(restored.params)):
        arrays[f"target/{name}"] = part
        arrays |= {
            f"state/param_states/{name}/{slot}": np.zeros(1, np.float32) for slot in ("v_row", "v_col", "v", "m")
        }
    for slot in ("v_row", "v_col", "v", "m"):
        for name, part in _their_parts(getattr(restored.opt_state, slot)):
            arrays[f"state/param_states/{name}/{slot}"] = part
    folder = tmp_path_factory.mktemp("theirs")
    write_t5x(folder / "checkpoint_3", arrays, inline=lambda name: "param_states" in name)
    return folder


def _their_parts(flat):
    for name, leaf in flat.items():
        if "/layers/" not in name:
            yield name, np.asarray(leaf)
        else:
            yield from ((their_layer(name, layer), np.asarray(leaf[layer])) for layer in range(leaf.shape[0]))


def test_training_goes_on_as_from_our_own_checkpoint(run, ours, theirs, tmp_path):
    """Weights after 3 more steps are equal to the last bit; so are rates, which go on at step 3."""
    said = train(dataclasses.replace(run, start=str(theirs), follow=ON), tmp_path / "b")
    assert f"weights of the T5X checkpoint {theirs / 'checkpoint_3'} (step 3), optimizer as after 3 steps" in said
    train(dataclasses.replace(run, start=str(ours), follow=ON), tmp_path / "a")
    first, second = (restore(latest(tmp_path / name)) for name in "ab")
    assert same_arrays(first.params, second.params)
    assert first.facts.origin == second.facts.origin == {"optimizer": 3, "schedule": 3, "rewarm_steps": 0}


def test_weights_alone_unless_more_is_asked_for(run, ours, theirs):
    start = load_start(run, find_start(dataclasses.replace(run, start=str(theirs))))
    assert start.opt_state is None and "optimizer fresh" in start.description
    assert same_arrays(start.params, restore(latest(ours)).params)


def test_the_state_is_that_of_the_checkpoint(run, ours, theirs):
    following = dataclasses.replace(run, start=str(theirs), follow=ON)
    shapes = state_shapes(declare(run.model), build(run.optimizer, run.schedule, declare(run.model)), run.weights)
    start = load_start(following, find_start(following), None, shapes.opt_state)
    assert same_arrays(start.opt_state, restore(latest(ours), shapes.opt_state).opt_state)
    assert jax.tree.structure(start.opt_state) == jax.tree.structure(shapes.opt_state)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"optimizer": tiny_run("x", 1).optimizer}, "the state of Adafactor, and this run has AdamW"),
        ({"optimizer": dataclasses.replace(FACTORED, beta1=None)}, "has momentum: give --optimizer.beta1 0.9"),
        (
            {"optimizer": dataclasses.replace(FACTORED, factor_rules="logical")},
            "give --optimizer.factor-rules heuristic",
        ),
        ({"optimizer": dataclasses.replace(FACTORED, factored=False)}, "as rows and columns, this run's does not"),
        ({"weights": Weights("bfloat16")}, "leave out --weights.dtype"),
        ({"follow": dataclasses.replace(ON, which="best")}, "says its held-out loss, so none is the best"),
    ],
)
def test_an_optimizer_that_cannot_go_on_is_refused_before_training(run, theirs, changes, message):
    with pytest.raises(StartError, match=message):
        find_start(dataclasses.replace(run, **{"start": str(theirs), "follow": ON} | changes))


def test_a_checkpoint_of_weights_alone_has_nothing_to_continue(run, ours, tmp_path):
    weights = {f"target/{name}": part for name, part in _their_parts(flatten(restore(latest(ours)).params))}
    path = write_t5x(tmp_path / "checkpoint_900", weights, inline=lambda name: True)
    with pytest.raises(StartError, match="holds no state of Adafactor"):
        find_start(dataclasses.replace(run, start=str(path), follow=ON))
    schedule = dataclasses.replace(run, start=str(path), follow=Follow(schedule="continue"))
    assert find_start(schedule).reached.schedule == 900


def test_our_checkpoint_written_for_t5x_is_the_one_that_t5x_would_have_written(ours, theirs, tmp_path):
    report = convert(open_model(ours), tmp_path / "out", T5X)
    assert report.num_slots > 0 and report.largest_difference == 0
    mine, wanted = (open_checkpoint(folder / "checkpoint_3") for folder in (tmp_path / "out", theirs))
    assert mine.step == wanted.step == 3
    for found, there in ((mine.weights, wanted.weights), (mine.slots, wanted.slots)):
        assert found.keys() == there.keys()
        for name, array in found.items():
            np.testing.assert_array_equal(array.read(), there[name].read(), err_msg=name)


@pytest.mark.parametrize("source", ["ours", "theirs"])
def test_a_converted_model_goes_on_as_what_it_came_from(run, ours, theirs, tmp_path, source):
    """The optimizer's memory and the step come along, from T5X and from a run."""
    opened = open_model(ours) if source == "ours" else open_model(theirs, activations=",".join(run.model.activations))
    convert(opened, tmp_path / "out", SPANLOOM)
    following = dataclasses.replace(run, start=str(tmp_path / "out"), follow=ON)
    shapes = state_shapes(declare(run.model), build(run.optimizer, run.schedule, declare(run.model)), run.weights)
    found = find_start(following)
    start = load_start(following, found, None, shapes.opt_state)
    restored = restore(latest(ours), shapes.opt_state)
    assert same_arrays(start.opt_state, restored.opt_state) and same_arrays(start.params, restored.params)
    assert found.reached.schedule == 3 and "optimizer as after 3 steps" in start.description
    with pytest.raises(StartError, match=r"has momentum: give --optimizer\.beta1"):
        find_start(dataclasses.replace(following, optimizer=dataclasses.replace(FACTORED, beta1=None)))
