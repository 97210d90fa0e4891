import json
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pipeline_data import pair_task, sentences, text_task, tiny_run

from spanloom.pipeline.batches import shifted_right
from spanloom.pipeline.data import open_data
from spanloom.pipeline.examples import DataError
from spanloom.settings.mixture import ByAlpha, BySize, Mixture, Weighted
from spanloom.settings.vocabulary import Bytes

pytestmark = pytest.mark.short


@pytest.fixture(scope="module")
def tasks(tmp_path_factory):
    """Two languages and pairs."""
    directory = tmp_path_factory.mktemp("texts")
    found = []
    for number, name in enumerate(("en", "sv")):
        file = directory / f"{name}.jsonl"
        lines = sentences(60 * (number + 1), seed=number)
        file.write_text("".join(json.dumps({"text": text}) + "\n" for text in lines))
        found.append(replace(text_task(str(file), inputs_length=32 * (number + 1)), name=name))
    pairs = directory / "pairs.tsv"
    pairs.write_text("inputs\ttargets\n" + "".join(f"{i}\t{i * i}\n" for i in range(50)))
    return (*found, pair_task(str(pairs), heldout_share=0.2))


@pytest.fixture(scope="module")
def mixed(tasks, tmp_path_factory):
    run = tiny_run(Mixture("all", tuple(map(Weighted, tasks, (2.0, 1.0, 1.0)))))
    return open_data(run, tmp_path_factory.mktemp("run"))


def rows_of(batch):
    return [tuple(row.tobytes() for row in rows) for rows in zip(*(batch[name] for name in sorted(batch)), strict=True)]


def padded(batch, lengths):
    """A task's own batch as wide as the mixture's."""
    widths = {name: lengths[name.partition("_")[0]] for name in batch}
    wide = {name: np.pad(rows, ((0, 0), (0, widths[name] - rows.shape[1]))) for name, rows in batch.items()}
    return {**wide, "decoder_input_tokens": shifted_right(wide["decoder_target_tokens"], 0)}


def test_a_batch_has_the_draws_of_each_task_in_its_own_order_at_its_rate(mixed):
    taken = rows_of(mixed.train.batch(0, 400))
    tasks, _ = mixed.train.plan.draws(0, 400)
    names = sorted(one.task.name for one in mixed.tasks)
    for one in mixed.tasks:
        places = np.flatnonzero(tasks == names.index(one.task.name))
        assert abs(len(places) - 400 * one.rate) <= 3
        own = rows_of(padded(one.train.batch(0, len(places)), mixed.lengths))
        assert [taken[place] for place in places] == own
    assert sorted(one.rate for one in mixed.tasks) == [0.25, 0.25, 0.5]


@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 300), st.integers(1, 200), st.lists(st.integers(0, 200), max_size=4))
def test_a_batch_is_that_of_any_split_of_it(mixed, first, size, cuts):
    whole = mixed.train.batch(first, size)
    bounds = sorted({0, size, *(cut % (size + 1) for cut in cuts)})
    parts = [mixed.train.batch(first + a, b - a) for a, b in pairwise(bounds)]
    for name in whole:
        np.testing.assert_array_equal(whole[name], np.concatenate([part[name] for part in parts]))


def test_widths_are_those_of_the_widest_task_and_padding_weighs_nothing(mixed):
    widths = {one.task.name: (one.train.inputs_length, one.train.targets_length) for one in mixed.tasks}
    assert mixed.lengths == {
        "encoder": max(encoder for encoder, _ in widths.values()),
        "decoder": max(decoder for _, decoder in widths.values()),
    }
    batch = mixed.train.batch(0, 100)
    assert not batch["decoder_loss_weights"][batch["decoder_target_tokens"] == 0].any()


def test_each_task_keeps_its_own_heldout_part(mixed):
    assert {*mixed.heldout} == {"en", "sv", "pairs"}
    assert {*mixed.content} == {
        *(f"{task}/{split}" for task in ("en", "sv", "pairs") for split in ("train", "heldout")),
        "vocabulary",
    }


@pytest.mark.parametrize("unit", ["examples", "characters", "tokens"])
def test_rates_go_by_the_sizes_that_the_stores_counted(tasks, unit, tmp_path):
    mixture = Mixture("texts", tuple(Weighted(task, ByAlpha(0.3, unit=unit)) for task in tasks[:2]))
    data = open_data(tiny_run(mixture), tmp_path)
    sizes = []
    for one in data.tasks:
        texts = one.train.store.meta["counts"]
        assert texts["characters"] < texts["text_bytes"]
        count = {
            "examples": one.train.num_examples,
            "characters": texts["characters"],
            "tokens": one.train.store.num_tokens,
        }
        sizes.append(count[unit] ** 0.3)
    np.testing.assert_allclose([one.rate for one in data.tasks], np.array(sizes) / sum(sizes))


def test_data_that_end_before_the_run_does_are_refused(tasks, tmp_path):
    run = replace(tiny_run(Mixture("two", (Weighted(tasks[2], epochs=2),))), batch_size=10, steps=100)
    with pytest.raises(DataError, match=r"ends after \d+ examples.*lower --steps to 8"):
        open_data(run, tmp_path)
    data = open_data(replace(run, steps=8), tmp_path)
    rows = rows_of(data.train.batch(0, 2 * data.train.num_examples))
    assert all(rows.count(row) == 2 for row in rows)


def test_a_task_without_examples_for_its_rate_is_named(tasks, tmp_path):
    mixture = Mixture("none", (Weighted(tasks[0], BySize(maximum=1e-300, temperature=1e-3)), Weighted(tasks[1], 0.0)))
    with pytest.raises(DataError, match="mixture 'none'"):
        open_data(tiny_run(mixture), tmp_path)


def test_another_vocabulary_in_one_task_is_refused(tasks):
    other = replace(tasks[0], vocabulary=Bytes(extra_ids=50))
    with pytest.raises(ValueError, match="task 'en' has another vocabulary than 'pairs'"):
        tiny_run(Mixture("all", (Weighted(tasks[2]), Weighted(other)))).resolve()
