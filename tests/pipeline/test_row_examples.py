"""Examples that are made when they are read: what they depend on, and what cannot be."""

import pickle
from dataclasses import replace

import numpy as np
import pytest
import task_functions as own
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pipeline_data import tiny_run

from spanloom.pipeline.data import open_data
from spanloom.pipeline.examples import DataError
from spanloom.settings.feature import Feature
from spanloom.settings.mixture import BySize, Mixture, Weighted
from spanloom.settings.objectives import SpanCorruption, Supervised
from spanloom.settings.packing import Packed
from spanloom.settings.task import PairFiles, Task
from spanloom.settings.vocabulary import Bytes
from spanloom.tasks.preprocessing import PreprocessorError
from spanloom.vocabularies.build import build

BYTES = build(Bytes())
pytestmark = pytest.mark.short


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    path = tmp_path_factory.mktemp("pairs") / "pairs.tsv"
    lines = [f"a{i} b{i} c{i} d{i} e{i}\tout {i}\n" for i in range(100)]
    path.write_text("inputs\ttargets\n" + "".join(lines))
    return path


def task_of(pairs, *preprocessors, name="p", share=0.2, **more):
    more = {"objective": Supervised(40, 12), **more}
    return Task(name, PairFiles((str(pairs),), heldout_share=share), preprocessors=preprocessors, **more)


def opened(task, tmp_path, seed=0, said=None, **run):
    run = replace(tiny_run(task, seed=seed), batch_size=8, **run).resolve()
    return open_data(run, tmp_path, warn=(said if said is not None else []).append)


def texts(batch, side="encoder_input_tokens"):
    return [BYTES.decode(row) for row in batch[side]]


@pytest.fixture(scope="module")
def shuffled(pairs, tmp_path_factory):
    return opened(task_of(pairs, own.shuffled), tmp_path_factory.mktemp("run"))


def test_each_epoch_has_other_examples_of_the_same_rows(shuffled):
    train = shuffled.train
    first, second = (texts(train.batch(epoch * train.num_examples, train.num_examples)) for epoch in (0, 1))
    assert sorted(sorted(text.split()) for text in first) == sorted(sorted(text.split()) for text in second)
    assert len({*first} & {*second}) < len(first) / 4


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(first=st.integers(0, 300), count=st.integers(1, 40), cut=st.integers(0, 40))
def test_an_example_depends_on_its_draw_alone(shuffled, first, count, cut):
    whole = texts(shuffled.train.batch(first, count))
    cut = min(cut, count - 1)
    assert whole == (texts(shuffled.train.batch(first, cut)) if cut else []) + texts(
        shuffled.train.batch(first + cut, count - cut)
    )


def test_seed_and_name_of_the_task_decide_and_held_out_ones_stay(pairs, shuffled, tmp_path):
    same = opened(task_of(pairs, own.shuffled), tmp_path / "a")
    seed = opened(task_of(pairs, own.shuffled), tmp_path / "b", seed=1)
    name = opened(task_of(pairs, own.shuffled, name="q"), tmp_path / "c")
    assert texts(same.train.batch(0, 20)) == texts(shuffled.train.batch(0, 20))
    for other in (seed, name):
        assert texts(other.train.batch(0, 20)) != texts(shuffled.train.batch(0, 20))
    held = [texts(next(data.tasks[0].heldout.eval_batches(8))) for data in (same, seed, shuffled)]
    assert held[0] == held[1] == held[2]


def test_other_processes_make_the_same(shuffled):
    again = pickle.loads(pickle.dumps(shuffled.train))
    assert texts(again.batch(5, 20)) == texts(shuffled.train.batch(5, 20))


def test_one_that_a_filter_leaves_out_is_a_row_of_weight_0(pairs, tmp_path):
    data = opened(task_of(pairs, own.now_and_then), tmp_path)
    batch = data.train.batch(0, 60)
    left_out = ~batch["decoder_loss_weights"].any(axis=1)
    assert 10 < left_out.sum() < 50
    assert not batch["encoder_input_tokens"][left_out].any() and not batch["decoder_target_tokens"][left_out].any()
    assert batch["encoder_input_tokens"][~left_out].any(axis=1).all()
    heldout = data.tasks[0].heldout
    kept = [heldout.examples.example(i) for i in range(heldout.num_examples)]
    assert [one is None for one in kept] == [len(heldout.raw(i)) == 0 for i in range(heldout.num_examples)]
    assert 0 < sum(one is None for one in kept) < len(kept)


