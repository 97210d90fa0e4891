import dataclasses
import inspect
import io
import json
import os
import shutil
import signal
import threading

import jax
import jax.numpy as jnp
import pytest
from tiny_training import MODEL, events, losses, same_arrays, tiny_run, write_text

from spanloom.evaluation import heldout
from spanloom.pipeline.data import open_data
from spanloom.scale.mesh import Layout
from spanloom.settings.optimizer import Adafactor, AdamW, Constant, Factors
from spanloom.settings.run import Checkpoints, Evaluation, Logging
from spanloom.settings.run_layout import steps_in
from spanloom.settings.serialize import from_json
from spanloom.settings.stopping import Stopping
from spanloom.training import checkpoints, first_state, gradients, loop
from spanloom.training.checkpoint_paths import CheckpointError, latest, open_checkpoint
from spanloom.training.checkpoints import restore
from spanloom.training.divergence import DivergedError, all_finite
from spanloom.training.facts import read_facts
from spanloom.training.fits import DoesNotFitError
from spanloom.training.lock import DirectoryInUseError, directory_lock
from spanloom.training.progress import PlainDisplay


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory):
    """The step is compiled once for this file; tests of another seed or rate change what need not compile again."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPANLOOM_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield
    jax.config.update("jax_compilation_cache_dir", None)


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    return write_text(tmp_path_factory.mktemp("text") / "lines.txt", lines=1000)


def run_of(text, steps, **changes):
    plain = dataclasses.replace(MODEL, dropout=0.0)
    defaults = {"model": plain, "checkpoint": Checkpoints(every=4), "eval": Evaluation(every=4, max_batches=2)}
    return tiny_run(text, steps, **{**defaults, **changes})


def train(run, directory):
    stream = io.StringIO()
    finished = loop.train(run, directory, display=PlainDisplay(stream))
    return finished, stream.getvalue()


@pytest.fixture(scope="module")
def trained(text, tmp_path_factory):
    """A run of ten steps: its directory and what the user saw."""
    directory = tmp_path_factory.mktemp("trained")
    finished, output = train(run_of(text, 10), directory)
    assert finished
    return directory, output


def test_the_user_sees_what_matters(trained):
    directory, output = trained
    for words in [
        "data: train part of lines: 960 documents",
        "data: held-out part of lines: 40 documents",
        "10 steps of 4 are",
        "model:     custom, 24.9 k parameters; 2 + 2 layers, d_model 16",
        "devices:   1 x cpu, nothing divided",
        "ln V = 5.951 for V = 384; expected 5.70 to 7.20",
        "step 10/10  loss ",
        "tokens/s  MFU ",
        "ETA 0 s",
        "step 8  held-out loss ",
        f"step 8  checkpoint {directory / 'checkpoints' / '8'}",
    ]:
        assert words in output
    assert "warning" not in output


def test_metrics_have_what_checks_rely_on(trained):
    directory, _ = trained
    lines = events(directory)
    assert [(e["kind"], e["step"]) for e in lines if e["kind"] != "train"] == [
        ("start", 0),
        ("eval", 4),
        ("eval", 8),
        ("eval", 10),
    ]
    training = [e for e in lines if e["kind"] == "train"]
    assert [e["step"] for e in training] == list(range(1, 11))
    needed = {"loss", "learning_rate", "tokens_per_second", "mfu", "grad_norm", "z_loss", "accuracy", "cross_entropy"}
    needed |= {f"{side}_tokens_per_second{padded}" for side in ("encoder", "decoder") for padded in ("", "_padded")}
    needed |= {"seconds_per_step", "data_wait", "step_time", "checkpoint_time", "eval_time", "memory_in_use", "eta"}
    assert all(needed <= e.keys() for e in training)
    assert all(e["mfu"] > 0 and e["tokens_per_second"] > 0 for e in training)
    assert (
        [e["step"] for e in training if e["eval_time"] > 0]
        == [5, 9]
        == [e["step"] for e in training if e["checkpoint_time"] > 0]
    )
    assert all(e["task"] == "lines" and e["heldout_loss"] > 0 for e in lines if e["kind"] == "eval")
    assert training[0]["loss"] == float(jnp.float32(training[0]["loss"]))  # exactly a float32


def test_the_directory_has_all_that_is_needed(trained, text):
    directory, _ = trained
    run = from_json(json.loads((directory / "run.json").read_text()))
    assert run == run_of(text, 10).resolve() == read_facts(latest(directory)).run
    assert steps_in(directory / "checkpoints") == [4, 8, 10]
    facts = read_facts(directory / "checkpoints" / "8")
    evaluations = losses(directory)
    assert facts.heldout_loss == evaluations["eval", 8]
    assert facts.loss == evaluations["train", 8]
    assert facts.position == {"examples": 32}
    assert int(open_checkpoint(directory, "best").name) == min((4, 8, 10), key=lambda s: evaluations["eval", s])
    assert list((directory / "tensorboard").glob("events.out.tfevents.*"))


def test_the_same_run_gives_the_same_losses(trained, text, tmp_path):
    train(run_of(text, 10), tmp_path)
    assert losses(tmp_path) == losses(trained[0])
    assert same_arrays(restore(latest(tmp_path)).params, restore(latest(trained[0])).params)


def test_a_finished_run_has_nothing_to_do_and_goes_on_when_steps_are_raised(text, tmp_path):
    train(run_of(text, 6), tmp_path)
    (tmp_path / "checkpoints" / "2.deleted").mkdir()  # a kill in the middle of a deletion
    before = (tmp_path / "metrics.jsonl").read_bytes()
    finished, output = train(run_of(text, 6), tmp_path)
    assert finished
    assert f"all 6 steps are done; to train on: spanloom train {tmp_path} --steps N" in output
    assert (tmp_path / "metrics.jsonl").read_bytes() == before
    assert not (tmp_path / "checkpoints" / "2.deleted").exists()
    _, output = train(run_of(text, 8), tmp_path)
    assert "resuming after step 6, 24 examples read" in output
    assert [s for kind, s in losses(tmp_path) if kind == "train"] == list(range(1, 9))


def test_what_differs_on_resume_is_said(text, tmp_path, monkeypatch):
    train(run_of(text, 2), tmp_path)
    here = loop.describe_machine()
    monkeypatch.setattr(loop, "describe_machine", lambda: {**here, "cpu_count": 99})
    _, output = train(run_of(text, 4, optimizer=AdamW(learning_rate=2e-2)), tmp_path)
    assert "changed since that checkpoint: optimizer.learning_rate: 0.01 -> 0.02" in output
    assert "losses may differ in the last bits" in output
    assert f"cpu_count: {here['cpu_count']} in the checkpoint, 99 here" in output


def test_a_changed_batch_size_goes_on_where_the_data_stood(text, tmp_path):
    train(run_of(text, 2), tmp_path)
    train(run_of(text, 4, batch_size=2), tmp_path)
    assert read_facts(latest(tmp_path)).position == {"examples": 2 * 4 + 2 * 2}


def test_nothing_compiles_after_the_first_step(text, tmp_path, monkeypatch):
    compiled, at_step = [], {}
    jax.monitoring.register_event_duration_secs_listener(
        lambda name, seconds, **more: compiled.append(name) if name.endswith("backend_compile_duration") else None
    )
    original = loop.Recorder.add

    def add(self, step, metrics):
        original(self, step, metrics)
        at_step[step] = len(compiled)

    monkeypatch.setattr(loop.Recorder, "add", add)
    run = run_of(text, 12, eval=Evaluation(every=3, max_batches=2), checkpoint=Checkpoints(every=3))
    train(run, tmp_path)
    assert at_step[4] > 0
    # Steps 1 to 3 may bring the first evaluation and the first save; afterwards nothing is new.
    assert at_step[1] == at_step[3]
    assert at_step[4] == at_step[12]


def test_a_copy_to_the_device_that_nobody_asked_for_is_an_error(text, tmp_path, monkeypatch):
    """The third batch comes as the host has it: a step takes it only after a copy that the loop would wait for."""
    put, calls = Layout.put_batch, []

    def forgets_the_third(layout, rows, batch_size):
        calls.append(put(layout, rows, batch_size))
        return calls[-1] if len(calls) != 4 else dict(rows)  # the first one is for the compiler

    monkeypatch.setattr(Layout, "put_batch", forgets_the_third)
    with pytest.raises(jax.errors.JaxRuntimeError, match="Disallowed host-to-device transfer"):
        train(run_of(text, 4), tmp_path)
    assert len(calls) == 4


def test_steps_go_on_while_a_save_is_held_up_and_what_is_saved_is_of_its_step(trained, text, tmp_path, monkeypatch):
    """No array of step 4 is written before step 7 is done; a save that the loop waited for would wait in vain."""
    from orbax.checkpoint._src.serialization import serialization  # below all that could make a save wait

    go_on, held, whole_by = threading.Event(), [], {}
    write, add = serialization.async_serialize_from_host, loop.Recorder.add

    async def held_up(*arguments, **more):
        held.append(go_on.wait(20))
        go_on.set()
        return await write(*arguments, **more)

    def releases(recorder, step, metrics):
        add(recorder, step, metrics)
        whole_by[step] = steps_in(tmp_path / "checkpoints")
        if step == 7:
            go_on.set()

    monkeypatch.setattr(serialization, "async_serialize_from_host", held_up)
    monkeypatch.setattr(loop.Recorder, "add", releases)
    assert train(run_of(text, 10), tmp_path)[0]
    assert held and all(held)
    assert [whole_by[step] for step in (5, 6, 7)] == [[], [], []] and 4 in whole_by[9]
    saved, undisturbed = (restore(out / "checkpoints" / "4") for out in (tmp_path, trained[0]))
    assert same_arrays(saved.params, undisturbed.params) and saved.facts.position == {"examples": 16}


def test_not_a_number_stops_with_advice_and_is_not_saved(text, tmp_path):
    run = run_of(
        text, 50, optimizer=AdamW(learning_rate=1e38, global_norm_clip=None), schedule=Constant(warmup_steps=0)
    )
    with pytest.raises(DivergedError) as error:
        train(dataclasses.replace(run, checkpoint=Checkpoints(every=1)), tmp_path)
    message = str(error.value)
    assert "training diverged at step" in message
    assert "--optimizer.learning-rate" in message
    assert "--optimizer.global-norm-clip 1.0" in message
    for step in steps_in(tmp_path / "checkpoints"):
        assert all_finite(restore(tmp_path / "checkpoints" / str(step)).params)
    for line in (tmp_path / "metrics.jsonl").read_text().splitlines():
        json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))


def test_a_checkpoint_to_start_from(trained, text, tmp_path):
    directory, _ = trained
    finished, output = train(run_of(text, 2, start=str(directory)), tmp_path)
    assert finished
    assert f"start: weights of {directory / 'checkpoints' / '10'} (step 10), optimizer fresh" in output
    assert "expected at most" in output
    first = next(e for e in events(tmp_path) if e["kind"] == "train")
    assert first["step"] == 1
    assert first["cross_entropy"] < losses(directory)["train", 1] - 0.3
    assert read_facts(latest(tmp_path)).started_from == str(directory / "checkpoints" / "10")
    train(run_of(text, 3, start=str(directory)), tmp_path)
    assert read_facts(latest(tmp_path)).started_from == str(directory / "checkpoints" / "10")


def test_a_held_out_batch_that_does_not_fit_is_refused_before_the_first_step(text, tmp_path, monkeypatch):
    run = run_of(text, 2, eval=Evaluation(every=2, batch_size=4096))
    monkeypatch.setattr(loop, "available_memory", lambda device: 50 * 10**6)
    with pytest.raises(DoesNotFitError, match=r"held-out batch of 4096 sequences .*--eval.batch-size"):
        train(run, tmp_path)
    assert not losses(tmp_path)
    larger = dataclasses.replace(run, eval=Evaluation(every=2, batch_size=8))
    assert train(larger, tmp_path)[0]
    assert train(run_of(text, 2, eval=Evaluation(every=2)), tmp_path / "b")[0]
    assert losses(tmp_path)["eval", 2] == pytest.approx(losses(tmp_path / "b")["eval", 2], rel=1e-6)


SKIPS = {
    "stop": {"optimizer": Adafactor()},
    "elements": {"optimizer": Adafactor(skip_nan_updates=True)},
    "step": {"stopping": Stopping(nonfinite="skip")},
}


@pytest.mark.parametrize("skip", list(SKIPS))
def test_one_step_without_a_number_ends_a_run_or_is_left_out_as_asked(text, tmp_path, monkeypatch, skip):
    run = run_of(text, 5, checkpoint=Checkpoints(every=1, keep=9), **SKIPS[skip])
    third = open_data(run.resolve(), tmp_path).train.batch(2 * run.batch_size, run.batch_size)
    whole = gradients.loss_and_metrics

    def broken(params, config, loss, batch, *more):
        value, sums = whole(params, config, loss, batch, *more)
        same = jnp.all(batch["encoder_input_tokens"] == third["encoder_input_tokens"])
        return value * jnp.where(same, jnp.nan, 1.0), sums

    monkeypatch.setattr(gradients, "loss_and_metrics", broken)
    if skip == "stop":
        with pytest.raises(DivergedError, match=r"step 3: the loss is nan.*/[12], and .*--stopping.nonfinite skip"):
            train(run, tmp_path)
        assert all_finite(restore(latest(tmp_path)).params) and latest(tmp_path).name == "2"
        return
    finished, output = train(run, tmp_path)
    assert finished and "warning: step 3: the loss is nan; NaN updates are left out" in output
    second, third, last = (restore(tmp_path / "checkpoints" / name) for name in ("2", "3", "5"))
    assert same_arrays(second.params, third.params) and not same_arrays(third.params, last.params)
    assert [e["skipped"] for e in events(tmp_path) if e["kind"] == "train"] == [0, 0, 1, 1, 1]
    assert third.facts.skipped == {"total": 1, "in_a_row": 1} and last.facts.skipped == {"total": 1, "in_a_row": 0}
    assert third.facts.loss is None and last.facts.loss is not None and all_finite(last.params)


def test_a_first_loss_outside_the_band_warns(text, tmp_path, monkeypatch):
    monkeypatch.setattr(first_state, "expected_initial_loss", lambda model, loss: (8.0, 9.0))
    _, output = train(run_of(text, 2), tmp_path)
    assert "warning: first loss 6." in output
    assert "leaks into the inputs" in output


def test_a_damaged_checkpoint_is_never_passed_over(text, tmp_path):
    train(run_of(text, 8), tmp_path)
    path = tmp_path / "checkpoints" / "8"
    victim = max((p for p in path.rglob("*") if p.is_file()), key=lambda p: p.stat().st_size)
    victim.write_bytes(victim.read_bytes()[:100])
    with pytest.raises(CheckpointError, match=f"{victim} has 100 bytes.*step 4, is whole") as error:
        train(run_of(text, 8), tmp_path)
    assert f"mv {path} {path}.damaged" in str(error.value)
    path.rename(f"{path}.damaged")
    before = losses(tmp_path)
    _, output = train(run_of(text, 8), tmp_path)
    assert "resuming after step 4" in output
    assert losses(tmp_path) == before


@pytest.mark.parametrize("at", [1, 3])
def test_a_stop_in_the_middle_of_an_evaluation_loses_none(trained, text, tmp_path, monkeypatch, at):
    """Steps 4, 8 and 10 are evaluated: the first, or the last of all, is interrupted."""
    original, calls = heldout.heldout_metrics, []

    def interrupted(step, params, batches, put):
        calls.append(step)
        if len(calls) in (at, at + 1):  # the evaluation, and its repetition after the first resume
            os.kill(os.getpid(), signal.SIGTERM)
        return original(step, params, batches, put)

    monkeypatch.setattr(heldout, "heldout_metrics", interrupted)
    finished, output = train(run_of(text, 10), tmp_path)
    assert not finished
    assert latest(tmp_path).name == {1: "4", 3: "10"}[at]
    assert f"stopped after step {latest(tmp_path).name}, which is saved; the same command goes on" in output
    assert "stopped before" not in output
    finished, output = train(run_of(text, 10), tmp_path)
    assert not finished
    assert f"stopped with nothing new since step {latest(tmp_path).name}" in output
    finished, _ = train(run_of(text, 10), tmp_path)
    assert finished
    assert losses(tmp_path) == losses(trained[0])
    # The checkpoint of that step knows the loss that was made up for, and so does whoever asks for the best.
    measured = {step: read_facts(tmp_path / "checkpoints" / str(step)).heldout_loss for step in (4, 8, 10)}
    assert measured == {step: losses(tmp_path)["eval", step] for step in (4, 8, 10)}
    assert open_checkpoint(tmp_path, "best").name == open_checkpoint(trained[0], "best").name


@pytest.mark.parametrize(("module", "where"), [(first_state, "drawn_weights"), (loop, "make_train_step")])
def test_a_stop_breaks_into_no_tracing(text, tmp_path, monkeypatch, module, where):
    """An exception out of a signal's handler, while JAX traces or compiles, crashes Python when the process ends."""
    original, unbroken = getattr(module, where), []

    def stopped(*arguments, **more):
        if not unbroken:
            os.kill(os.getpid(), signal.SIGINT)
        made = original(*arguments, **more)
        unbroken.append(where)
        return made

    monkeypatch.setattr(module, where, stopped)
    finished, output = train(run_of(text, 4), tmp_path)
    assert not finished
    assert unbroken
    assert "stopped before the first step" in output
    assert not (tmp_path / "metrics.jsonl").exists() or not events(tmp_path)


