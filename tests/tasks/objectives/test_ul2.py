import numpy as np
import pytest

from spanloom.settings.objectives import UL2
from spanloom.settings.vocabulary import Bytes
from spanloom.tasks.objectives.ul2 import choices, denoiser, modes_of, parts_of
from spanloom.tasks.randomness import hash64
from spanloom.vocabularies.build import build

pytestmark = pytest.mark.short
BYTES = build(Bytes())
KEYS = hash64(5, np.arange(14_000))


def modes_drawn(objective: UL2) -> dict[int, float]:
    made = denoiser(objective, BYTES)
    tokens = np.random.default_rng(0).integers(3, 259, (len(KEYS), made.raw_length))
    modes, counts = np.unique(made.make(tokens, KEYS).inputs[:, 0], return_counts=True)
    return {mode: count / len(KEYS) for mode, count in zip(modes.tolist(), counts.tolist(), strict=True)}


def test_denoisers_come_as_often_as_their_rates_say():
    regular, sequential, extreme = BYTES.sentinels[-3:]
    shares = modes_drawn(UL2(64))
    assert shares == pytest.approx({regular: 2 / 7, sequential: 1 / 7, extreme: 4 / 7}, abs=0.02)
    assert modes_drawn(UL2(64, x_rate=1.0, r_rate=3.0, s_rate=0.0)) == pytest.approx(
        {regular: 0.75, extreme: 0.25}, abs=0.02
    )


def test_the_seven_denoisers_are_those_of_the_paper():
    parts = parts_of(UL2(), BYTES)
    assert [(part.mean_span_length, part.density) for part in parts] == [
        (3.0, 0.15), (8.0, 0.15), (None, 0.25), (3.0, 0.5), (8.0, 0.5), (64.0, 0.15), (64.0, 0.5),
    ]  # fmt: skip
    assert {part.rate for part in parts} == {1.0}


def test_each_of_them_is_drawn():
    bounds = (np.arange(1, 8) / 7 * 2.0**32).astype(np.uint64)
    counts = np.bincount(choices(KEYS, bounds), minlength=7)
    assert len(counts) == 7 and np.abs(counts - 2000).max() < 5 * np.sqrt(2000)


def test_the_choice_does_not_follow_the_noise():
    """What is drawn by one key for masks and for the denoiser comes from streams of its own."""
    made = denoiser(UL2(64, random_roll=False), BYTES)
    tokens = np.tile(np.arange(3, 3 + made.raw_length), (len(KEYS), 1))
    block = made.make(tokens, KEYS)
    written = block.target_lengths[block.inputs[:, 0] == BYTES.sentinels[-2]] - 1
    least, most = written.min(), written.max()
    assert least == 1
    assert abs(written.mean() - (least + most) / 2) < 5 * written.std() / np.sqrt(len(written))


def test_modes_may_be_texts():
    objective = UL2(64, modes=("[NLU]", "[S2S]", "[NLG]"))
    assert [BYTES.decode(list(ids)) for ids in modes_of(objective, BYTES)] == ["[NLU]", "[S2S]", "[NLG]"]


def test_a_mode_that_the_vocabulary_cannot_write_is_refused(tmp_path):
    from tiny_training import write_vocabulary

    from spanloom.settings.vocabulary import SentencePiece

    words = build(SentencePiece(str(write_vocabulary(tmp_path / "words.model"))))
    with pytest.raises(ValueError, match=r"cannot write the mode '\[NLU\]'"):
        denoiser(UL2(64, modes=("[NLU]", "[S2S]", "[NLG]")), words)
    assert modes_of(UL2(64), words) == tuple((sentinel,) for sentinel in words.sentinels[-3:])
    assert denoiser(UL2(64, modes=("the", "every", "bytes")), words).inputs_length == 64
