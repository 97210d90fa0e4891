"""Span corruption of one piece of text, for tests: the package makes whole blocks."""

import numpy as np

from spanloom.settings.objectives import SpanCorruption
from spanloom.tasks.span_corruption import corrupt_block
from spanloom.vocabularies.vocabulary import Vocabulary


def corrupt_one(tokens_L: np.ndarray, key: int, objective: SpanCorruption, vocabulary: Vocabulary):
    """{"inputs": (S,), "targets": (T,)}, int32."""
    block = corrupt_block(np.asarray(tokens_L)[None], np.array([key], dtype=np.uint64), objective, vocabulary)
    return {"inputs": block.inputs[0], "targets": block.targets[0]}
