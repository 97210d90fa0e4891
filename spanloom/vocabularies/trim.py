"""A SentencePiece model without the pieces that a text does not need.

Best segmentations stay what they are: scores are kept, and the best of all ways through a text that only uses kept
pieces is the best of those that are left. The lowest and the highest score, by which the library weighs unknown
characters and symbols, are kept, too.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from spanloom.vocabularies.pieces import NORMAL, UNUSED, Piece, algorithm_of, pieces_of, with_only
from spanloom.vocabularies.vocabulary import Vocabulary, VocabularyError

_SPECIAL = 3


@dataclass(frozen=True)
class Choice:
    """Which pieces are kept, beside those that must be; one of the three is set."""

    keep: int | None = None
    """So many pieces in all, sentinels not counted: the most frequent ones."""
    min_count: int | None = None
    """Those that the text uses so often, or more."""
    coverage: float | None = None
    """The fewest, most frequent ones that make up this share of the text's tokens."""


@dataclass(frozen=True)
class Trimmed:
    """A smaller model."""

    model: bytes
    """The file."""
    old_ids: tuple[int, ...]
    """The id that each piece had in the file before."""


def check(choice: Choice) -> None:
    """Raise VocabularyError unless exactly one of the ways to choose is set, to something that can be."""
    given = [value for value in (choice.keep, choice.min_count, choice.coverage) if value is not None]
    if len(given) != 1:
        raise VocabularyError("give one of --keep N, --min-count K and --coverage SHARE")
    if choice.keep is not None and choice.keep <= _SPECIAL:
        raise VocabularyError(f"--keep {choice.keep}: must be above {_SPECIAL}, the special pieces")
    if choice.min_count is not None and choice.min_count < 1:
        raise VocabularyError(f"--min-count {choice.min_count}: must be 1 or more")
    if choice.coverage is not None and not 0 < choice.coverage <= 1:
        raise VocabularyError(f"--coverage {choice.coverage}: must be above 0 and at most 1")


def count_pieces(vocabulary: Vocabulary, texts: Iterable[str]) -> npt.NDArray[np.int64]:
    """How often each id stands in the texts, (ids,)."""
    counts = np.zeros(vocabulary.size, np.int64)
    for text in texts:
        ids, often = np.unique(vocabulary.encode(text), return_counts=True)
        counts[ids] += often
    return counts


def trim(model: bytes, sentinels: Sequence[int], counts: npt.NDArray[np.int64], choice: Choice) -> Trimmed:
    """The model with only the pieces that are chosen by how often each id was counted.

    Kept in any case: special pieces, `sentinels`, symbols, bytes, and the single characters of all that was counted, so
    that nothing becomes unknown. Raises VocabularyError for models that are not unigram, and where more must be kept
    than `choice.keep` allows.
    """
    check(choice)
    if (kind := algorithm_of(model)) != "unigram":
        raise VocabularyError(
            f"it is a model of type {kind}, whose pieces are made by merging others: only unigram models can lose "
            "pieces and cut all other text as before. Train a smaller one (spanloom vocab train) and move to it "
            "(--follow.vocabulary by_piece)"
        )
    pieces = pieces_of(model)
    if any(piece.kind == NORMAL for piece in pieces[:_SPECIAL]):
        raise VocabularyError("its special pieces do not come first, so their ids would change: retrain it with them")
    needed = _needed(pieces, sentinels, counts)
    order = [token for token in np.argsort(-counts[: len(pieces)], kind="stable").tolist() if counts[token] > 0]
    chosen = _chosen(order, needed, set(sentinels), counts, choice)
    kept = tuple(sorted(needed | chosen))
    return Trimmed(with_only(model, kept), kept)


def _chosen(
    order: list[int], needed: set[int], sentinels: set[int], counts: npt.NDArray[np.int64], choice: Choice
) -> set[int]:
    """Of the ids in `order`, the most frequent first, those that are kept."""
    if choice.min_count is not None:
        return {token for token in order if counts[token] >= choice.min_count}
    if choice.coverage is not None:
        if not order:
            return set()
        covered = np.cumsum(counts[order])
        most = int(np.searchsorted(covered, choice.coverage * covered[-1])) + 1
        return set(order[:most])
    assert choice.keep is not None, "check was called"
    room = choice.keep - len(needed - sentinels)
    if room < 0:
        raise VocabularyError(
            f"--keep {choice.keep} is too few: special pieces, symbols, bytes and single characters of the text are "
            f"{len(needed - sentinels):,}. Raise --keep, or give less text"
        )
    return set([token for token in order if token not in needed][:room])


def _needed(pieces: Sequence[Piece], sentinels: Sequence[int], counts: npt.NDArray[np.int64]) -> set[int]:
    """Ids that are kept whatever is chosen."""
    apart = {token for token, piece in enumerate(pieces) if piece.kind not in (NORMAL, UNUSED)}
    apart |= {token for token in sentinels if token < len(pieces)}
    normal = [token for token, piece in enumerate(pieces) if piece.kind == NORMAL]
    by_score: Callable[[int], float] = lambda token: pieces[token].score  # noqa: E731
    edges = {min(normal, key=by_score), max(normal, key=by_score)} if normal else set()
    letters = {letter for token in np.flatnonzero(counts[: len(pieces)]).tolist() for letter in pieces[token].text}
    single = {token for token in normal if len(pieces[token].text) == 1 and pieces[token].text in letters}
    return apart | edges | single


def table(pieces: Sequence[Piece], trimmed: Trimmed, counts: npt.NDArray[np.int64]) -> bytes:
    """The pieces that are kept as TSV: old id, new id, piece, how often it was counted."""
    lines = ["old_id\tnew_id\tpiece\tcount"]
    for new, old in enumerate(trimmed.old_ids):
        text = pieces[old].text.replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n")
        lines.append(f"{old}\t{new}\t{text}\t{counts[old]}")
    return ("\n".join(lines) + "\n").encode("utf-8")
