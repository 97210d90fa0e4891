"""What a held-out loss is worth: unigram and bigram models of the training text on the very same target tokens.

They are given more than the model gets: sentinels and end of sequence, which say where spans begin and end, cost them
nothing. The bigram model knows the token before each token: the one before it in the target or, for the first token of
a span, the last token of text before the gap in the input. Their smoothing is tuned on training text alone.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from spanloom.vocabularies.vocabulary import Vocabulary

IntArray = npt.NDArray[np.integer]
FloatArray = npt.NDArray[np.float64]

NO_CONTEXT = -1
PRIORS = (0.5, 0.01, 0.03, 0.1, 0.3, 1.0)  # pseudo-counts tried for each token of the unigram model
DISCOUNTS = (0.75, 0.1, 0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)  # tried for the bigram model
TUNING_PART = 10  # every tenth piece of the text is for choosing among them
PIECE = 4096  # tokens at most, fewer in a short text
MOST_TOKENS = 2**25  # counted at most, from the beginning of the store: enough for both models


@dataclass(frozen=True)
class Unigram:
    """Frequencies of tokens, with a pseudo-count for each."""

    log_probs: FloatArray
    """Natural logarithm of the probability of each id, (ids,); minus infinity for what is not text."""

    def score(self, contexts: IntArray, tokens: IntArray) -> FloatArray:
        """Log-probability of each token, whatever its context; float64, the shape of `tokens`."""
        return self.log_probs[tokens]


@dataclass(frozen=True)
class Bigram:
    """Interpolated absolute discounting (Ney, Essen and Kneser 1994): every pair seen gives up a share of its count."""

    unigram: Unigram
    pairs: IntArray
    """context * ids + token of every pair seen, ascending, int64."""
    counts: IntArray
    """How often each pair was seen, int64."""
    context_counts: IntArray
    """How often each context was seen, (ids,) int64."""
    context_kinds: IntArray
    """How many different tokens follow each context, (ids,) int64."""
    discount: float
    """What is taken from every count."""

    def score(self, contexts: IntArray, tokens: IntArray) -> FloatArray:
        """Log-probability of each token after its context, the unigram model's where the context was never seen."""
        contexts, tokens = np.asarray(contexts, np.int64), np.asarray(tokens, np.int64)
        lower = self.unigram.score(contexts, tokens)
        known = contexts != NO_CONTEXT
        total = np.where(known, self.context_counts[contexts], 0)
        seen = _look_up(self.pairs, self.counts, contexts * len(self.context_counts) + tokens)
        kept = np.maximum(seen - self.discount, 0.0)
        given = self.discount * self.context_kinds[contexts]
        mixed = (kept + given * np.exp(lower)) / np.maximum(total, 1)
        with np.errstate(divide="ignore"):  # what is not text has probability 0
            return np.where(total > 0, np.log(mixed), lower)


@dataclass(frozen=True)
class Losses:
    """Cross-entropy in nats on held-out targets."""

    loss: float
    """Per target token, where sentinels and end of sequence cost nothing."""
    text_loss: float
    """Per token of text alone."""


def baseline_losses(
    training_text: Iterable[IntArray], batches: Iterable[Mapping[str, IntArray]], vocabulary: Vocabulary
) -> tuple[dict[str, Losses], int]:
    """Losses of the "unigram" and the "bigram" model on the targets of `batches`, and how many targets there are.

    Fields are as the pipeline makes them, one example a row. `training_text` is the token stream in blocks, such as
    `Store.blocks()`. Raises ValueError where either is empty.
    """
    unigram, bigram = fit(training_text, vocabulary)
    models: dict[str, Unigram | Bigram] = {"unigram": unigram, "bigram": bigram}
    sums, tokens, text_tokens = dict.fromkeys(models, 0.0), 0, 0
    for batch in batches:
        targets_BxT = np.asarray(batch["decoder_target_tokens"])
        real_BxT = np.asarray(batch["decoder_loss_weights"]) > 0
        text_BxT = real_BxT & ~np.isin(targets_BxT, _marks(vocabulary))
        contexts = contexts_of(batch, vocabulary)[text_BxT]
        for name, model in models.items():
            sums[name] -= float(model.score(contexts, targets_BxT[text_BxT]).sum())
        tokens, text_tokens = tokens + int(real_BxT.sum()), text_tokens + int(text_BxT.sum())
    if not text_tokens:
        raise ValueError("the held-out batches hold no text to compare baselines on; keep more documents out")
    return {name: Losses(total / tokens, total / text_tokens) for name, total in sums.items()}, tokens


