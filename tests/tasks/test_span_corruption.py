import math
from itertools import pairwise

import numpy as np
import pytest
from one_piece import corrupt_one

from spanloom.settings.objectives import SpanCorruption
from spanloom.settings.vocabulary import Bytes
from spanloom.tasks.randomness import hash64
from spanloom.tasks.span_corruption import (
    apply_mask_block,
    corrupt_block,
    lengths_of,
    noise_mask_block,
    random_compositions,
)
from spanloom.tasks.span_lengths import noise_counts
from spanloom.vocabularies.build import build

BYTES = build(Bytes())
T5 = SpanCorruption(512, 0.15, 3.0)
BYT5 = SpanCorruption(1024, 0.15, 20.0)


def tokens_of(rows: int, length: int, dtype: type = np.uint16) -> np.ndarray:
    return np.random.default_rng(1).integers(3, 259, (rows, length)).astype(dtype)


def keys_of(rows: int, seed: int = 0) -> np.ndarray:
    return hash64(seed, np.arange(rows))


def five_sigma(observed: np.ndarray, expected: float) -> bool:
    freedom = observed.size - 1
    return float(((observed - expected) ** 2 / expected).sum()) < freedom + 5 * math.sqrt(2 * freedom) + 10


def restore(inputs: list[int], targets: list[int], sentinels: tuple[int, ...]) -> list[int]:
    """Put the spans of the targets back where the inputs have their sentinels."""
    spans: dict[int, list[int]] = {}
    span: list[int] = []
    for token in targets:
        if token in sentinels:
            span = spans.setdefault(token, [])
        else:
            span.append(token)
    return [token for place in inputs for token in (spans[place] if place in sentinels else [place])]


@pytest.mark.short
@pytest.mark.parametrize(("total", "parts"), [(6, 3), (7, 2), (8, 7), (5, 5), (9, 1), (9, 4)])
def test_all_compositions_are_equally_likely(total: int, parts: int) -> None:
    ways = math.comb(total - 1, parts - 1)
    compositions = random_compositions(keys_of(500 * ways, seed=total), total, parts)
    assert compositions.min() >= 1 and (compositions.sum(axis=1) == total).all()
    _, counts = np.unique(compositions, axis=0, return_counts=True)
    assert len(counts) == ways
    assert five_sigma(counts, 500)


def test_the_two_splits_of_a_mask_are_independent() -> None:
    tokens, spans = noise_counts(10, 0.4, 2.0)
    assert (tokens, spans) == (4, 2)
    ways = math.comb(3, 1) * math.comb(5, 1)
    masks, counts = np.unique(noise_mask_block(keys_of(500 * ways), 10, 0.4, 2.0), axis=0, return_counts=True)
    assert len(masks) == ways
    assert five_sigma(counts, 500)


@pytest.mark.parametrize("length", [2, 3, 5, 20, 100, 568])
@pytest.mark.parametrize(("density", "mean"), [(0.15, 3.0), (0.15, 20.0), (0.5, 3.0), (0.5, 1.0), (0.25, 1.5)])
def test_masks_have_the_exact_counts_and_ends(length: int, density: float, mean: float) -> None:
    mask_NxL = noise_mask_block(keys_of(64), length, density, mean)
    tokens, spans = noise_counts(length, density, mean)
    assert mask_NxL.shape == (64, length) and mask_NxL.dtype == np.bool_
    assert (mask_NxL.sum(axis=1) == tokens).all()
    assert ((mask_NxL[:, 1:] & ~mask_NxL[:, :-1]).sum(axis=1) == spans).all()
    assert not mask_NxL[:, 0].any() and mask_NxL[:, -1].all()


@pytest.mark.short
def test_fixed_masks() -> None:
    """These masks decide the data of every run: a change here changes all runs."""
    shown = ["".join("01"[int(bit)] for bit in row) for row in noise_mask_block(keys_of(3, seed=11), 24, 0.3, 2.0)]
    assert shown == ["000000010010000001001111", "000011110100000010000001", "000000000100010111000011"]


@pytest.mark.short
@pytest.mark.parametrize("objective", [T5, BYT5], ids=["t5", "byt5"])
@pytest.mark.parametrize("dtype", [np.uint16, np.uint32, np.int32, np.int64])
def test_corrupt_block_masks_appends_eos_and_fills_the_slots(objective: SpanCorruption, dtype: type) -> None:
    lengths = lengths_of(objective, BYTES)
    tokens_NxL = tokens_of(40, lengths.raw_length, dtype)
    before = tokens_NxL.copy()
    block = corrupt_block(tokens_NxL, keys_of(40), objective, BYTES)
    assert np.array_equal(tokens_NxL, before)
    mask_NxL = noise_mask_block(keys_of(40), lengths.raw_length, objective.noise_density, objective.mean_span_length)
    inputs, targets = apply_mask_block(tokens_NxL, mask_NxL, BYTES.sentinels)
    assert (block.inputs.shape, block.inputs.dtype) == ((40, lengths.inputs_length), np.int32)
    assert (block.targets.shape, block.targets.dtype) == ((40, lengths.targets_length), np.int32)
    assert (block.target_lengths == lengths.targets_length).all()
    for row in range(40):
        assert block.inputs[row].tolist() == [*inputs[row].tolist(), 1]
        assert block.targets[row].tolist() == [*targets[row].tolist(), 1]
        assert restore(inputs[row].tolist(), targets[row].tolist(), BYTES.sentinels) == tokens_NxL[row].tolist()
        used = [token for token in inputs[row].tolist() if token >= 259]
        assert used == list(BYTES.sentinels[: lengths.num_spans])
        assert [token for token in targets[row].tolist() if token >= 259] == used


