"""What a run takes over from the one that it follows: optimizer, schedule, or neither."""

import dataclasses
import json

import jax
import numpy as np
import pytest
from tiny_training import events, same_arrays, tiny_run, train, write_text

from spanloom.model.params import declare
from spanloom.optim.build import build
from spanloom.settings.follow import Follow
from spanloom.settings.optimizer import Adafactor, AdamW, Constant, Cosine, Linear, Rsqrt
from spanloom.settings.run import Checkpoints, Evaluation
from spanloom.training.checkpoint_paths import CheckpointError, latest
from spanloom.training.checkpoints import restore
from spanloom.training.origin import (
    FROM_THE_BEGINNING,
    Origin,
    origin_after,
    origin_in,
    rate_of_count,
    rate_of_step,
    reached,
)
from spanloom.training.start import StartError

ON = Follow(optimizer="continue", schedule="continue")
REWARM = Follow(optimizer="continue", rewarm_steps=4)
RSQRT = Rsqrt(warmup_steps=3)


@pytest.fixture(autouse=True, scope="module")
def cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPANLOOM_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    return write_text(tmp_path_factory.mktemp("text") / "lines.txt")


def run_of(text, steps=6, **changes):
    defaults = {
        "schedule": RSQRT,
        "checkpoint": Checkpoints(every=3, keep=9),
        "eval": Evaluation(every=100, max_batches=1),
    }
    return tiny_run(text, steps, **{**defaults, **changes})


@pytest.fixture(scope="module")
def first(text, tmp_path_factory):
    directory = tmp_path_factory.mktemp("first")
    train(run_of(text), directory)
    return directory


def rates(directory):
    return [event["learning_rate"] for event in events(directory) if event["kind"] == "train"]


def counts(directory, run):
    """The steps that the optimizer's state has counted."""
    from spanloom.training.state import fresh_state

    specs = declare(run.model)
    optimizer = build(run.optimizer, run.schedule, specs)
    from spanloom.model.params import initialize

    like = jax.eval_shape(lambda key: fresh_state(initialize(specs, key), optimizer), jax.random.key(0)).opt_state
    state = restore(latest(directory), like).opt_state
    return {int(leaf) for leaf in jax.tree.leaves(state) if leaf.ndim == 0 and leaf.dtype == np.int32}


def rsqrt(steps):
    return [0.01 / np.sqrt(max(step, 3)) for step in steps]


@pytest.mark.parametrize(
    ("follow", "count", "expected"),
    [
        (Follow(), {6}, rsqrt(range(6))),
        (ON, {12}, rsqrt(range(6, 12))),
        (Follow(optimizer="continue"), {12}, rsqrt(range(6))),
        (Follow(schedule="continue"), {6}, rsqrt(range(6, 12))),
        (REWARM, {12}, [rate * min(step / 4, 1) for step, rate in enumerate(rsqrt(range(6)))]),
    ],
)
def test_policies(first, text, tmp_path, follow, count, expected):
    run = run_of(text, start=str(first), follow=follow)
    said = train(run, tmp_path)
    assert rates(tmp_path) == pytest.approx(expected, rel=1e-6)
    assert counts(tmp_path, run) == count
    assert f"start: weights of {first / 'checkpoints' / '6'} (step 6), optimizer " in said
    facts = restore(latest(tmp_path)).facts
    assert origin_in(facts) == origin_after(run, reached(restore(latest(first)).facts))
    assert facts.step == 6 and facts.position == {"examples": 24}


def test_a_run_that_continues_is_the_longer_run_but_for_its_data(first, text, tmp_path):
    """Without dropout and on the same batches, 3 steps and 3 more are 6: weights and moments to the last bit."""
    plain = dataclasses.replace(run_of(text).model, dropout=0.0)
    whole = run_of(text, model=plain, checkpoint=Checkpoints(every=3, keep=9))
    train(whole, tmp_path / "whole")
    short = dataclasses.replace(whole, steps=3)
    train(short, tmp_path / "short")
    train(dataclasses.replace(short, start=str(tmp_path / "short"), follow=ON), tmp_path / "next")
    longer = dataclasses.replace(short, start=str(tmp_path / "whole" / "checkpoints" / "3"), follow=ON)
    train(longer, tmp_path / "again")
    ours, theirs = (restore(latest(tmp_path / name)) for name in ("next", "again"))
    assert same_arrays(ours.params, theirs.params)
    assert rates(tmp_path / "short") + rates(tmp_path / "next") == rates(tmp_path / "whole")