def fit(training_text: Iterable[IntArray], vocabulary: Vocabulary) -> tuple[Unigram, Bigram]:
    """Both models, smoothed by what suits a tenth of the training text best, then counted on all of it.

    Raises ValueError if there is no training text.
    """
    text = _first_tokens(training_text)
    if not np.any(~np.isin(text, [*_marks(vocabulary), vocabulary.pad_id])):
        raise ValueError("there is no training text to count for the unigram and bigram baselines")
    size = max(1, min(PIECE, len(text) // (2 * TUNING_PART)))
    pieces = [text[i : i + size + 1] for i in range(0, len(text), size)]  # one token shared: pairs are complete
    tuning = pieces[TUNING_PART - 1 :: TUNING_PART]
    counted = [p for i, p in enumerate(pieces) if i % TUNING_PART != TUNING_PART - 1]
    contexts, tokens = _pairs_in(tuning, vocabulary)

    def cost(model: Unigram | Bigram) -> float:
        return -float(model.score(contexts, tokens).sum())

    trial = _Counts.of(counted, vocabulary)
    prior = min(PRIORS, key=lambda prior: cost(trial.unigram(prior)))
    discount = min(DISCOUNTS, key=lambda discount: cost(trial.bigram(prior, discount)))
    whole = _Counts.of(pieces, vocabulary)
    return whole.unigram(prior), whole.bigram(prior, discount)


def contexts_of(batch: Mapping[str, IntArray], vocabulary: Vocabulary) -> IntArray:
    """The token that the bigram model knows before each target, (B, T) int64; NO_CONTEXT where there is none."""
    inputs_BxS = np.asarray(batch["encoder_input_tokens"], np.int64)
    targets_BxT = np.asarray(batch["decoder_target_tokens"], np.int64)
    numbers = np.full(_num_ids(vocabulary), -1)
    numbers[list(vocabulary.sentinels)] = np.arange(len(vocabulary.sentinels))
    before_BxK = np.full((len(inputs_BxS), max(len(vocabulary.sentinels), 1)), NO_CONTEXT)
    rows, places = np.nonzero(numbers[inputs_BxS] >= 0)
    text_before = np.where(places > 0, inputs_BxS[rows, places - 1], NO_CONTEXT)
    text_before[np.isin(text_before, vocabulary.sentinels)] = NO_CONTEXT
    before_BxK[rows, numbers[inputs_BxS[rows, places]]] = text_before
    previous_BxT = np.pad(targets_BxT, ((0, 0), (1, 0)), constant_values=vocabulary.pad_id)[:, :-1]
    number_BxT = numbers[previous_BxT]
    before_gap_BxT = np.take_along_axis(before_BxK, np.maximum(number_BxT, 0), axis=1)
    contexts_BxT = np.where(number_BxT >= 0, before_gap_BxT, previous_BxT)
    return np.where(contexts_BxT == vocabulary.pad_id, NO_CONTEXT, contexts_BxT)


@dataclass(frozen=True)
class _Counts:
    """Tokens of text and pairs that end in one. Contexts may be ends of sequence too: a document's beginning."""

    text: npt.NDArray[np.bool_]  # (ids,) what may be predicted
    tokens: IntArray  # (ids,)
    pairs: IntArray  # ascending
    pair_counts: IntArray

    @classmethod
    def of(cls, pieces: list[IntArray], vocabulary: Vocabulary) -> "_Counts":
        ids = _num_ids(vocabulary)
        text = np.ones(ids, bool)
        text[[*_marks(vocabulary), vocabulary.pad_id]] = False
        contexts, tokens = _pairs_in(pieces, vocabulary)
        pairs, counts = np.unique(contexts * ids + tokens, return_counts=True)
        return cls(text, np.bincount(tokens, minlength=ids), pairs, counts)

    def unigram(self, prior: float) -> Unigram:
        weights = np.where(self.text, self.tokens + prior, 0.0)
        with np.errstate(divide="ignore"):
            return Unigram(np.log(weights / weights.sum()))

    def bigram(self, prior: float, discount: float) -> Bigram:
        ids = len(self.text)
        contexts = self.pairs // ids
        totals = np.bincount(contexts, weights=self.pair_counts, minlength=ids).astype(np.int64)
        kinds = np.bincount(contexts, minlength=ids)
        return Bigram(self.unigram(prior), self.pairs, self.pair_counts, totals, kinds, discount)


def _pairs_in(pieces: list[IntArray], vocabulary: Vocabulary) -> tuple[IntArray, IntArray]:
    """Every token of text with the one before it, flat int64 arrays."""
    marks = [*_marks(vocabulary), vocabulary.pad_id]
    contexts = np.concatenate([np.empty(0, np.int64), *(piece[:-1] for piece in pieces)]).astype(np.int64)
    tokens = np.concatenate([np.empty(0, np.int64), *(piece[1:] for piece in pieces)]).astype(np.int64)
    is_text = ~np.isin(tokens, marks)
    return contexts[is_text], tokens[is_text]


def _first_tokens(blocks: Iterable[IntArray]) -> IntArray:
    kept, count = [np.empty(0, np.int64)], 0
    for block in blocks:
        kept.append(np.asarray(block[: MOST_TOKENS - count], np.int64))
        count += len(kept[-1])
        if count >= MOST_TOKENS:
            break
    return np.concatenate(kept)


def _look_up(keys: IntArray, values: IntArray, wanted: IntArray) -> IntArray:
    """The value of each wanted key among ascending keys, 0 where it is missing."""
    if not len(keys):
        return np.zeros(wanted.shape, np.int64)
    places = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.where(keys[places] == wanted, values[places], 0)


def _marks(vocabulary: Vocabulary) -> list[int]:
    return [vocabulary.eos_id, *vocabulary.sentinels]


def _num_ids(vocabulary: Vocabulary) -> int:
    return max(vocabulary.highest_id, vocabulary.eos_id) + 1
