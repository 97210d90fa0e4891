from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from tiny_training import tiny_run
from vocabulary_models import write_model

from spanloom.model.flops import train_flops
from spanloom.report.plan import plan_text
from spanloom.scale.mesh import Layout, make_layout
from spanloom.scale.rules import rules_of
from spanloom.scale.topologies import topology
from spanloom.settings.follow import Follow
from spanloom.settings.mesh import AXES, Mesh
from spanloom.settings.optimizer import Adafactor, AdamW, Constant, Cosine, Muon, Rsqrt
from spanloom.settings.packing import Packed
from spanloom.settings.run import Logging
from spanloom.settings.vocabulary import Bytes, SentencePiece
from spanloom.settings.weights import Weights
from spanloom.training.decided import say_decided
from spanloom.training.plan import make_plan
from spanloom.training.plan_data import PlanData
from spanloom.training.progress import amount
from spanloom.vocabularies.build import build

pytestmark = pytest.mark.short
TEXT = tiny_run(Path("a.txt"), 10)


H100 = topology("h100x1")


def said(run, *, layout=None, examples=100, is_stream=False, warned=None, parameters=24_928):
    lines = []
    train = SimpleNamespace(num_examples=examples, examples_per_row=1.0, is_stream=is_stream)
    vocabulary = build(run.vocabulary)
    data = SimpleNamespace(train=train, lengths={"encoder": 32, "decoder": 9}, vocabulary=vocabulary)
    layout = layout or make_layout(Mesh(), jax.local_devices()[:1])
    say_decided(
        SimpleNamespace(say=lines.append, warn=[].append if warned is None else warned.append),
        run,
        data,
        layout,
        parameters,
        Path("runs/a"),
    )
    return lines


def table(run, **more):
    return {line.partition(":")[0]: line.partition(":")[2].strip() for line in said(run, **more)}


def test_what_was_decided_is_a_short_aligned_table():
    lines = said(TEXT)
    assert len(lines) <= 14
    assert len({len(line) - len(line.partition(":")[2].lstrip()) for line in lines}) == 1
    found = table(TEXT)
    assert found["model"].startswith("custom, 24.9 k parameters; 2 + 2 layers, d_model 16, d_ff 32, 2 heads of 8")
    assert found["ids"] == "384, bytes and 125 sentinels (259, 260, ...); 384 rows"
    assert found["precision"].startswith("computes in float32, keeps weights in float32; attention")
    assert found["devices"] == "1 x cpu, nothing divided"
    assert found["optimizer"] == "adamw, learning rate 0.01, dropout 0.1"
    assert found["batch"] == "4 sequences of 32 + 9 tokens: 128 + 36 tokens a step"
    assert found["steps"] == "10, 1.64 k tokens with padding, 0.4 epochs"
    flops = train_flops(TEXT.model, 4, 32, 9)
    assert found["compute"] == f"{amount(flops)}FLOP a step, {amount(10 * flops)}FLOP in all"
    assert found["every"].startswith(f"{TEXT.eval.every:,} steps the held-out loss, 10 a checkpoint (kept: the last 2")
    assert found["output"] == "runs/a; logged to tensorboard"


def test_a_model_file_without_sentinels_is_named_and_so_are_rows_that_nobody_needs(tmp_path):
    def ids(rows=32_128, start=None, **settings):
        words = SentencePiece(write_model(tmp_path / "my.model", size=100, **settings), extra_ids=20)
        task, model = replace(TEXT.task, vocabulary=words), replace(TEXT.model, vocab_size=rows)
        return table(replace(TEXT, task=task, model=model, start=start))["ids"]

    assert ids(128, sentinels=0) == (
        f"120, 100 pieces of {tmp_path}/my.model and 20 sentinels, which the file has none of, appended after them "
        "(119, 118, ...); 128 rows"
    )
    assert ids(sentinels=10).endswith(
        f"pieces of {tmp_path}/my.model and 10 sentinels in it (109, 108, ...); 32,128 rows, of which "
        "32,018 are never used: --model.vocab-size 128 has fewer"
    )
    assert ids(start="runs/a").endswith("; 32,128 rows")


def test_a_plan_has_the_rows_that_settings_decide():
    """The same words, though it knows neither data nor devices."""
    planned = make_plan(TEXT.resolve(), PlanData({"encoder": 32, "decoder": 9}, vocabulary=build(Bytes())), H100)
    begun = table(TEXT.resolve(), parameters=sum(planned.parameters.values()))
    assert set(planned.decided) == {"model", "ids", "precision", "optimizer", "schedule", "every"}
    assert planned.decided == {label: begun[label] for label in planned.decided} == planned.as_json()["decided"]
    printed = [line.split("  ")[0] for line in plan_text(planned, width=None, colour=False).splitlines()]
    assert set(planned.decided) <= set(printed) and len(printed) == len(set(printed))