@pytest.mark.short
def test_a_row_depends_on_its_tokens_and_key_alone() -> None:
    tokens_NxL, keys_N = tokens_of(30, 568), keys_of(30)
    whole = corrupt_block(tokens_NxL, keys_N, T5, BYTES)
    order = np.random.default_rng(3).permutation(30)
    shuffled = corrupt_block(tokens_NxL[order], keys_N[order], T5, BYTES)
    one = corrupt_one(tokens_NxL[4], keys_N[4], T5, BYTES)
    for name in ("inputs", "targets"):
        assert np.array_equal(getattr(whole, name)[order], getattr(shuffled, name))
        assert np.array_equal(getattr(whole, name)[4], one[name])
    other = corrupt_block(tokens_NxL, keys_of(30, seed=1), T5, BYTES)
    assert (other.inputs != whole.inputs).any(axis=1).all()


@pytest.mark.parametrize("objective", [T5, BYT5, SpanCorruption(128, 0.5, 1.5)], ids=["t5", "byt5", "half"])
def test_shorter_pieces_are_masked_by_their_own_length_and_padded(objective: SpanCorruption) -> None:
    raw_length = lengths_of(objective, BYTES).raw_length
    for length in (*range(1, 40), raw_length // 2, raw_length - 1):
        tokens_L = tokens_of(1, length)[0]
        example = corrupt_one(tokens_L, 3, objective, BYTES)
        ends = [int(np.flatnonzero(example[name] == 1)[0]) for name in ("inputs", "targets")]
        inputs, targets = (example[n][:end].tolist() for n, end in zip(("inputs", "targets"), ends, strict=True))
        assert restore(inputs, targets, BYTES.sentinels) == tokens_L.tolist()
        assert not example["inputs"][ends[0] + 1 :].any() and not example["targets"][ends[1] + 1 :].any()
        tokens, spans = noise_counts(length, objective.noise_density, objective.mean_span_length)
        assert len(inputs) == length - tokens + spans
        assert len(targets) == tokens + max(spans, 1)


def test_empty_blocks_and_pieces() -> None:
    assert corrupt_block(tokens_of(0, 568), keys_of(0), T5, BYTES).inputs.shape == (0, 512)
    empty = corrupt_one(np.array([], np.uint16), 0, T5, BYTES)
    assert empty["inputs"][:2].tolist() == [1, 0] and empty["targets"][:2].tolist() == [1, 0]


def test_what_does_not_fit_is_refused_with_the_fix() -> None:
    with pytest.raises(ValueError, match="piece of 569 tokens exceeds the raw length 568"):
        corrupt_block(tokens_of(1, 569), keys_of(1), T5, BYTES)
    with pytest.raises(ValueError, match="3 rows need 3 keys"):
        corrupt_block(tokens_of(3, 568), keys_of(1), T5, BYTES)
    google = build(Bytes("google"))
    with pytest.raises(ValueError, match=r"28 spans .* 11 sentinels"):
        lengths_of(T5, google)
    with pytest.raises(ValueError, match="28 spans"):
        corrupt_block(tokens_of(1, 568), keys_of(1), T5, google)
    assert lengths_of(BYT5, google).num_spans == 9
    with pytest.raises(ValueError, match="do not fit"):
        apply_mask_block(tokens_of(1, 5), np.zeros((1, 6), np.bool_), (300,))
    with pytest.raises(ValueError, match="needs 2 sentinels, but the vocabulary has 1"):
        apply_mask_block(np.array([[7, 8, 9, 10]]), np.array([[False, True, False, True]]), (300,))


@pytest.mark.short
def test_any_mask_of_a_ragged_block() -> None:
    patterns = ["00000", "11111", "01101", "11001", "01100", "10101"]
    mask_NxL = np.array([[character == "1" for character in pattern] for pattern in patterns])
    tokens_NxL = np.tile(np.arange(11, 16), (6, 1))
    inputs, targets = apply_mask_block(tokens_NxL, mask_NxL, (99, 98, 97))
    assert [row.tolist() for row in inputs] == [
        [11, 12, 13, 14, 15],
        [99],
        [11, 99, 14, 98],
        [99, 13, 14, 98],
        [11, 99, 14, 15],
        [99, 12, 98, 14, 97],
    ]
    assert [row.tolist() for row in targets] == [
        [99],
        [99, 11, 12, 13, 14, 15],
        [99, 12, 13, 98, 15],
        [99, 11, 12, 98, 15],
        [99, 12, 13, 98],
        [99, 11, 98, 13, 97, 15],
    ]
    assert apply_mask_block(np.zeros((0, 5), int), np.zeros((0, 5), bool), (99,)) == ([], [])
    assert [len(row) for row in apply_mask_block(np.zeros((1, 0), int), np.zeros((1, 0), bool), (99,))[1]] == [0]


def test_masks_differ_between_neighbouring_keys_and_seeds() -> None:
    masks = [noise_mask_block(keys_of(2000, seed), 568, 0.15, 3.0) for seed in (0, 1)]
    assert len(np.unique(np.concatenate(masks), axis=0)) == 4000
    for a, b in [*pairwise(masks), (masks[0][:-1], masks[0][1:])]:
        both = (a & b)[:, 100:400].mean()
        assert abs(both - a[:, 100:400].mean() * b[:, 100:400].mean()) < 5 * 0.14 / math.sqrt(a[:, 100:400].size / 3)


def test_more_google_sentinels_than_11_are_an_error_unless_accepted() -> None:
    objective = SpanCorruption(512, 0.15, 3.0)
    with pytest.raises(
        ValueError, match=r"28 spans .* 11 sentinels: .* accept .*--task\.vocabulary\.google-sentinels 28"
    ):
        lengths_of(objective, build(Bytes("google")))
    assert lengths_of(objective, build(Bytes("google", google_sentinels=28))).num_spans == 28
