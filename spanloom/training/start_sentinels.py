"""Whether the sentinels that a run uses were trained where it starts from: by its rows, and by what its run learnt."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from spanloom.conversion.sentinel_rows import FIRST
from spanloom.conversion.untrained_rows import Gather, Known, known_of, untrained
from spanloom.model.params import flatten
from spanloom.scale.mesh import Layout
from spanloom.settings.objectives import Supervised
from spanloom.settings.run import Run
from spanloom.settings.vocabulary import Bytes, SentencePiece, Vocabulary
from spanloom.tasks.objectives.build import denoiser_of
from spanloom.vocabularies.build import build
from spanloom.vocabularies.vocabulary import VocabularyError

_FEWER = (
    "To use trained ones only, mask fewer spans: longer ones (--task.objective.mean-span-length, where the objective "
    "has it) or in shorter inputs (--task.objective.inputs-length)"
)


def untrained_by_rows(
    path: Path, params: Any, layout: Layout | None, saved: tuple[Vocabulary | None, Run | None], run: Run
) -> list[str] | None:
    """A warning if rows of sentinels that this run's objective uses look untrained in the weights it starts from.

    `saved`: vocabulary and run of these weights, as far as they are known; sentinels that this run used are trained.
    None where the weights cannot tell.
    """
    count = sentinels_used(run, run.vocabulary)
    theirs, learnt = saved
    used = build(run.vocabulary).sentinels[:count]
    before = build(theirs).sentinels[: sentinels_used(learnt, theirs)] if theirs and learnt else ()
    asked = [one for one in used if one not in before]
    if not asked:
        return []
    matrices = _matrices(params, layout)
    vocabulary = theirs if type(theirs) is type(run.vocabulary) else run.vocabulary
    assert vocabulary is not None
    known = known_of(vocabulary, run.model.vocab_size, [*used, *before])
    if not (idle := untrained(matrices, known, asked)):
        return None if idle is None else []
    shown = ", ".join(map(str, idle[:3])) + (", ..." if len(idle) > 3 else "")
    warning = (
        f"the objective of this run uses {count} sentinels, and in the weights of {path} the embedding rows of "
        f"{len(idle)} of them look untrained (ids {shown}), like rows that no vocabulary uses. "
    )
    if idle[0] != used[0]:
        return [f"{warning}The first {used.index(idle[0])} were trained. {_FEWER}"]
    if other := _trained_elsewhere(matrices, known, vocabulary, used):
        return [f"{warning}The weights show other sentinels, {first_ids(build(other).sentinels)}: {flags(other)}"]
    return [
        f"{warning}Those of another convention do not look trained there either: this run has to teach them, or take "
        "an objective without sentinels (prefix LM)"
    ]


def _trained_elsewhere(
    matrices: Sequence[Gather], known: Known, vocabulary: Vocabulary, used: Sequence[int]
) -> Vocabulary | None:
    """The same vocabulary with sentinels whose first looks trained."""
    for other in _conventions(vocabulary):
        try:
            first = build(other).sentinels[:1]
        except VocabularyError:  # a model without sentinel pieces
            continue
        if first and first[0] != used[0] and first[0] not in known.idle and untrained(matrices, known, first) == ():
            return other
    return None


def _conventions(vocabulary: Vocabulary) -> list[Vocabulary]:
    if isinstance(vocabulary, Bytes):
        return [Bytes(name) for name in FIRST]  # type: ignore[arg-type]
    appended = [SentencePiece(vocabulary.path, "appended", count) for count in (vocabulary.extra_ids, 100, 300)]
    return [vocabulary, SentencePiece(vocabulary.path, "pieces", 0), *appended]


def _matrices(params: Any, layout: Layout | None) -> list[Gather]:
    """Rows of the embedding and, where it is apart, of the head."""
    flat = flatten(params)

    def gather(name: str, axis: int) -> Gather:
        array = flat[name]
        if isinstance(array, np.ndarray):
            return lambda ids: np.moveaxis(np.take(array, ids, axis), axis, 0)
        # every process has all of the rows then, wherever they lie
        take = jax.jit(lambda x, ids: jnp.take(x, ids, axis), out_shardings=layout.replicated if layout else None)
        return lambda ids: np.moveaxis(np.asarray(take(array, ids), np.float32), axis, 0)

    places = {"token_embedder/embedding": 0, "decoder/logits_dense/kernel": 1}
    return [gather(name, axis) for name, axis in places.items() if name in flat]


def untrained_by_run(path: Path, theirs_run: Run | None, their_vocabulary: Vocabulary | None, run: Run) -> list[str]:
    """A warning if this run masks more spans in an example than the run behind the start did: the rows of the other
    sentinels were never trained. Empty where nothing is known of that run.
    """
    ours = sentinels_used(run, run.vocabulary)
    if not ours or theirs_run is None or their_vocabulary is None:
        return []
    theirs = sentinels_used(theirs_run, their_vocabulary)
    if ours <= theirs:
        return []
    if theirs == 0:
        return [
            f"the run behind {path} learnt {theirs_run.task.name!r}, which has no sentinels, so it trained none "
            f"of the {ours} that this run uses: their embedding rows are as that run found them"
            + (f" in {theirs_run.start}" if theirs_run.start else ", that is, random")
        ]
    return [
        f"this run masks {ours} spans in an example and the one behind {path} masked {theirs}: the embedding "
        f"rows of the sentinels <extra_id_{theirs}> to <extra_id_{ours - 1}> begin untrained. {_FEWER}"
    ]


def sentinels_used(run: Run, vocabulary: Vocabulary) -> int:
    """Sentinels that a run's examples use for masked spans, at most; 0 for pairs."""
    built = build(vocabulary)
    masked = [task.objective for task in run.tasks if not isinstance(task.objective, Supervised)]
    return max((denoiser_of(objective, built).num_sentinels for objective in masked), default=0)


def flags(vocabulary: Vocabulary) -> str:
    """What to give a run so that it has these sentinels."""
    return f"--task.vocabulary.sentinels {vocabulary.sentinels} --task.vocabulary.extra-ids {vocabulary.extra_ids}"


def first_ids(sentinels: tuple[int, ...]) -> str:
    """The first of them, for a message."""
    return ", ".join(map(str, sentinels[:2])) + ", ..."
