"""From examples, packed or one a row, to the fields that T5X's models eat.

What an example is, is told by its offsets, never by its ids: a 0 inside a text is a token like any other, and an
example without targets still counts, so that its segment has the same number on both sides.
"""

import numpy as np
import numpy.typing as npt

from spanloom.pipeline.batches import Batch, shifted_right
from spanloom.pipeline.shards import Ragged, ragged

IntArray = npt.NDArray[np.integer]
RowOffsets = IntArray | None
"""(rows + 1,) where the examples of each packed row begin; None: one example a row, unpacked."""


def encoder_decoder_rows(
    inputs: Ragged, targets: Ragged, slots: tuple[int, int], rows: RowOffsets = None, bos_id: int = 0
) -> Batch:
    """Fields of an encoder-decoder batch, int32: (rows, slots[0]) for the encoder, (rows, slots[1]) for the decoder.

    Inputs and targets end as the task has it (end of sequence included). encoder_input_tokens; decoder_target_tokens;
    decoder_input_tokens, each segment's targets shifted right with `bos_id` first; decoder_loss_weights, 1 at each
    target token; packed rows also have {encoder,decoder}_segment_ids, from 1 in order of the row's examples, and
    {encoder,decoder}_positions, from 0 in each segment. Padding is 0, but for the last target that the shift moves into
    it where rows are not packed.
    Raises ValueError, with their number and the longest, if rows are longer than a slot.
    """
    encoder, decoder = (_Places(part, slot, rows) for part, slot in zip((inputs, targets), slots, strict=True))
    return {
        "encoder_input_tokens": encoder.put(inputs.values),
        **({} if rows is None else encoder.segments("encoder")),
        **_decoder_fields(decoder, targets, bos_id, decoder.put(1)),
    }


def decoder_rows(targets: Ragged, slot: int, rows: RowOffsets = None, bos_id: int = 0) -> Batch:
    """Fields of a decoder-only batch (language modelling), all (rows, slot) int32: those of the decoder, as above."""
    places = _Places(targets, slot, rows)
    return _decoder_fields(places, targets, bos_id, places.put(1))


def prefix_rows(
    inputs: Ragged,
    targets: Ragged,
    slot: int,
    rows: RowOffsets = None,
    bos_id: int = 0,
    *,
    loss_on_targets_only: bool = True,
) -> Batch:
    """Fields of a prefix-LM batch, all (rows, slot) int32: inputs and targets as one sequence in the decoder.

    As `decoder_rows`, with decoder_causal_attention: 1 where a token is seen by all of its segment, which are the
    inputs and, as in T5X, the position after them. Inputs have loss weight 1 only without `loss_on_targets_only`.
    """
    prefixes_E, both = np.diff(inputs.offsets), joined(inputs, targets)
    places = _Places(both, slot, rows)
    past_prefix_K = places.within_K - np.repeat(prefixes_E, places.lengths_E)
    weights = places.put(past_prefix_K >= 0) if loss_on_targets_only else places.put(1)
    fields = _decoder_fields(places, both, bos_id, weights)
    return fields | {"decoder_causal_attention": places.put(past_prefix_K <= 0)}


def joined(inputs: Ragged, targets: Ragged) -> Ragged:
    """Each example's inputs and targets as one row."""
    lengths_Ex2 = np.stack([np.diff(inputs.offsets), np.diff(targets.offsets)], axis=1)
    is_input_K = np.repeat(np.tile([True, False], len(lengths_Ex2)), lengths_Ex2.ravel())
    values_K = np.empty(len(is_input_K), np.int32)
    values_K[is_input_K] = inputs.values
    values_K[~is_input_K] = targets.values
    return ragged(values_K, lengths_Ex2.sum(axis=1))


def trimmed(tokens: Ragged, width: int) -> Ragged:
    """Each row cut at the right to at most `width` tokens."""
    lengths_E = np.diff(tokens.offsets)
    within_K = np.arange(len(tokens.values)) - np.repeat(tokens.offsets[:-1], lengths_E)
    return ragged(tokens.values[within_K < width], np.minimum(lengths_E, width))


def _decoder_fields(places: "_Places", tokens: Ragged, bos_id: int, weights_NxT: IntArray) -> Batch:
    targets_NxT = places.put(tokens.values)
    inputs_NxT = shifted_right(targets_NxT, bos_id)
    if places.rows is not None:
        is_first_NxT, is_token_NxT = places.put(places.within_K == 0), places.put(1)
        inputs_NxT = np.where(is_first_NxT, bos_id, inputs_NxT * is_token_NxT).astype(np.int32)
    return {
        "decoder_target_tokens": targets_NxT,
        "decoder_input_tokens": inputs_NxT,
        "decoder_loss_weights": weights_NxT,
        **({} if places.rows is None else places.segments("decoder")),
    }


class _Places:
    """Where the K tokens of E examples stand in the rows of a batch."""

    def __init__(self, tokens: Ragged, width: int, rows: RowOffsets):
        self.rows = rows
        self.lengths_E = np.diff(tokens.offsets)
        offsets_R = np.arange(len(self.lengths_E) + 1) if rows is None else rows
        if offsets_R[0] != 0 or offsets_R[-1] != len(self.lengths_E):
            raise ValueError(f"rows of {offsets_R[-1]} examples, but there are {len(self.lengths_E)}")
        self.shape = len(offsets_R) - 1, width
        row_starts_R = tokens.offsets[offsets_R]
        _check_widths(np.diff(row_starts_R), width)
        self._examples_R = np.diff(offsets_R)
        self._first_R = offsets_R[:-1]
        row_of_K = np.repeat(np.arange(self.shape[0]), np.diff(row_starts_R))
        numbers_K = np.arange(len(tokens.values))
        self._places_K = numbers_K + (row_of_K * width - row_starts_R[row_of_K])
        self.within_K = numbers_K - np.repeat(tokens.offsets[:-1], self.lengths_E)

    def put(self, values: IntArray | npt.NDArray[np.bool_] | int) -> IntArray:
        """(rows, width) int32 with a value at each token and 0 elsewhere."""
        flat = np.zeros(self.shape[0] * self.shape[1], np.int32)
        flat[self._places_K] = values
        return flat.reshape(self.shape)

    def segments(self, side: str) -> Batch:
        """Segment ids and positions."""
        segments_E = np.arange(1, len(self.lengths_E) + 1) - np.repeat(self._first_R, self._examples_R)
        return {
            f"{side}_segment_ids": self.put(np.repeat(segments_E, self.lengths_E)),
            f"{side}_positions": self.put(self.within_K),
        }


def _check_widths(lengths_R: IntArray, width: int) -> None:
    if (longest := int(lengths_R.max(initial=0))) > width:
        too_long = np.count_nonzero(lengths_R > width)
        rows = f"{too_long} of {len(lengths_R)} rows"
        raise ValueError(f"{rows} are longer than {width} tokens; the longest has {longest}")
