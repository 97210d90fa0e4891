import json
import math

import numpy as np
import pytest

from spanloom.pipeline.durable import StorageError
from spanloom.training.loggers import Loggers, MetricsFile, TensorBoard, cut_back, read_events


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def write_run(path, first, last, resume_step=0):
    """As the loop writes: a start line, training lines, an evaluation every second step."""
    file = MetricsFile(path, resume_step, clock=lambda: 0.0)
    file.write("start", resume_step, {})
    for step in range(first, last + 1):
        file.write("train", step, {"loss": step / 3})
        if step % 2 == 0:
            file.write("parameters", step, {"scale": {"weight": 1.0}})
            file.write("eval", step, {"task": "t", "heldout_loss": 1.0})
    file.close()


@pytest.mark.short
def test_float32_survives_to_the_last_bit(tmp_path):
    path = tmp_path / "metrics.jsonl"
    values = np.random.default_rng(0).standard_normal(1000).astype(np.float32)
    file = MetricsFile(path)
    for step, value in enumerate(values):
        file.write("train", step, {"loss": float(value)})
    read = np.array([line["loss"] for line in lines(path)], np.float32)
    assert read.tobytes() == values.tobytes()


@pytest.mark.short
def test_lines_are_on_disk_at_once_and_every_one_is_json(tmp_path):
    path = tmp_path / "metrics.jsonl"
    file = MetricsFile(path, clock=lambda: 1_800_000_000.123456)
    file.write("train", 1, {"loss": math.nan, "parts": {"accuracy": math.inf}, "text": "näh"})
    written = '{"kind": "train", "step": 1, "time": 1800000000.123, "loss": null, "parts": {"accuracy": null}, '
    assert path.read_text() == written + '"text": "näh"}\n'


@pytest.mark.short
def test_a_kind_task_and_step_comes_once(tmp_path):
    file = MetricsFile(tmp_path / "metrics.jsonl")
    file.write("eval", 1, {"task": "a"})
    file.write("eval", 1, {"task": "b"})
    with pytest.raises(ValueError, match="comes once"):
        file.write("eval", 1, {"task": "a"})
    assert file.has("eval", "b", 1)
    assert not file.has("eval", "c", 1)


@pytest.mark.short
@pytest.mark.parametrize("killed_at", range(4, 10))
@pytest.mark.parametrize("torn", [b"", b'{"kind": "train", "st', b"\xff\x00"])
def test_a_resume_writes_what_a_straight_run_writes(tmp_path, killed_at, torn):
    path, straight = tmp_path / "metrics.jsonl", tmp_path / "straight.jsonl"
    write_run(path, 1, killed_at)
    with path.open("ab") as file:
        file.write(torn)
    write_run(path, 5, 10, resume_step=4)
    write_run(straight, 1, 10)
    assert [x for x in lines(path) if x["kind"] != "start"] == [x for x in lines(straight) if x["kind"] != "start"]
    assert [x["step"] for x in lines(path) if x["kind"] == "start"] == [0, 4]
    write_run(path, 5, 10, resume_step=4)  # the same checkpoint once more
    assert [x["step"] for x in lines(path) if x["kind"] == "start"] == [0, 4]


@pytest.mark.short
def test_a_run_that_begins_again_begins_with_an_empty_file(tmp_path):
    path = tmp_path / "metrics.jsonl"
    write_run(path, 1, 5)
    assert cut_back(path, 0) == set()
    assert path.read_text() == ""


def kept_by_reading_all(content, step):
    """What stays, found the slow way."""
    kept = {}
    for line in content.splitlines():
        try:
            event = json.loads(line)
        except ValueError:
            continue
        key = (event["kind"], event.get("task"), event["step"])
        if key[2] < step or (key[2] == step and key[0] in ("train", "eval", "parameters")):
            kept.setdefault(key, line + b"\n")
    return b"".join(kept.values())


GARBAGE = [
    b'{"kind": "train", "step": Infinity}',
    b'{"kind": "train", "step": NaN}',
    b'{"kind": "train", "step": "9"}',
    b'{"kind": "train", "step": true}',
    b'{"kind": [], "step": 9}',
    b'{"kind": "eval", "task": {}, "step": 9}',
    b"[" * 20_000,
    b"[9]",
    b"9",
]
"""Lines that no run writes: each is dropped, wherever it stands."""


@pytest.mark.short
@pytest.mark.parametrize("garbage", GARBAGE)
def test_garbage_is_no_event(tmp_path, garbage):
    path = tmp_path / "metrics.jsonl"
    assert list(read_events(path)) == []
    good = b'{"kind": "train", "step": 1}\n{"kind": "eval", "task": "a", "step": 2}\n'
    path.write_bytes(garbage + b"\n" + good + garbage)
    assert list(read_events(path)) == [{"kind": "train", "step": 1}, {"kind": "eval", "task": "a", "step": 2}]
    assert cut_back(path, 2) == {("eval", "a")}