def test_a_plan_claims_nothing_of_what_is_not_there():
    words = SentencePiece("absent.model")
    run = replace(TEXT, task=replace(TEXT.task, vocabulary=words), start="runs/a", follow=Follow(schedule="continue"))
    decided = make_plan(run.resolve(), PlanData({"encoder": 32, "decoder": 9}), H100).decided
    assert decided["ids"] == "those of absent.model, which is not there to be read; 384 rows"
    assert decided["schedule"] == "constant, warm-up of 5 steps, going on from where the run before it stands"
    rewarmed = replace(TEXT, start="runs/a", follow=Follow(rewarm_steps=45)).resolve()
    decided = make_plan(rewarmed, PlanData({"encoder": 32, "decoder": 9}), H100).decided
    assert decided["schedule"].endswith("at most 0.002 in these steps")  # 9 of 45 steps on the way up to 0.01


def test_what_differs_is_in_the_table():
    quiet = replace(TEXT, log=Logging(tensorboard=False))
    assert table(quiet)["output"] == "runs/a"
    assert table(replace(TEXT, log=Logging(wandb="x", trackio=True)))["output"] == (
        "runs/a; logged to tensorboard, wandb (project x), trackio (project spanloom)"
    )
    parts = table(replace(TEXT, batch_size=8, microbatch_size=2, packing=Packed()))["batch"]
    assert parts.startswith("8 rows of 32 + 9 tokens, 4 microbatches of 2: 256 + 72 tokens")
    kept = table(replace(TEXT, weights=Weights("bfloat16", "kahan", 0.99)))["precision"]
    assert "weights in bfloat16, kahan rounding, with an average (decay 0.99)" in kept
    assert table(TEXT, is_stream=True)["steps"].endswith("40 examples of a stream")


def test_the_highest_rate_of_a_schedule_is_said():
    adafactor = replace(TEXT, optimizer=Adafactor(learning_rate=0.01))
    assert table(adafactor)["optimizer"] == "adafactor, learning rate 0.01, dropout 0.1"
    assert table(adafactor)["schedule"] == "constant, warm-up of 5 steps, at most 0.01 in these steps"
    slow = table(replace(TEXT, schedule=Rsqrt(warmup_steps=10_000)))
    assert slow["schedule"] == "rsqrt, warm-up of 10,000 steps, at most 0.0001 in these steps"


def test_which_axes_divide_what_is_said():
    devices = [SimpleNamespace(device_kind="TPU v4")] * 16
    sizes = {"replica": 1, "data": 2, "fsdp": 4, "tensor": 2}

    def divided(**sizes):
        shape = {**dict.fromkeys(AXES, 1), **sizes}
        grid = SimpleNamespace(
            shape=shape, size=int(np.prod([*shape.values()])), devices=np.array(devices, dtype=object)
        )
        return table(TEXT, layout=Layout(grid, rules_of(Mesh())))["devices"]

    assert divided(**sizes) == (
        "16 x TPU v4: the batch in 8 parts (data 2 x fsdp 4), weights in 8 (fsdp 4 x tensor 2), "
        "gradients and moments in 16 (data 2 x fsdp 4 x tensor 2)"
    )
    assert divided(data=4) == (
        "4 x TPU v4: the batch in 4 parts (data 4), weights whole on each, gradients and moments in 4 (data 4)"
    )
    assert divided(tensor=4) == "4 x TPU v4: the batch whole, weights in 4 (tensor 4)"


def test_a_schedule_that_ends_before_the_run_is_said_with_the_setting_that_moves_its_end():
    ended = replace(TEXT, steps=20, schedule=Cosine(decay_steps=10, end_factor=0.1))
    lines = [
        line for run in (replace(ended, steps=10), replace(ended, schedule=Constant()), ended) for line in said(run)
    ]
    (line,) = (line for line in lines if line.startswith("schedule: it ends"))
    assert "ends at step 10 of 20" in line
    assert f"stays at {TEXT.optimizer.learning_rate / 10:g}" in line
    assert "--schedule.decay-steps 20" in line


def test_a_schedule_that_leaves_an_optimizer_next_to_nothing_of_its_rate_is_warned_of():
    """T5's rsqrt, which every run has that names no schedule, is a hundredth at most."""

    def warned(optimizer, schedule):
        said(replace(TEXT, optimizer=optimizer, schedule=schedule), warned=(lines := []))
        return lines

    for optimizer in (AdamW(), Muon()):
        (line,) = warned(optimizer, Rsqrt())
        assert "of 1: of " in line and "it leaves 1e-05, and 0.001 is usual" in line and "--schedule constant" in line
        assert not warned(optimizer, Constant())
    (line,) = warned(Adafactor(learning_rate=1e-3), Rsqrt())
    assert "it leaves 1e-05, and 0.01 is usual" in line
    for optimizer, schedule in (
        (Adafactor(), Rsqrt()),
        (Adafactor(), Rsqrt(step_offset=-1_000_000)),
        (AdamW(learning_rate=0.1), Rsqrt()),
        (AdamW(), Rsqrt(warmup_steps=16)),
        (AdamW(learning_rate=1e-5), Rsqrt(warmup_steps=1)),
    ):
        assert not warned(optimizer, schedule)