def test_what_becomes_several_or_none_is_an_error(pairs, tmp_path):
    with pytest.raises(PreprocessorError, match=r"doubled, example \d+: it gave 2 examples when read"):
        opened(task_of(pairs, own.shuffled, own.doubled), tmp_path)


@pytest.mark.parametrize(("objective", "missing"), [
    (Supervised(), "set task.objective.inputs_length and task.objective.targets_length"),
    (Supervised(40), "set task.objective.targets_length"),
])  # fmt: skip
def test_lengths_must_be_given(pairs, tmp_path, objective, missing):
    with pytest.raises(DataError, match=f"'p': shuffled takes rng, so that nobody knows .* become: {missing}$"):
        opened(task_of(pairs, own.shuffled, objective=objective), tmp_path)
    assert not list(tmp_path.rglob("*.arrow"))  # before anything is built


def test_a_stream_of_tokens_cannot_be_made_anew(pairs, tmp_path):
    task = task_of(pairs, own.text_of, own.shuffled, objective=SpanCorruption(inputs_length=32))
    with pytest.raises(DataError, match=r"shuffled takes rng, .* and SpanCorruption cuts examples out of one stream"):
        opened(task, tmp_path)


def test_one_that_is_too_long_is_an_error_or_cut(pairs, tmp_path):
    with pytest.raises(
        DataError, match=r"its inputs have \d\d tokens, .* task.objective.inputs_length is 10: raise it"
    ):
        opened(task_of(pairs, own.shuffled, objective=Supervised(10, 12)), tmp_path / "a").train.batch(0, 4)
    data = opened(task_of(pairs, own.shuffled, objective=Supervised(10, 12, "trim")), tmp_path / "b")
    batch = data.train.batch(0, 4)
    assert (batch["encoder_input_tokens"][:, -1] == BYTES.eos_id).all() and data.lengths == {
        "encoder": 10,
        "decoder": 12,
    }


@pytest.mark.parametrize("reads", [False, True])
def test_each_feature_ends_as_it_is_told(pairs, tmp_path, reads):
    features = (Feature("inputs", add_eos=False), Feature("targets"))
    task = task_of(pairs, *([own.shuffled] if reads else []), features=features)
    batch = opened(task, tmp_path).train.batch(0, 8)
    assert not (batch["encoder_input_tokens"] == BYTES.eos_id).any()
    assert ((batch["decoder_target_tokens"] == BYTES.eos_id).sum(axis=1) == 1).all()


def test_packed_rows_give_each_the_room_of_the_longest_and_say_so(pairs, tmp_path):
    said = []
    data = opened(task_of(pairs, own.shuffled), tmp_path, said=said, packing=Packed(80, 24))
    assert "nobody knows beforehand how long the examples of task 'p' become" in said[0]
    batch, _ = data.train.take(data.train.start, 6)
    assert (batch["encoder_segment_ids"].max(axis=1) == 2).all()
    examples = data.tasks[0].train.examples
    assert examples.locate(np.arange(3))[0].tolist() == [[40, 12]] * 3


def test_packed_rows_end_as_features_are_told(pairs, tmp_path):
    features = (Feature("inputs", add_eos=False), Feature("targets", add_eos=False))
    data = opened(task_of(pairs, features=features), tmp_path, packing=Packed(80, 40))
    batch, _ = data.train.take(data.train.start, 4)
    assert not (batch["encoder_input_tokens"] == BYTES.eos_id).any()
    assert not (batch["decoder_target_tokens"] == BYTES.eos_id).any()
    assert batch["encoder_segment_ids"].max() >= 2


def test_a_rate_by_tokens_that_nobody_knows_is_refused(pairs, tmp_path):
    parts = (
        Weighted(task_of(pairs, own.shuffled, name="a"), BySize(unit="tokens")),
        Weighted(task_of(pairs, own.prefixed, name="b"), BySize(unit="tokens")),
    )
    with pytest.raises(DataError, match=r"sizes that are not known: tokens of 'a'$"):
        opened(Mixture("m", parts), tmp_path)
