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


def metrics(loss, norm=1.0):
    tokens = {"input_tokens": jnp.float32(70), "target_tokens": jnp.float32(30)}
    return {"loss": jnp.float32(loss), "grad_norm": jnp.float32(norm), **tokens}


def recorder(listener, log_every=2, last_step=5, **more):
    return Recorder(
        listener,
        listener,
        Speeds(1e9, 1e12),
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
    assert values["mfu"] == pytest.approx(1e9 / 1e12 / values["seconds_per_step"])
    assert recording.last["loss"] == 5


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
