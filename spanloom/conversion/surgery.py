"""Another vocabulary for a model: the rows of its embedding, and of a head of its own, are moved, all else stays."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from spanloom.model.params import T5, flatten, unflatten
from spanloom.settings.model import Model
from spanloom.vocabularies.correspondence import Correspondence

EMBEDDING = "token_embedder/embedding"
HEAD = "decoder/logits_dense/kernel"
_AT_ONCE = 4096  # rows made of parts in one go


def with_vocabulary(model: Model, params: T5, moved: Correspondence, rows: int) -> tuple[Model, T5]:
    """The model with `rows` rows, of which the first are those of the new vocabulary.

    A row that is copied is the same to the last bit. Rows beyond the vocabulary are those that the old model had beyond
    its own, then copies of padding's, which is never learnt as an answer. Float32; raises ValueError for too few rows.
    """
    if rows < len(moved.old_ids):
        raise ValueError(f"{rows} rows are too few for the {len(moved.old_ids)} ids of the new vocabulary")
    flat = flatten(params)
    flat[EMBEDDING] = moved_rows(np.asarray(flat[EMBEDDING], np.float32), moved, rows)
    if HEAD in flat:
        flat[HEAD] = np.ascontiguousarray(moved_rows(np.asarray(flat[HEAD], np.float32).T, moved, rows).T)
    model = replace(model, vocab_size=rows)
    return model, unflatten(model, flat)


def moved_rows(old_VxD: np.ndarray, moved: Correspondence, rows: int) -> np.ndarray:
    """The rows of the new vocabulary, (rows, D), out of those of the old."""
    beyond = [*range(moved.old_size, len(old_VxD)), *[0] * rows][: rows - len(moved.old_ids)]
    single = [ids[0] if len(ids) == 1 else 0 for ids in moved.old_ids]
    new_VxD = old_VxD[np.array([*single, *beyond], np.int64)]
    several = [token for token, ids in enumerate(moved.old_ids) if len(ids) > 1]
    for first in range(0, len(several), _AT_ONCE):
        tokens = several[first : first + _AT_ONCE]
        new_VxD[tokens] = _means(old_VxD, [moved.old_ids[token] for token in tokens])
    nothing = [token for token, ids in enumerate(moved.old_ids) if not ids]
    if nothing:
        new_VxD[nothing] = old_VxD[list(moved.text_ids)].mean(axis=0, dtype=np.float64)
    return new_VxD


def _means(old_VxD: np.ndarray, groups: Sequence[Sequence[int]]) -> np.ndarray:
    """The mean row of each group of ids, (groups, D)."""
    lengths = np.array([len(group) for group in groups])
    flat = np.concatenate([np.array(group, np.int64) for group in groups])
    sums = np.add.reduceat(old_VxD[flat].astype(np.float64), np.cumsum(lengths) - lengths, axis=0)
    return (sums / lengths[:, None]).astype(np.float32)