def test_metrics_of_lost_checkpoints_are_not_cut(text, tmp_path):
    train(run_of(text, 4), tmp_path)
    before = (tmp_path / "metrics.jsonl").read_bytes()
    shutil.rmtree(tmp_path / "checkpoints")
    with pytest.raises(CheckpointError, match="has trained 4 steps"):
        train(run_of(text, 4), tmp_path)
    assert (tmp_path / "metrics.jsonl").read_bytes() == before


def test_a_run_whose_directory_was_removed_saves_what_goes_on(text, tmp_path, monkeypatch):
    out, original = tmp_path / "out", loop.Recorder.add

    def removes(recorder, step, metrics):
        if step == 3 and out.is_dir():
            shutil.rmtree(out)
        original(recorder, step, metrics)

    monkeypatch.setattr(loop.Recorder, "add", removes)
    train(run_of(text, 4), out)
    assert (out / "run.json").is_file()
    assert train(run_of(text, 6), out)[0]
    assert latest(out).name == "6"


def test_a_stop_during_the_last_save_is_not_forgotten(text, tmp_path, monkeypatch):
    """The last step is done, but what a command does after it (results, an export) must wait for the next time."""
    original = checkpoints.seal

    def stopped(path):
        if path.name.startswith("4"):
            os.kill(os.getpid(), signal.SIGTERM)
        return original(path)

    monkeypatch.setattr(checkpoints, "seal", stopped)
    finished, _ = train(run_of(text, 4), tmp_path)
    assert not finished
    restore(latest(tmp_path))
    finished, output = train(run_of(text, 4), tmp_path)
    assert finished
    assert "all 4 steps are done" in output


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"start": "runs/tpyo"}, "runs/tpyo: does not exist"),
        ({"schedule": Factors("constant * nonsense")}, "nonsense"),
    ],
)
def test_what_needs_no_data_is_refused_before_they_are_read(text, tmp_path, changes, words):
    with pytest.raises(ValueError, match=words):
        train(run_of(text, 4, **changes), tmp_path)
    assert not (tmp_path / "stores").exists()


