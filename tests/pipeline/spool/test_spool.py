"""Whoever makes the shards of a stream, and however often they are killed, the sequence of examples is the same."""

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import stream_functions
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pipeline_data import tiny_run

from spanloom.pipeline.data import Data, open_data
from spanloom.pipeline.eras import Resumption
from spanloom.pipeline.examples import DataError
from spanloom.pipeline.positions import Share
from spanloom.pipeline.prefetch import StepReader, prefetch
from spanloom.pipeline.spool.needed import drop_unneeded, first_needed, standings
from spanloom.pipeline.spool.spool import ChangedStreamError
from spanloom.settings.function import Function
from spanloom.settings.mixture import BySize, Mixture, Weighted
from spanloom.settings.objectives import SpanCorruption, Supervised
from spanloom.settings.packing import Packed
from spanloom.settings.row_sources import HuggingFaceDataset, PythonExamples, RowFiles
from spanloom.settings.run import Run
from spanloom.settings.task import Task
from spanloom.tasks.read_report import BadInputError

TEXT = SpanCorruption(inputs_length=32, mean_span_length=3.0)
PAIRS = Supervised(inputs_length=16, targets_length=24, too_long="trim")
ROWS = 400


def source(function, *, shard_rows: int = 40, heldout_share: float = 0.05, **more) -> PythonExamples:
    return PythonExamples(
        function, streaming=True, shard_rows=shard_rows, heldout_take=200, heldout_share=heldout_share, **more
    )


