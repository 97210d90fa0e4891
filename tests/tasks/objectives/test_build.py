"""What all objectives on text promise: their lengths, nothing lost, and that keys decide."""

import numpy as np
import pytest

from spanloom.settings.objectives import UL2, FullLM, IidDenoising, PrefixLM, SpanCorruption, TextInfilling
from spanloom.settings.vocabulary import Bytes
from spanloom.tasks.objectives.build import denoiser_of
from spanloom.tasks.randomness import hash64
from spanloom.vocabularies.build import build

pytestmark = pytest.mark.short

BYTES = build(Bytes())
T5 = build(Bytes("seqio", extra_ids=100))
OBJECTIVES = {
    "span-corruption": SpanCorruption(96),
    "rolled": SpanCorruption(96, random_roll=True),
    "rolled-half": SpanCorruption(96, 0.5, 1.5, random_roll=True),
    "iid": IidDenoising(96),
    "iid-half": IidDenoising(96, noise_density=0.5),
    "prefix-lm": PrefixLM(96),
    "prefix-lm-quarter": PrefixLM(96, noise_density=0.25),
    "full-lm": FullLM(targets_length=96),
    "text-infilling": TextInfilling(96),
    "ul2": UL2(96),
    "ul2-not-rolled": UL2(96, random_roll=False),
    "ul2-texts": UL2(96, modes=("[NLU]", "[S2S]", "[NLG]")),
}
every = pytest.mark.parametrize("objective", OBJECTIVES.values(), ids=OBJECTIVES.keys())


def tokens_of(rows: int, length: int, dtype: type = np.uint16) -> np.ndarray:
    return np.random.default_rng(length).integers(3, 259, (rows, length)).astype(dtype)


def keys_of(rows: int, seed: int = 0) -> np.ndarray:
    return hash64(seed, np.arange(rows))


def without_padding(row: np.ndarray) -> list[int]:
    return np.trim_zeros(row, "b").tolist()


def read_back(objective, inputs: list[int], targets: list[int]) -> list[int]:
    """The text that inputs and targets, both ended, hold together."""
    if isinstance(objective, FullLM):
        assert inputs == [1]
        return targets
    assert inputs[-1] == targets[-1] == 1
    inputs, targets = inputs[:-1], targets[:-1]
    if isinstance(objective, TextInfilling):
        return targets
    if isinstance(objective, UL2):
        heads = [BYTES.encode(text).tolist() for text in objective.modes] or [[id] for id in BYTES.sentinels[-3:]]
        head = next(head for head in heads if inputs[: len(head)] == head)
        inputs = inputs[len(head) :]
    if not {*targets} & {*BYTES.sentinels}:  # a prefix and what follows
        return inputs + targets
    spans: dict[int, list[int]] = {}
    for token in targets:
        if token in BYTES.sentinels:
            assert token not in spans
            spans[token] = current = []
        else:
            current.append(token)
    used = [token for token in inputs if token in BYTES.sentinels]
    assert used == list(BYTES.sentinels[: len(used)]) and list(spans)[: len(used)] == used
    assert len(spans) - len(used) in (0, 1), "only a text that ends unmasked has one sentinel more"
    return [token for place in inputs for token in spans.get(place, [place])]


