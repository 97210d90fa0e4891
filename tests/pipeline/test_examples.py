import numpy as np
import pytest
from one_piece import corrupt_one
from pipeline_data import column_of

from spanloom.pipeline.examples import DataError, PairExamples, StreamExamples, Widths, widths_of
from spanloom.pipeline.store import Store
from spanloom.settings.objectives import SpanCorruption, Supervised
from spanloom.settings.vocabulary import Bytes
from spanloom.vocabularies.build import build

BYTES = build(Bytes())
OBJECTIVE = SpanCorruption(inputs_length=32, mean_span_length=3.0)


def store_of(**rows) -> Store:
    columns = {name: column_of(column) for name, column in rows.items()}
    counts = {name: {"longest": max(map(len, column), default=0)} for name, column in rows.items()}
    return Store(None, {"counts": {"columns": counts}}, columns)  # type: ignore[arg-type]


def stream(length: int) -> list[list[int]]:
    return [[10 + i % 200 for i in range(length)]]


def keys(count: int) -> np.ndarray:
    return np.arange(100, 100 + count, dtype=np.uint64)


@pytest.mark.short
@pytest.mark.parametrize("extra", [0, 1, 2, 3, 7, 30])
def test_rows_are_those_made_one_by_one_the_short_last_one_too(extra):
    raw_length = StreamExamples(store_of(tokens=stream(1)), OBJECTIVE, BYTES).raw_length
    examples = StreamExamples(store_of(tokens=stream(3 * raw_length + extra)), OBJECTIVE, BYTES)
    assert examples.num_examples == 3 + (extra > 0)
    order = np.arange(examples.num_examples)[::-1].copy()
    block = examples.make(order, keys(len(order)))
    for row, example in enumerate(order.tolist()):
        raw = examples.raw(example)
        one = corrupt_one(raw, keys(len(order))[row], OBJECTIVE, BYTES)
        np.testing.assert_array_equal(block.inputs[row], one["inputs"])
        np.testing.assert_array_equal(block.targets[row], one["targets"])
        assert block.target_lengths[row] == np.flatnonzero(one["targets"] == BYTES.eos_id)[-1] + 1
        assert not one["targets"][block.target_lengths[row] :].any()


def restore(inputs: np.ndarray, targets: np.ndarray, sentinels: tuple[int, ...]) -> list[int]:
    """The raw tokens, from inputs and targets without padding."""
    spans: dict[int, list[int]] = {}
    for token in targets[:-1].tolist():
        if token in sentinels:
            spans[token] = current = []
        else:
            current.append(token)
    return [token for piece in inputs[:-1].tolist() for token in spans.get(piece, [piece])]


def test_inputs_and_targets_together_are_the_text():
    examples = StreamExamples(store_of(tokens=stream(500)), OBJECTIVE, BYTES)
    block = examples.make(np.arange(examples.num_examples), keys(examples.num_examples))
    for example in range(examples.num_examples):
        inputs = np.trim_zeros(block.inputs[example], "b")
        targets = block.targets[example][: block.target_lengths[example]]
        assert restore(inputs, targets, BYTES.sentinels) == examples.raw(example).tolist()


@pytest.mark.parametrize("density", [0.15, 0.3, 0.5])
def test_full_rows_are_full(density):
    objective = SpanCorruption(inputs_length=64, noise_density=density, mean_span_length=3.0)
    examples = StreamExamples(store_of(tokens=stream(5000)), objective, BYTES)
    block = examples.make(np.arange(10), keys(10))
    assert (block.target_lengths == examples.targets_length).all()
    assert (block.targets[:, -1] == BYTES.eos_id).all()


def test_too_few_sentinels_are_refused_before_any_example_is_made():
    objective = SpanCorruption(inputs_length=512, mean_span_length=3.0)
    with pytest.raises(ValueError, match="sentinel"):
        StreamExamples(store_of(tokens=stream(5000)), objective, build(Bytes(sentinels="google")))


PAIRS = {"inputs": [[10, 0, 11], [], [12]], "targets": [[20], [21, 22, 0, 23], []]}


@pytest.mark.short
def test_pairs_end_in_eos_and_weights_follow_lengths_not_zeros():
    store = store_of(**PAIRS)
    widths = widths_of({"train": store}, Supervised())
    assert widths == Widths(inputs=4, targets=5)
    block = PairExamples(store, widths, BYTES).make(np.array([1, 0, 2]), keys(3))
    assert block.inputs.tolist() == [[1, 0, 0, 0], [10, 0, 11, 1], [12, 1, 0, 0]]
    assert block.targets.tolist() == [[21, 22, 0, 23, 1], [20, 1, 0, 0, 0], [1, 0, 0, 0, 0]]
    assert block.target_lengths.tolist() == [5, 2, 1]


def test_widths_cover_the_held_out_part_too():
    stores = {"train": store_of(**PAIRS), "heldout": store_of(inputs=[[1] * 9], targets=[[1]])}
    assert widths_of(stores, Supervised()) == Widths(inputs=10, targets=5)
    assert widths_of(stores, Supervised(inputs_length=16, targets_length=6)) == Widths(inputs=16, targets=6)


def test_longer_examples_than_asked_for_are_counted_and_refused():
    stores = {"train": store_of(**PAIRS), "heldout": store_of(inputs=[[1] * 9], targets=[[1]])}
    with pytest.raises(DataError, match=r"1 of 3 train and 1 of 1 heldout examples .*= 3 tokens; the longest has 10"):
        widths_of(stores, Supervised(inputs_length=3))
    with pytest.raises(DataError, match=r"1 of 3 train .* 0 of 1 heldout .*targets_length to 5.*too_long"):
        widths_of(stores, Supervised(targets_length=4))


def test_trimming_keeps_the_end_of_sequence():
    store = store_of(**PAIRS)
    widths = widths_of({"train": store}, Supervised(inputs_length=2, targets_length=3, too_long="trim"))
    block = PairExamples(store, widths, BYTES).make(np.arange(3), keys(3))
    assert block.inputs.tolist() == [[10, 1], [1, 0], [12, 1]]
    assert block.targets.tolist() == [[20, 1, 0], [21, 22, 1], [1, 0, 0]]


def test_a_width_without_room_for_the_end_of_sequence_is_refused():
    with pytest.raises(DataError, match="end of sequence alone"):
        widths_of({"train": store_of(**PAIRS)}, Supervised(inputs_length=0, too_long="trim"))


def test_large_ids_are_kept():
    column = column_of([[250_099, 0, 70_000]], size=250_100)
    assert column.dtype == np.uint32
    assert column.row(0).tolist() == [250_099, 0, 70_000]
    assert column_of([[65_535]], size=65_536).slice(0, 1).tolist() == [65_535]