def test_checkpoints_that_cannot_be_the_best_are_said(text, tmp_path):
    often = Checkpoints(every=2)
    _, output = train(run_of(text, 6, checkpoint=often, eval=Evaluation(every=3, max_batches=1)), tmp_path / "a")
    assert "warning: checkpoints are written every 2 steps and the held-out loss is measured every 3" in output
    never = Checkpoints(every=2, keep_best=0)
    _, output = train(run_of(text, 6, checkpoint=never, eval=Evaluation(every=3, max_batches=1)), tmp_path / "b")
    assert "warning" not in output


def test_two_at_once_are_refused(text, tmp_path):
    with directory_lock(tmp_path), pytest.raises(DirectoryInUseError):
        train(run_of(text, 2), tmp_path)


def test_without_a_held_out_part(text, tmp_path):
    task = run_of(text, 2).task
    task = dataclasses.replace(task, source=dataclasses.replace(task.source, heldout_share=0.0))
    finished, output = train(run_of(text, 5, task=task, log=Logging(every=2, tensorboard=False)), tmp_path)
    assert finished
    assert "none held out" in output
    assert list(losses(tmp_path)) == [("train", s) for s in (1, 2, 4, 5)]
    assert not (tmp_path / "tensorboard").exists()


def test_the_loop_reads_from_top_to_bottom():
    source = inspect.getsource(loop)
    assert len(source.splitlines()) <= 250
    assert source.count("# ----") >= 6