@pytest.mark.short
@pytest.mark.parametrize("block", [1, 7, 64, 1000, 2**16])
@pytest.mark.parametrize("torn", [b"", b'{"kind": "train", "st', b"\x00" * 100, b'{"kind": "eval", "step": 9}'])
def test_the_end_alone_tells_what_stays(tmp_path, monkeypatch, block, torn):
    path = tmp_path / "metrics.jsonl"
    monkeypatch.setattr("spanloom.training.loggers._BLOCK", block)
    for step in range(1, 12):
        write_run(path, 1, 4)
        write_run(path, 5, 9, resume_step=4)
        content = path.read_bytes() + torn
        path.write_bytes(content)
        keys = cut_back(path, step)
        assert path.read_bytes() == kept_by_reading_all(content, step)
        assert keys == {(x["kind"], x.get("task")) for x in lines(path) if x["step"] == step}


@pytest.mark.short
def test_a_resume_costs_the_same_after_many_steps(tmp_path, monkeypatch):
    from spanloom.training import loggers

    path, looked_at, original = tmp_path / "metrics.jsonl", [], loggers._key
    path.write_text("".join(json.dumps({"kind": "train", "step": step}) + "\n" for step in range(1, 200_001)))
    monkeypatch.setattr(loggers, "_key", lambda line: looked_at.append(line) or original(line))
    file = MetricsFile(path, 199_990)
    assert len(looked_at) < 50
    assert file.has("train", None, 199_990)
    assert len(path.read_bytes().splitlines()) == 199_990
    with pytest.raises(ValueError, match="steps never go back"):
        file.write("train", 199_989, {})
    with pytest.raises(ValueError, match="not kept in memory"):
        file.has("train", None, 199_989)


@pytest.mark.short
def test_other_processes_know_what_stayed_without_reading_all(tmp_path, monkeypatch):
    path = tmp_path / "metrics.jsonl"
    write_run(path, 1, 30)
    first = MetricsFile(path, 28)
    monkeypatch.setattr("spanloom.training.loggers.read_events", None)
    other = MetricsFile(path, 28, writes=False)
    for kind, task in (("train", None), ("parameters", None), ("eval", "t"), ("start", None)):
        assert other.has(kind, task, 28) == first.has(kind, task, 28)
    assert other.has("train", None, 28) and other.has("eval", "t", 28)
    other.write("train", 29, {"loss": 1.0})
    assert other.has("train", None, 29) and [line["step"] for line in lines(path)][-1] == 28


@pytest.mark.short
def test_a_kill_while_the_file_is_cut_loses_nothing(tmp_path):
    """What stays is written over what goes; the rest of that is cut off then, or by the next start."""
    path, straight = tmp_path / "metrics.jsonl", tmp_path / "straight.jsonl"
    write_run(path, 1, 4)
    write_run(path, 5, 6, resume_step=4)
    before = path.read_bytes()
    cut_back(path, 4)
    after = path.read_bytes()
    assert not before.startswith(after + b"x")
    path.write_bytes(after + before[len(after) :])
    write_run(path, 5, 10, resume_step=4)
    write_run(straight, 1, 10)
    assert [x for x in lines(path) if x["kind"] != "start"] == [x for x in lines(straight) if x["kind"] != "start"]


def test_a_full_disk_is_said(tmp_path, monkeypatch):
    file = MetricsFile(tmp_path / "metrics.jsonl")

    class Full:
        def write(self, text):
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(file, "_file", Full())
    with pytest.raises(StorageError, match="no room"):
        file.write("train", 1, {})


def scalars(directory):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    accumulator = EventAccumulator(str(directory), size_guidance={"scalars": 0})
    accumulator.Reload()
    return {tag: [(e.step, e.value) for e in accumulator.Scalars(tag)] for tag in accumulator.Tags()["scalars"]}


def test_tensorboard_reads_the_events_and_hides_what_a_resume_wrote_again(tmp_path):
    pytest.importorskip("tensorboard")
    for first, last, resume_step in [(1, 7, 0), (5, 9, 4)]:
        logger = Loggers(TensorBoard(tmp_path, resume_step))
        for step in range(first, last + 1):
            logger.write("train", step, {"loss": step + resume_step / 100, "note": "text"})
        logger.write("eval", last, {"task": "t", "heldout_loss": 1.0})
        logger.write("parameters", last, {"encoder/scale": {"weight": 1.0, "update": math.inf}})
        logger.write("start", last, {"parameters": 5})
        logger.close()
    found = scalars(tmp_path)
    parameters = {"parameters/encoder/scale/weight", "parameters/encoder/scale/update"}
    assert set(found) == {"train/loss", "eval/t/heldout_loss", *parameters}
    assert [step for step, _ in found["train/loss"]] == list(range(1, 10))
    assert found["train/loss"][4][1] == pytest.approx(5.04)
    assert [step for step, _ in found["eval/t/heldout_loss"]] == [9]