def run_of(rows, objective=TEXT, **changes) -> Run:
    return replace(tiny_run(Task("s", rows, objective=objective)), **changes)


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> HuggingFaceDataset:
    folder = tmp_path_factory.mktemp("files")
    for part in range(3):
        rows = (stream_functions.row(number) for number in range(part * 50, part * 50 + 50))
        (folder / f"part-{part}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return HuggingFaceDataset(str(folder), streaming=True, shard_rows=40, heldout_take=100, heldout_share=0.05)


@pytest.fixture(scope="module", params=["endless", "skipping", "restoring", "ending", "files"])
def rows(request, files):
    if request.param == "files":
        return files
    function = getattr(stream_functions, request.param)
    if request.param == "ending":
        return source(Function(f"{function.__module__}:ending", {"rows": 110}))
    return source(function)


@pytest.fixture(scope="module", params=["text", "pairs"])
def run(request, rows) -> Run:
    return run_of(rows, TEXT if request.param == "text" else PAIRS)


def taken(data: Data, count: int, batch_size: int = 20) -> tuple[dict[str, np.ndarray], dict[str, int]]:
    position, batches = data.train.start, []
    for _ in range(count // batch_size):
        batch, position = data.train.take(position, batch_size)
        batches.append(batch)
    return {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}, position


def same(one, other) -> None:
    assert {*one} == {*other}
    for name in one:
        np.testing.assert_array_equal(one[name], other[name])


class Killed(BaseException):
    """As if the process had ended."""


def killing(monkeypatch, after: int) -> None:
    """The so manieth flush to disk from now on is the last thing that happens."""
    left, flush = [after], os.fsync

    def fsync(descriptor):
        left[0] -= 1
        if left[0] < 0:
            raise Killed
        flush(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)


@settings(deadline=None, max_examples=6, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(draw=st.data())
def test_kills_and_restarts_never_change_the_sequence(run, tmp_path_factory, draw):
    straight, _ = taken(open_data(run, tmp_path_factory.mktemp("straight")), ROWS)
    directory = tmp_path_factory.mktemp("killed")
    position, size = 0, len(next(iter(straight.values())))
    while position < size:
        count = min(draw.draw(st.sampled_from([4, 20, 60])), size - position)
        hosts = draw.draw(st.sampled_from([1, 2, 4])) if count % 4 == 0 else 1
        with pytest.MonkeyPatch.context() as monkeypatch:
            if draw.draw(st.booleans()):
                killing(monkeypatch, draw.draw(st.integers(0, 30)))
            try:
                data = open_data(run, directory)
                parts = [data.train.take({"examples": position}, count, Share(host, hosts))[0] for host in range(hosts)]
            except Killed:
                tear(directory, draw)
                continue
        same(
            {name: np.concatenate([part[name] for part in parts]) for name in straight},
            {name: whole[position : position + count] for name, whole in straight.items()},
        )
        position += count
        if draw.draw(st.booleans()):
            drop_unneeded(data, [{"examples": position}])
            for one in data.tasks:
                kept = one.train.spool.index.kept()
                assert all(one.train.spool.index.mark(shard + 1).examples > position for shard in kept)


def tear(directory: Path, draw) -> None:
    """What a kill in the middle of a write may leave."""
    for lines in directory.glob("stores/*/*.spool/index.jsonl"):
        with lines.open("ab") as file:
            file.write(b'{"shard":3,"exam'[: draw.draw(st.integers(0, 16))])


@pytest.mark.parametrize("name", ["endless", "restoring"])
def test_packed_rows_go_on_in_another_directory_from_what_a_checkpoint_says(name, tmp_path):
    rows = source(getattr(stream_functions, name), shard_rows=3000)
    run = run_of(rows, PAIRS, packing=Packed(inputs_length=64, targets_length=64))
    data = open_data(run, tmp_path / "one")
    first, position = taken(data, 100, 50)
    while position["window"] < 8:
        position = data.train.skip(position, 4000)
    after, _ = data.train.take(position, 50)
    stands = standings(data, position)
    assert json.loads(json.dumps(stands)) == stands and stands["s"]["mark"]["shard"] > 0
    other = open_data(run, tmp_path / "two", resumption=Resumption(data.eras, position, stands))
    index = other.tasks[0].train.spool.index
    assert index.base.shard == stands["s"]["mark"]["shard"]
    same(other.train.take(position, 50)[0], after)
    with pytest.raises(DataError, match=r"goes on in .* from example .* of another directory"):
        other.train.take(other.train.start, 50)
    drop_unneeded(data, [position])
    same(data.train.take(position, 50)[0], after)
    same(
        open_data(run, tmp_path / "one").train.take({"window": 0, "row": 0}, 50)[0],
        {n: a[:50] for n, a in first.items()},
    )


def test_loader_processes_give_the_same_batches(rows, tmp_path):
    run = run_of(rows)
    straight, _ = taken(open_data(run, tmp_path / "one"), 200)
    data = open_data(run, tmp_path / "two")
    reader = StepReader(data.train, data.train.start, 0, 20)
    batches = [batch for batch, _ in prefetch(reader, 0, 10, workers=2)]
    same({name: np.concatenate([batch[name] for batch in batches]) for name in straight}, straight)


def test_no_example_is_lost_or_doubled_and_noise_differs_in_every_pass(tmp_path):
    rows = source(Function("stream_functions:ending", {"rows": 100}), heldout_share=0.0)
    run, said = run_of(rows, PAIRS), []
    data = open_data(run, tmp_path, warn=said.append)
    drawn = data.tasks[0].train.drawn(0, 300)
    assert sorted(one.number for one in drawn) == list(range(300))
    inputs = [bytes((one.inputs[:-1] - 3).astype(np.uint8)).decode() for one in drawn]
    expected = sorted(f"in {number}" for number in range(100))
    passes = [inputs[first : first + 100] for first in (0, 100, 200)]
    assert all(sorted(one) == expected for one in passes)
    assert passes[0] != passes[1] != passes[2] != passes[0]
    assert len({one.key for one in drawn}) == 300
    index = data.tasks[0].train.spool.index
    assert [index.mark(shard).place.kept for shard in range(index.last.shard + 1)] == [
        0,
        40,
        80,
        100,
        140,
        180,
        200,
        240,
        280,
        300,
    ]
    assert len(said) == 1 and "ended after 100 rows and begins again" in said[0]


def test_what_is_held_out_is_never_trained_on(tmp_path):
    run = run_of(source(stream_functions.endless, heldout_share=0.2), PAIRS)
    data = open_data(run, tmp_path)
    assert 20 < data.heldout["s"].num_examples < 60
    heldout = {bytes(one.inputs) for one in data.heldout["s"].text_examples(1000)}
    train = {bytes(one.inputs) for one in data.tasks[0].train.drawn(0, 400)}
    assert not heldout & train
    named = run_of(source(Function("stream_functions:endless", {}), split="train", heldout_split="other"), PAIRS)
    data = open_data(named, tmp_path / "named")
    assert data.heldout["s"].num_examples == 200
    assert len({one.number for one in data.tasks[0].train.drawn(0, 80)}) == 80


def test_streams_in_mixtures_and_what_goes_by_size_is_refused(tmp_path):
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(stream_functions.row(n)) + "\n" for n in range(90)))
    stream = Task("stream", source(stream_functions.endless), objective=PAIRS)
    whole = Task("whole", RowFiles((str(tmp_path / "pairs.jsonl"),), heldout_share=0), objective=PAIRS)
    mixture = Mixture("both", (Weighted(stream, 3.0), Weighted(whole, 1.0)))
    run = replace(tiny_run(stream), task=mixture)
    data = open_data(run, tmp_path)
    straight, _ = taken(data, 9000, 3000)
    position = {"examples": 8000}
    assert first_needed(data, position) == {"stream": 3072}
    drop_unneeded(data, [position])
    index = data.tasks[0].train.spool.index
    assert index.mark(index.kept()[0]).examples <= 3072 < index.mark(index.kept()[0] + 1).examples
    again = open_data(run, tmp_path)
    assert index.kept()[0] > 70
    same(again.train.take(position, 1000)[0], {name: rows[8000:] for name, rows in straight.items()})
    for part, message in (
        (
            Weighted(stream, BySize()),
            "rate of task 'stream' in mixture 'both' goes by its size, but its rows are a stream",
        ),
        (Weighted(stream, 1.0, epochs=2), "task 'stream' in mixture 'both' is to be used for a number of epochs"),
    ):
        with pytest.raises(DataError, match=message):
            open_data(replace(run, task=replace(mixture, parts=(part, Weighted(whole, 1.0)))), tmp_path)


def test_a_shard_that_is_gone_or_damaged_is_made_again_from_the_stream(rows, tmp_path):
    run = run_of(rows)
    straight, _ = taken(open_data(run, tmp_path), 200)
    store = tmp_path / "stores/s/train.spool/store"
    before = {path.name: path.read_bytes() for path in store.iterdir()}
    (store / "shard-00000.arrow").unlink()
    (store / "shard-00001.arrow").write_bytes(before["shard-00001.arrow"][:-9])
    altered = bytearray(before["shard-00002.arrow"])
    altered[-40] ^= 1
    (store / "shard-00002.arrow").write_bytes(altered)
    same(taken(open_data(run, tmp_path), 200)[0], straight)
    assert {path.name: path.read_bytes() for path in store.iterdir()} == before


def test_a_stream_that_gives_other_rows_is_said_or_refused(tmp_path):
    seed = tmp_path / "seed.json"
    seed.write_text("0")
    run, said = run_of(source(Function("stream_functions:from_file", {"path": str(seed)}))), []
    straight, _ = taken(open_data(run, tmp_path), 100)
    seed.write_text("1")
    data = open_data(run, tmp_path, warn=said.append)
    same(taken(data, 100)[0], straight)
    assert not said  # nothing was asked of the stream
    data.train.batch(100, 200)
    assert len(said) == 1 and "gives other rows than before: the last 40 that are kept do not come again" in said[0]
    drop_unneeded(data, [{"examples": 150}])
    with pytest.raises(ChangedStreamError, match=r"rows of shard 0 \(from row 0 on\) are wanted again, and are others"):
        open_data(run, tmp_path).train.batch(0, 10)


def test_changed_settings_begin_the_spool_anew_with_the_reason(tmp_path):
    said = []
    run = run_of(source(stream_functions.endless))
    taken(open_data(run, tmp_path, warn=said.append), 100)
    other = run_of(source(stream_functions.endless, shard_rows=50))
    data = open_data(other, tmp_path, warn=said.append)
    assert len(said) == 1 and "begins anew: changed: " in said[0] and "shard_rows 40 -> 50" in said[0]
    assert data.tasks[0].train.spool.index.last.shard == 1
    assert len(list((tmp_path / "stores/s/train.spool/store").iterdir())) == 1


def test_a_long_way_to_where_a_run_goes_on_keeps_no_shard_that_nobody_needs(tmp_path):
    run = run_of(source(stream_functions.endless))
    straight, _ = taken(open_data(run, tmp_path / "one"), 400)
    data = open_data(run, tmp_path / "two")
    drop_unneeded(data, [{"examples": 380}])
    same(data.train.batch(380, 20), {name: whole[380:400] for name, whole in straight.items()})
    assert len(data.tasks[0].train.spool.index.kept()) <= 2


def test_bad_streams_are_refused_with_what_to_do(tmp_path):
    def refused(rows, match, objective=TEXT, kind=BadInputError, **changes):
        shutil.rmtree(tmp_path / "stores", ignore_errors=True)
        run = tiny_run(replace(Task("s", rows, objective=objective), **changes))
        with pytest.raises(kind, match=match):
            open_data(run, tmp_path).train.batch(0, 100)

    refused(source(Function("stream_functions:failing", {"after": 60})), "fails at row 60: OSError: the line is dead")
    refused(source(Function("stream_functions:ending", {"rows": 0}), heldout_share=0.0), "the stream has no row")
    refused(source(stream_functions.endless), "set task.objective.inputs_length and", Supervised(), DataError)
    refused(
        source(stream_functions.endless),
        r"in shard 0 of its stream: .*too_long to trim",
        Supervised(inputs_length=16, targets_length=4),
        DataError,
    )
    refused(source(stream_functions.endless), "deduplicate remembers every row", TEXT, DataError, deduplicate=("text",))
    refused(
        source(stream_functions.endless),
        "nothing is left of 16 shards",
        TEXT,
        DataError,
        preprocessors=(Function("stream_functions:nothing", {}),),
    )
    refused(source(stream_functions.endless, shard_rows=0), "shard_rows: 0 is no number of rows")