def test_a_chain_of_runs_counts_on_and_resumes_exactly(first, text, tmp_path):
    run = run_of(text, start=str(first), follow=ON)
    train(run, tmp_path / "b")
    third = dataclasses.replace(run, start=str(tmp_path / "b"))
    train(third, tmp_path / "straight")
    assert origin_in(restore(latest(tmp_path / "straight")).facts) == Origin(12, 12)
    train(dataclasses.replace(third, steps=3), tmp_path / "parts")
    (tmp_path / "b").rename(tmp_path / "gone")  # a checkpoint needs nothing but itself
    train(third, tmp_path / "parts")
    assert rates(tmp_path / "parts") == rates(tmp_path / "straight") == pytest.approx(rsqrt(range(12, 18)), rel=1e-6)
    ours, theirs = (restore(latest(tmp_path / name)) for name in ("parts", "straight"))
    assert same_arrays(ours.params, theirs.params)


@pytest.mark.short
def test_nothing_is_added_where_nothing_is_followed():
    run = tiny_run("a.txt", 5, schedule=RSQRT)
    for rate in (rate_of_step(run, FROM_THE_BEGINNING), rate_of_count(run, FROM_THE_BEGINNING)):
        assert "add" not in str(jax.make_jaxpr(rate)(np.int32(3))).replace("add_any", "")


@pytest.mark.short
def test_the_optimizers_own_count_is_another():
    run = tiny_run("a.txt", 5, schedule=RSQRT)
    origin = Origin(optimizer=100, schedule=7)
    steps = np.arange(5, dtype=np.int32)
    assert np.array_equal(rate_of_count(run, origin)(steps + 100), rate_of_step(run, origin)(steps))
    assert rate_of_step(run, origin)(steps) == pytest.approx(rsqrt(range(7, 12)), rel=1e-6)


@pytest.mark.short
def test_updates_that_were_left_out_give_no_rate_below_that_of_step_0():
    """Of a run of 100 steps whose optimizer counted 97."""
    rate = rate_of_count(tiny_run("a.txt", 5, schedule=RSQRT), Origin(optimizer=100, rewarm_steps=4))
    assert [float(rate(np.int32(count))) for count in (97, 98, 99, 100)] == [0.0] * 4
    assert float(rate(np.int32(101))) > 0


def test_what_cannot_go_on_is_refused_with_the_fix(first, text, tmp_path):
    other = run_of(text, start=str(first), follow=ON, optimizer=Adafactor())
    with pytest.raises(CheckpointError, match=r"the optimizer state in .* is not that of these settings"):
        train(other, tmp_path / "a")
    for schedule in (Linear(decay_steps=8), Cosine()):
        ended = run_of(text, start=str(first), follow=ON, schedule=schedule)
        with pytest.raises(StartError, match=r"goes on at its step 6, .*--schedule.decay-steps 12"):
            train(ended, tmp_path / "b")
    assert not (tmp_path / "b" / "stores").exists()


def test_a_hugging_face_folder_has_no_optimizer_to_go_on_with(first, text, tmp_path):
    from spanloom.cli.main import main

    assert main(["convert", str(first), str(tmp_path / "hf"), "--to", "hf"]) == 0
    with pytest.raises(StartError, match=r"neither optimizer nor schedule can go on .*--follow.optimizer reset"):
        train(run_of(text, start=str(tmp_path / "hf"), follow=ON), tmp_path / "a")
    train(run_of(text, steps=1, start=str(tmp_path / "hf")), tmp_path / "b")


def test_adamw_goes_on_with_its_moments(first, text, tmp_path):
    """What a fresh optimizer would do differently: its first step is a full one, whatever the gradient's size."""
    constant = {"schedule": Constant(), "optimizer": AdamW(learning_rate=1e-2), "start": str(first), "steps": 1}
    saved = {"checkpoint": Checkpoints(every=1)}
    moved = {}
    for name, follow in (("reset", Follow()), ("continue", Follow(optimizer="continue"))):
        train(run_of(text, follow=follow, **constant, **saved), tmp_path / name)
        pairs = zip(*(jax.tree.leaves(restore(latest(d)).params) for d in (first, tmp_path / name)), strict=True)
        changes = np.concatenate([np.abs(np.asarray(b) - np.asarray(a)).ravel() for a, b in pairs])
        moved[name] = float(np.median(changes[changes > 0]))
    assert moved["reset"] == pytest.approx(1e-2, rel=1e-2)
    assert moved["continue"] < 0.9e-2


def test_the_origin_is_in_the_checkpoint_as_data(first):
    whole = json.loads((latest(first) / "checkpoint.json").read_text())
    assert whole["origin"] == {"optimizer": 0, "schedule": 0, "rewarm_steps": 0}
