"""However the work is split and wherever it is stopped, a run sees the same rows."""

import json
import pickle
from dataclasses import replace

import numpy as np
import pytest
from calls import calls_of
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pipeline_data import pair_task, sentences, text_task, tiny_run

from spanloom.pipeline.data import open_data
from spanloom.pipeline.positions import WHOLE, Share
from spanloom.pipeline.prefetch import StepReader, prefetch
from spanloom.settings.mixture import Mixture, Weighted
from spanloom.settings.packing import Packed, Unpacked

pytestmark = pytest.mark.short

BATCH = 12
STEPS = 24


@pytest.fixture(scope="module")
def kinds(tmp_path_factory):
    """The training rows of text alone, of a mixture, and of a mixture that is packed, with what they are in all."""
    directory = tmp_path_factory.mktemp("data")
    texts, pairs = directory / "texts.jsonl", directory / "pairs.tsv"
    texts.write_text("".join(json.dumps({"text": text}) + "\n" for text in sentences(90)))
    pairs.write_text("inputs\ttargets\n" + "".join(f"{'x' * (i % 30)}{i}\t{i * i}\n" for i in range(120)))
    text, count = text_task(str(texts)), pair_task(str(pairs))
    mixture = Mixture("all", (Weighted(text, 1.0), Weighted(count, 4.0)))
    runs = {
        "text": tiny_run(text),
        "mixture": tiny_run(mixture),
        "packed": replace(tiny_run(mixture), packing=Packed(96, 64)),
        "packed text": replace(tiny_run(text), packing=Packed(128, 64)),
    }
    found = {}
    for name, run in runs.items():
        rows = open_data(run, directory / "run").train
        assert isinstance(run.packing, Packed | Unpacked)
        found[name] = rows, read(rows, rows.start, STEPS, BATCH)[0]
    return found


def read(rows, position, steps, batch_size, share=WHOLE):
    """Rows of so many steps one after another, and the position after them."""
    batches = []
    for _ in range(steps):
        batch, position = rows.take(position, batch_size, share)
        batches.append(batch)
    return {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}, position


def same(one, other):
    assert {*one} == {*other}
    return all(np.array_equal(one[name], other[name]) for name in one)


every = pytest.mark.parametrize("kind", ["text", "mixture", "packed", "packed text"])


@every
@settings(deadline=None, max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(0, STEPS), st.sampled_from([1, 2, 3, 4, 6, 12])), max_size=4))
def test_any_stops_and_any_numbers_of_hosts_give_the_same_rows(kinds, kind, stops):
    rows, whole = kinds[kind]
    step, position, parts = 0, rows.start, []
    for until, hosts in [*sorted(stops), (STEPS, 1)]:
        if until == step:
            continue
        shares = [read(rows, position, until - step, BATCH, Share(host, hosts)) for host in range(hosts)]
        for start in range(0, (until - step) * BATCH // hosts, BATCH // hosts):
            parts += [
                {name: values[start : start + BATCH // hosts] for name, values in part.items()} for part, _ in shares
            ]
        assert all(after == shares[0][1] for _, after in shares)
        step, position = until, json.loads(json.dumps(shares[0][1]))
    joined = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    assert same(joined, whole)


@every
@pytest.mark.parametrize("workers", [0, 1, 3])
def test_any_number_of_workers_gives_the_same_rows_and_positions(kinds, kind, workers):
    rows, whole = kinds[kind]
    made = list(prefetch(StepReader(rows, rows.start, 0, BATCH), 0, 8, workers=workers))
    joined = {name: np.concatenate([batch[name] for batch, _ in made]) for name in whole}
    assert same(joined, {name: values[: 8 * BATCH] for name, values in whole.items()})
    assert made[-1][1] == rows.skip(rows.start, 8 * BATCH)


@every
def test_a_reader_that_starts_later_goes_on_where_another_stopped(kinds, kind):
    rows, whole = kinds[kind]
    position = rows.skip(rows.start, 5 * BATCH)
    batch, _ = StepReader(rows, position, 5, BATCH)(9)
    assert same(batch, {name: values[9 * BATCH : 10 * BATCH] for name, values in whole.items()})


@every
def test_reading_backwards_is_no_other_than_forwards(kinds, kind):
    rows, whole = kinds[kind]
    reader = StepReader(rows, rows.start, 0, BATCH)
    for step in (7, 3, 4, 0):
        batch, _ = reader(step)
        assert same(batch, {name: values[step * BATCH : (step + 1) * BATCH] for name, values in whole.items()})


@every
def test_a_copy_in_another_process_maps_the_stores_and_carries_no_text(kinds, kind):
    rows, whole = kinds[kind]
    packed = pickle.dumps(rows)
    assert len(packed) < 20_000
    again = pickle.loads(packed)
    assert same(read(again, again.start, 2, BATCH)[0], {name: values[: 2 * BATCH] for name, values in whole.items()})


@every
def test_two_hosts_have_no_row_in_common(kinds, kind):
    rows, _ = kinds[kind]
    one, other = (read(rows, rows.start, 1, BATCH, Share(host, 2))[0]["encoder_input_tokens"] for host in (0, 1))
    assert not {row.tobytes() for row in one} & {row.tobytes() for row in other}


@every
def test_far_positions_cost_no_more_than_near_ones(kinds, kind):
    rows, _ = kinds[kind]
    costs = []
    for examples in (10**5 + 7, 10**9 + 7):
        there = {"examples": examples} if "examples" in rows.start else {"window": examples // 4096, "row": 3}
        (batch, after), calls = calls_of(lambda there=there: rows.take(there, BATCH))
        assert len(batch["encoder_input_tokens"]) == BATCH and after != there
        costs.append(calls)
    assert costs[1] < 2 * costs[0], costs


def test_rows_that_hosts_cannot_share_evenly_are_refused():
    with pytest.raises(ValueError, match="12 rows cannot be divided among 5 hosts, of which this is 1"):
        Share(1, 5).rows(12)
