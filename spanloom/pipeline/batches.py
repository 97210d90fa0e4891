"""From inputs and targets of a block of examples to the arrays that one train step eats."""

from collections.abc import Sequence

import numpy as np

from spanloom.tasks.block import Block

Batch = dict[str, np.ndarray]


def pad_rows(rows: Sequence[np.ndarray], width: int, pad_id: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Rows of ids side by side, (N, width) int32, and their lengths, (N,) int64.

    Raises ValueError, with their number and the longest, if rows are longer than `width`.
    """
    lengths_N = np.array([len(row) for row in rows], np.int64)
    if (longest := int(lengths_N.max(initial=0))) > width:
        too_long = np.count_nonzero(lengths_N > width)
        raise ValueError(f"{too_long} of {len(rows)} rows are longer than {width} tokens; the longest has {longest}")
    padded_NxW = np.full((len(rows), width), pad_id, np.int32)
    for padded, row in zip(padded_NxW, rows, strict=True):
        padded[: len(row)] = row
    return padded_NxW, lengths_N


def to_batch(block: Block, bos_id: int = 0) -> Batch:
    """T5X's fields of an encoder-decoder batch, all int32.

    encoder_input_tokens (N, S); decoder_target_tokens (N, T); decoder_input_tokens (N, T), the targets shifted right
    with `bos_id` first; decoder_loss_weights (N, T), 1 at each real target token.
    """
    targets_NxT = block.targets
    weights_NxT = np.arange(targets_NxT.shape[1]) < block.target_lengths[:, None]
    return {
        "encoder_input_tokens": block.inputs,
        "decoder_target_tokens": targets_NxT,
        "decoder_input_tokens": shifted_right(targets_NxT, bos_id),
        "decoder_loss_weights": weights_NxT.astype(np.int32),
    }


def shifted_right(targets_NxT: np.ndarray, bos_id: int) -> np.ndarray:
    """Each row moved to the right by one, (N, T): `bos_id` first, the last id gone."""
    shifted_NxT = np.empty_like(targets_NxT)
    shifted_NxT[:, :1] = bos_id
    shifted_NxT[:, 1:] = targets_NxT[:, :-1]
    return shifted_NxT


def join_batches(batches: Sequence[Batch]) -> Batch:
    """Rows of several batches, in order."""
    if len(batches) == 1:
        return batches[0]
    return {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}


def fill_batch(batch: Batch, batch_size: int) -> Batch:
    """Adds rows of padding with weight 0 until there are `batch_size`."""
    missing = batch_size - len(batch["encoder_input_tokens"])
    return {name: np.pad(rows, ((0, missing), (0, 0))) for name, rows in batch.items()} if missing else batch
