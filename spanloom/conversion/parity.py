"""Whether two models are the same: every bit of their weights, and what they say to fixed sentences."""

from collections.abc import Callable

import numpy as np

from spanloom.conversion.weights import Dtype, Weights, cast, parts, same_bits, written_type
from spanloom.vocabularies.vocabulary import Vocabulary

TOLERANCE = 1e-4
SENTENCES = (
    ("The tea was cold before anybody thought of drinking it.", "Nobody had asked for tea."),
    ("Der Nebel hob sich erst, als die Fähre schon weit draußen war.", "Über dem Wasser wurde es hell."),
    ("Весной река снова вышла из берегов.", "Мост закрыли на неделю."),
    ("朝の市場で魚を二匹買った。", "一匹は猫にやった。"),
    ("أغلقت المكتبة أبوابها قبل الغروب.", "عاد الطلاب إلى بيوتهم."),
    ("x = [1, 2.5, -3e4]\nprint(x)", "[1, 2.5, -30000.0]"),
)


def examples(vocabulary: Vocabulary, count: int = len(SENTENCES)) -> dict[str, np.ndarray]:
    """A batch of so many of the fixed sentences, with two sentinels where the vocabulary has them; int32, padded with
    0.
    """
    inputs, targets = [], []
    for text, answer in SENTENCES[:count]:
        ids = vocabulary.encode(text).tolist()
        reply = vocabulary.encode(answer).tolist()
        first, second = (*vocabulary.sentinels[:2], vocabulary.unk_id, vocabulary.unk_id)[:2]
        middle = len(ids) // 2
        inputs.append([*ids[:middle], first, *ids[middle:], vocabulary.eos_id])
        targets.append([first, *reply, second, vocabulary.eos_id])
    target_BxT = _padded(targets)
    return {
        "encoder_input_tokens": _padded(inputs),
        "decoder_target_tokens": target_BxT,
        "decoder_input_tokens": np.pad(target_BxT, ((0, 0), (1, 0)))[:, :-1],
    }


def largest_difference(first: np.ndarray, second: np.ndarray) -> float:
    """Largest absolute difference; values that are not numbers are equal only to their like."""
    if np.array_equal(first, second, equal_nan=True):
        return 0.0
    difference = np.abs(first.astype(np.float64) - second.astype(np.float64))
    return float("inf") if np.isnan(difference).any() else float(difference.max())


def different_weights(
    source: Weights, written: Weights, dtype: Dtype = "keep", done: Callable[[int], None] = lambda count: None
) -> list[str]:
    """Names of the parameters that are not, to the last bit, the source's as they are when written in `dtype`.

    One part of each is in memory at a time; `done` is told how many numbers were compared.
    """
    different = []
    for name, layer in parts(source):
        one, other = source[name], written.get(name)
        array = cast(one.read(layer), written_type(one.dtype, dtype))
        if other is None or other.shape != one.shape or not same_bits(array, other.read(layer)):
            different.append(name)
        done(array.size)
    return list(dict.fromkeys(different))


def _padded(rows: list[list[int]]) -> np.ndarray:
    width = max(map(len, rows))
    return np.array([row + [0] * (width - len(row)) for row in rows], np.int32)
