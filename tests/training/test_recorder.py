import math

import jax.numpy as jnp
import pytest

from spanloom.training.recorder import Recorder, Speeds
from spanloom.training.skipped import Skipped

MOST_SKIPPED = 10


class Listener:
    def __init__(self):
        self.events, self.paces, self.warned = [], [], []

    def write(self, kind, step, values):
        self.events.append((kind, step, dict(values)))

    def warn(self, text):
        self.warned.append(text)

    def advance(self, pace, log_line):
        self.paces.append((pace.step, log_line))
        self.pace = pace


def metrics(loss, norm=1.0):
    tokens = {"input_tokens": jnp.float32(70), "target_tokens": jnp.float32(30)}
    rate = {"learning_rate": jnp.float32(0.25)}
    return {"loss": jnp.float32(loss), "grad_norm": jnp.float32(norm), **tokens, **rate}


def recorder(listener, log_every=2, last_step=5, flops=1e3, peak=1e12, measure=None, **more):
    return Recorder(
        listener,
        listener,
        Speeds(flops, peak, {"encoder": 80, "decoder": 40}, measure),
        log_every=log_every,
        last_step=last_step,
        diverged=lambda step, what: FloatingPointError(f"{step}: {what}"),
        **more,
    )


def test_one_step_late_and_every_so_many_steps():
    listener = Listener()
    recording = recorder(listener)
    for step in range(1, 6):
        recording.before_step()
        recording.add(step, metrics(step))
        assert [s for s, _ in listener.paces] == list(range(1, step))
    recording.flush()
    recording.flush()
    assert listener.paces == [(1, True), (2, True), (3, False), (4, True), (5, True)]
    assert [(kind, step) for kind, step, _ in listener.events] == [("train", s) for s in (1, 2, 4, 5)]
    values = listener.events[2][2]
    assert values["tokens_per_second"] == pytest.approx(100 / values["seconds_per_step"])
    assert values["flops_per_second"] == pytest.approx(1e3 / values["seconds_per_step"])
    assert values["mfu"] == pytest.approx(values["flops_per_second"] / 1e12)
    assert recording.last["loss"] == 5


def test_no_step_is_faster_than_the_machine_whose_peak_was_measured_while_it_was_busy():
    listener = Listener()
    recording = recorder(listener, log_every=1, flops=1e9, peak=1.0)
    for step in range(1, 6):
        recording.before_step()
        recording.add(step, metrics(step))
    recording.flush()
    lines = [values for _, _, values in listener.events]
    assert all(0 < line["mfu"] <= 1 for line in lines) and 0 < listener.pace.mfu <= 1
    fastest = max(line["flops_per_second"] for line in lines)
    assert lines[-1]["mfu"] * fastest <= lines[-1]["flops_per_second"] * (1 + 1e-9)


def test_the_peak_is_measured_again_where_steps_pause_and_the_highest_counts(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr("spanloom.training.recorder.time.perf_counter", lambda: clock[0])
    figures, listener = iter([4e9, 1e9]), Listener()
    recording = recorder(listener, log_every=1, last_step=9, flops=1e9, peak=2e9, measure=lambda: next(figures))
    for step, (pause, peak) in enumerate([(0, 2e9), (30, 2e9), (31, 4e9), (10, 4e9), (70, 4e9)], 1):
        clock[0] += pause
        recording.before_step()
        clock[0] += 1.0
        recording.add(step, metrics(step))
        recording.flush()
        assert listener.events[-1][2]["mfu"] == pytest.approx(1e9 / peak), step
    assert next(figures, None) is None


def test_a_line_has_paces_of_both_sides_the_split_of_the_time_memory_and_what_is_left():
    listener = Listener()
    recording = recorder(listener, last_step=9)
    for step, _ in zip(range(1, 5), recording.waited_for(range(9)), strict=False):
        recording.before_step()
        recording.add(step, metrics(step))
        with recording.during("eval"):
            recording.heldout_loss = 7.5
    recording.flush()
    values = listener.events[-1][2]
    seconds = values["seconds_per_step"]
    assert values["encoder_tokens_per_second"] == pytest.approx(70 / seconds)
    assert values["decoder_tokens_per_second"] == pytest.approx(30 / seconds)
    assert values["encoder_tokens_per_second_padded"] == pytest.approx(80 / seconds)
    assert values["decoder_tokens_per_second_padded"] == pytest.approx(40 / seconds)
    shares = [values[name] for name in ("data_wait", "step_time", "checkpoint_time", "eval_time")]
    assert sum(shares) == pytest.approx(1) and all(share >= 0 for share in shares)
    assert values["learning_rate"] == 0.25 and values["grad_norm"] == 1
    assert 2**20 < values["memory_in_use"] <= values["memory_peak"]
    assert values["eta"] > 0
    told = listener.pace
    assert (told.learning_rate, told.heldout_loss, told.memory) == (0.25, 7.5, values["memory_in_use"])


def test_what_parameters_are_is_an_event_of_its_own_step_by_layer():
    listener = Listener()
    recording = recorder(listener, log_every=100)
    for step in range(1, 4):
        stacked = {"encoder/layers/scale": jnp.array([1.0, 2.0]), "head": jnp.float32(3)}
        measured = dict.fromkeys(("weight", "gradient", "update"), stacked) if step == 2 else None
        recording.add(step, {**metrics(step), **({"parameters": measured} if measured else {})})
    recording.flush()
    assert [(kind, step) for kind, step, _ in listener.events] == [("train", 1), ("parameters", 2)]
    assert listener.events[1][2] == {
        "encoder/layers_0/scale": {"weight": 1, "gradient": 1, "update": 1},
        "encoder/layers_1/scale": {"weight": 2, "gradient": 2, "update": 2},
        "head": {"weight": 3, "gradient": 3, "update": 3},
    }


@pytest.mark.parametrize(("bad", "name"), [(metrics(math.nan), "loss"), (metrics(1, math.inf), "grad norm")])
def test_not_a_number_stops(bad, name):
    listener = Listener()
    recording = recorder(listener)
    recording.add(1, metrics(1))
    recording.add(2, bad)
    with pytest.raises(FloatingPointError, match=f"2: the {name}"):
        recording.flush()
    assert [kind for kind, _, _ in listener.events] == ["train", "diverged"]


def test_where_such_updates_are_left_out_only_a_loss_that_stays_no_number_stops():
    listener = Listener()
    recording = recorder(listener, last_step=100, most_skipped=MOST_SKIPPED, skipped=Skipped(5))
    bad = [*range(3, 3 + MOST_SKIPPED), *range(20, 21 + MOST_SKIPPED)]
    for step in range(1, bad[-1] + 1):
        recording.add(step, metrics(math.nan if step in bad else 1))
    with pytest.raises(FloatingPointError, match=f"{bad[-1]}: the loss is nan"):
        recording.flush()
    assert len(listener.warned) == 2 * MOST_SKIPPED
    assert listener.warned[1].startswith("step 4: the loss is nan") and "2 in a row" in listener.warned[1]
    assert "1 in a row, 16 in all" in listener.warned[MOST_SKIPPED]
    counts = {step: values["skipped"] for kind, step, values in listener.events if kind == "train"}
    assert (counts[2], counts[4], counts[14], counts[22]) == (5, 7, 15, 18)
