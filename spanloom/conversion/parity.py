"""Whether two models say the same: log-probabilities of fixed sentences, token by token."""

from collections.abc import Mapping
from dataclasses import replace

import jax
import numpy as np

from spanloom.model.params import T5, flatten
from spanloom.model.t5 import forward
from spanloom.settings.model import Model
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


def examples(vocabulary: Vocabulary) -> dict[str, np.ndarray]:
    """A batch of the fixed sentences, with two sentinels where the vocabulary has them; int32, padded with 0."""
    inputs, targets = [], []
    for text, answer in SENTENCES:
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


def logits(model: Model, params: T5, batch: Mapping[str, np.ndarray]) -> np.ndarray:
    """Logits of a batch in float32, (rows, target tokens, embedding rows)."""
    config = replace(model, dtype="float32", dropout=0.0, attention="einsum")
    return np.asarray(jax.jit(forward, static_argnums=1)(params, config, dict(batch)))


def log_probabilities(model: Model, params: T5, batch: Mapping[str, np.ndarray]) -> np.ndarray:
    """Log-probability of every target token of a batch in float32, (tokens,); padding left out."""
    log_probs_BxTxV = np.asarray(jax.nn.log_softmax(logits(model, params, batch)))
    targets_BxT = batch["decoder_target_tokens"]
    picked_BxT = np.take_along_axis(log_probs_BxTxV, targets_BxT[..., None], axis=-1)[..., 0]
    return picked_BxT[targets_BxT > 0]


def largest_difference(first: np.ndarray, second: np.ndarray) -> float:
    """Largest absolute difference; values that are not numbers are equal only to their like."""
    if np.array_equal(first, second, equal_nan=True):
        return 0.0
    difference = np.abs(first.astype(np.float64) - second.astype(np.float64))
    return float("inf") if np.isnan(difference).any() else float(difference.max())


def different_weights(first: T5, second: T5) -> list[str]:
    """Names of the parameters that are not equal to the last bit."""
    others = flatten(second)
    return [
        name
        for name, array in flatten(first).items()
        if name not in others or not _same_bits(np.asarray(array, np.float32), np.asarray(others[name], np.float32))
    ]


def _same_bits(first: np.ndarray, second: np.ndarray) -> bool:
    return first.shape == second.shape and np.array_equal(first.view(np.uint32), second.view(np.uint32))


def _padded(rows: list[list[int]]) -> np.ndarray:
    width = max(map(len, rows))
    return np.array([row + [0] * (width - len(row)) for row in rows], np.int32)
