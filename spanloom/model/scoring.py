"""How likely a model finds given targets, as T5X's score_batch has it: log-probabilities, end of sequence included."""

import functools
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from spanloom.model.loss import head_loss
from spanloom.model.params import T5
from spanloom.model.placement import ANYWHERE, Placement
from spanloom.model.t5 import decode, encode
from spanloom.settings.model import Model
from spanloom.settings.run import Loss


@functools.partial(jax.jit, static_argnames=("config", "place"))
def token_log_probs(params: T5, config: Model, batch: Mapping[str, Any], *, place: Placement = ANYWHERE) -> jax.Array:
    """Log-probability of each target token, float32 (B, T); 0 at padding. No dropout, no z-loss, no smoothing.

    `batch`: int32 `encoder_input_tokens` (B, S), `decoder_target_tokens` and `decoder_input_tokens` (B, T). A row may
    hold several targets of its one input, told apart by `decoder_segment_ids` (B, T), 1 and up, each with a decoder
    input that begins with 0: the input is then encoded, and made into keys and values, once for all of them.
    """
    inputs_BxS, targets_BxT = batch["encoder_input_tokens"], batch["decoder_target_tokens"]
    encoded_BxSxE = encode(params, config, inputs_BxS, place=place)
    hidden_BxTxE = decode(
        params,
        config,
        encoded_BxSxE,
        inputs_BxS,
        batch["decoder_input_tokens"],
        targets_BxT,
        decoder_segment_ids=batch.get("decoder_segment_ids"),
        place=place,
    )
    real_BxT = (targets_BxT > 0).astype(jnp.float32)
    losses = head_loss(params, config, Loss(z_loss=0.0), hidden_BxTxE, targets_BxT, real_BxT, place)[1]
    return -losses.cross_entropy * real_BxT