@every
@pytest.mark.parametrize("dtype", [np.uint16, np.int32])
def test_inputs_and_targets_together_are_the_text_whatever_its_length(objective, dtype):
    denoiser = denoiser_of(objective, BYTES)
    for length in (*range(1, 24), denoiser.raw_length // 2, denoiser.raw_length - 1, denoiser.raw_length):
        tokens_NxL = tokens_of(20, length, dtype)
        block = denoiser.make(tokens_NxL, keys_of(20))
        assert (block.inputs.shape, block.inputs.dtype) == ((20, denoiser.inputs_length), np.int32)
        assert (block.targets.shape, block.targets.dtype) == ((20, denoiser.targets_length), np.int32)
        longest = denoiser.longest_of(length)
        assert block.input_lengths.max() <= longest[0] <= denoiser.inputs_length
        assert block.target_lengths.max() <= longest[1] <= denoiser.targets_length
        for row in range(20):
            assert len(without_padding(block.inputs[row])) == block.input_lengths[row]
            targets = without_padding(block.targets[row])
            assert len(targets) == block.target_lengths[row]
            assert read_back(objective, without_padding(block.inputs[row]), targets) == tokens_NxL[row].tolist()


@every
def test_lengths_are_as_stated_and_no_longer_than_needed(objective):
    denoiser = denoiser_of(objective, BYTES)
    if not isinstance(objective, FullLM):
        assert denoiser.inputs_length == objective.inputs_length
    block = denoiser.make(tokens_of(4000, denoiser.raw_length), keys_of(4000))
    longest = int(block.target_lengths.max())
    assert denoiser.longest_of(denoiser.raw_length)[1] == denoiser.targets_length
    assert denoiser.longest_of(denoiser.raw_length)[0] >= block.input_lengths.max()
    spare = 15 if isinstance(objective, IidDenoising) else 0  # four standard deviations of two numbers
    assert denoiser.targets_length - spare <= longest <= denoiser.targets_length


@every
def test_no_more_sentinels_than_stated_and_none_of_the_modes_masks_a_span(objective):
    denoiser = denoiser_of(objective, BYTES)
    block = denoiser.make(tokens_of(2000, denoiser.raw_length), keys_of(2000))
    masked = np.isin(BYTES.sentinels, block.targets) | np.isin(BYTES.sentinels, block.inputs[:, 1:])
    most = int(np.flatnonzero(masked).max(initial=-1)) + 1
    spare = 8 if isinstance(objective, IidDenoising) else 0
    assert denoiser.num_sentinels - spare <= most <= denoiser.num_sentinels


@every
def test_a_row_depends_on_its_tokens_and_key_alone(objective):
    denoiser = denoiser_of(objective, BYTES)
    tokens_NxL, keys_N = tokens_of(60, denoiser.raw_length), keys_of(60)
    before = tokens_NxL.copy()
    whole = denoiser.make(tokens_NxL, keys_N)
    assert np.array_equal(tokens_NxL, before)
    order = np.random.default_rng(3).permutation(60)
    shuffled = denoiser.make(tokens_NxL[order], keys_N[order])
    one = denoiser.make(tokens_NxL[4:5], keys_N[4:5])
    for name in ("inputs", "targets", "input_lengths", "target_lengths"):
        assert np.array_equal(getattr(whole, name)[order], getattr(shuffled, name))
        assert np.array_equal(getattr(whole, name)[4:5], getattr(one, name))


@every
def test_other_keys_give_other_examples(objective):
    denoiser = denoiser_of(objective, BYTES)
    tokens_NxL = tokens_of(200, denoiser.raw_length)
    first, second = (denoiser.make(tokens_NxL, keys_of(200, seed)) for seed in (0, 1))
    changed = (first.inputs != second.inputs).any(axis=1).mean()
    assert (
        changed == 0 if isinstance(objective, FullLM) else changed > 0.9
    )  # one span that is not rolled is always the end


@every
def test_an_empty_block_has_the_widths(objective):
    denoiser = denoiser_of(objective, BYTES)
    block = denoiser.make(tokens_of(0, denoiser.raw_length), keys_of(0))
    assert block.inputs.shape == (0, denoiser.inputs_length) and block.targets.shape == (0, denoiser.targets_length)


@pytest.mark.parametrize(
    ("objective", "raw", "targets", "sentinels"),
    [
        (SpanCorruption(), 568, 114, 28),
        (SpanCorruption(random_roll=True), 567, 115, 29),
        (IidDenoising(), 511, 202, 92),
        (PrefixLM(), 511, 511, 0),
        (PrefixLM(noise_density=0.25), 511, 257, 0),
        (FullLM(), 512, 512, 0),
        (TextInfilling(), 639, 640, 1),
        (UL2(), 510, 342, 86),
        (UL2(s_rate=0.0), 566, 379, 95),
        (UL2(random_roll=False), 510, 341, 85),
    ],
    ids=str,
)
def test_lengths_at_512_with_the_hundred_sentinels_of_t5(objective, raw, targets, sentinels):
    denoiser = denoiser_of(objective, T5)
    assert (denoiser.raw_length, denoiser.targets_length, denoiser.num_sentinels) == (raw, targets, sentinels)


GOOGLE = build(Bytes("google"))
NONE = build(Bytes(extra_ids=0))


@pytest.mark.parametrize(
    ("objective", "vocabulary", "message"),
    [
        (SpanCorruption(), GOOGLE, r"28 spans .* 11 sentinels"),
        (SpanCorruption(202, random_roll=True), GOOGLE, r"12 spans .* 11 sentinels"),
        (SpanCorruption(20, 0.9, 1.0), BYTES, r"spans, but only .* tokens stay"),
        (IidDenoising(1024), BYTES, r"runs of tokens, whose targets take 1\d\d sentinels, .* has 125: use an inputs_l"),
        (IidDenoising(2), BYTES, "no room"),
        (PrefixLM(2), BYTES, "no room for a prefix"),
        (TextInfilling(), NONE, "needs a mask, the first sentinel"),
        (UL2(), GOOGLE, r"takes 86 sentinels .* has 11, of which the last 3 tell the modes: use longer spans"),
        (UL2(), NONE, "told by the last 3 sentinels, but the vocabulary has 0"),
        (UL2(4), BYTES, "no room|at least 3"),
        (UL2(3, r_rate=0.0, x_rate=0.0), BYTES, "no room for a mode"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_with_the_reason(objective, vocabulary, message):
    with pytest.raises(ValueError, match=message):
        denoiser_of(objective, vocabulary)
