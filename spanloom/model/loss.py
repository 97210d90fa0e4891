"""The loss of T5X: cross-entropy with z-loss and label smoothing, its normalisers, and what is measured beside it.

The head and the softmax are computed for a few target positions at a time, and the gradient along with the value, so
that logits of shape (B, T, V) never exist whole: the idea of Liger Kernel (Hsu et al. 2024) in plain JAX.
"""

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from spanloom.model import params as tree
from spanloom.model.placement import ANYWHERE, Placement
from spanloom.model.t5 import Batch, hidden_states
from spanloom.settings.model import Model
from spanloom.settings.run import Loss, Normalizer

CHUNK_BYTES = 128 * 1024 * 1024
"""Of float32 logits that a device has at a time; small vocabularies and batches are one chunk."""

NORMALIZED = "normalized_weights"
"""Field of a part of a batch: what `normalized_weights` gives for its rows of the whole."""

Metrics = dict[str, jax.Array]


class TokenLosses(NamedTuple):
    """What each target token costs, unweighted, float32 (B, T), and whether no token was likelier than the target."""

    cross_entropy: jax.Array
    z_loss: jax.Array
    correct: jax.Array


@dataclass(frozen=True)
class _Head:
    """What fixes the computation: settings of the loss, whether the kernel is the (V, E) embedding, and into how many
    parts the batch is divided.
    """

    z_loss: float
    label_smoothing: float
    tied: bool
    batch_shards: int


def loss_and_metrics(
    params: tree.T5,
    config: Model,
    loss: Loss,
    batch: Batch,
    dropout_key: jax.Array | None = None,
    place: Placement = ANYWHERE,
) -> tuple[jax.Array, Metrics]:
    """The loss to minimise (float32 scalar) and sums that add up over batches (float32 scalars).

    `batch`: int32 (B, S) `encoder_input_tokens`; (B, T) `decoder_target_tokens`, `decoder_input_tokens`; if packed,
    `encoder_segment_ids` and `decoder_segment_ids`; optional `decoder_loss_weights` (unset: 1 where the
    target is not padding). Metrics, weighted by the loss weights but not normalised: `loss_sum` (with z-loss),
    `cross_entropy_sum`, `z_loss_sum`, `correct_sum`, `weight_sum`, and `num_sequences`, the sequences (segments, if
    packed) that have any weight.
    """
    hidden_BxTxE = hidden_states(params, config, batch, dropout_key, place)
    return loss_from_hidden(params, config, loss, hidden_BxTxE, batch, place)


def loss_from_hidden(
    params: tree.T5,
    config: Model,
    loss: Loss,
    hidden_BxTxE: jax.Array,
    batch: Batch,
    place: Placement = ANYWHERE,
) -> tuple[jax.Array, Metrics]:
    """`loss_and_metrics` after the decoder's last norm: head, losses, normaliser."""
    weights_BxT = loss_weights(batch)
    normalized_BxT = batch.get(NORMALIZED)
    if normalized_BxT is None:
        normalized_BxT = normalized_weights(loss, batch)
    targets_BxT = batch["decoder_target_tokens"]
    value, tokens = head_loss(params, config, loss, hidden_BxTxE, targets_BxT, normalized_BxT, place)
    cross_entropy = jnp.sum(tokens.cross_entropy * weights_BxT)
    z_loss = jnp.sum(tokens.z_loss * weights_BxT)
    metrics = {
        "loss_sum": cross_entropy + z_loss,
        "cross_entropy_sum": cross_entropy,
        "z_loss_sum": z_loss,
        "correct_sum": jnp.sum(tokens.correct * weights_BxT),
        "weight_sum": jnp.sum(weights_BxT),
        "num_sequences": jnp.round(jnp.sum(weights_per_sequence(batch, weights_BxT))),
    }
    return value, metrics


def token_losses(
    params: tree.T5,
    config: Model,
    loss: Loss,
    batch: Batch,
    dropout_key: jax.Array | None = None,
    place: Placement = ANYWHERE,
) -> TokenLosses:
    """What each target token of a batch costs, (B, T), unweighted and with no gradient: for evaluation and scoring."""
    hidden_BxTxE = hidden_states(params, config, batch, dropout_key, place)
    targets_BxT = batch["decoder_target_tokens"]
    return head_loss(params, config, loss, hidden_BxTxE, targets_BxT, loss_weights(batch), place)[1]


def normalized_weights(loss: Loss, batch: Mapping[str, Any]) -> jax.Array:
    """What each target token of a batch counts in its loss, float32 (B, T), the normaliser divided in.

    A part of a batch that carries its rows of it under NORMALIZED has its part of the batch's loss, exactly.
    """
    weights_BxT = loss_weights(batch)
    return normalize_weights(loss.normalizer, weights_BxT, weights_per_sequence(batch, weights_BxT))


def loss_weights(batch: Mapping[str, Any]) -> jax.Array:
    """Weights of the targets, float32 (B, T): the batch's own, else 1 where the target is not padding."""
    weights = batch.get("decoder_loss_weights")
    return (batch["decoder_target_tokens"] > 0 if weights is None else weights).astype(jnp.float32)


def weights_per_sequence(batch: Mapping[str, Any], weights_BxT: jax.Array) -> jax.Array:
    """Weights divided by their sum over the token's sequence (its segment, if packed); 0 where that sum is 0."""
    segments_BxT = batch.get("decoder_segment_ids")
    if segments_BxT is None:
        total = jnp.sum(weights_BxT, axis=1, keepdims=True)
    else:
        same_BxTxT = segments_BxT[:, :, None] == segments_BxT[:, None, :]
        total = jnp.sum(jnp.where(same_BxTxT, weights_BxT[:, None, :], 0.0), axis=-1)
    return weights_BxT / jnp.where(total == 0, 1.0, total)


def normalize_weights(normalizer: Normalizer, weights_BxT: jax.Array, per_sequence_BxT: jax.Array) -> jax.Array:
    """The weights with the normaliser divided in, so that the loss is a plain weighted sum of token losses.

    A batch without any weight has loss 0, not NaN.
    """
    match normalizer:
        case "sum":
            return weights_BxT
        case "real_tokens":
            total = jnp.sum(weights_BxT)
            return weights_BxT / jnp.where(total == 0, 1.0, total)
        case "all_tokens":
            return weights_BxT / weights_BxT.size
        case "sequences":
            total = jnp.sum(per_sequence_BxT)
            return per_sequence_BxT / jnp.where(total == 0, 1.0, total)
        case int() | float():
            if not normalizer > 0:
                raise ValueError(f"loss.normalizer is {normalizer}; a number must be above 0")
            return weights_BxT / normalizer
    names = "'sum', 'real_tokens', 'all_tokens', 'sequences' or a number"
    raise ValueError(f"loss.normalizer is {normalizer!r}; it must be {names}")


def head_loss(
    params: tree.T5,
    config: Model,
    loss: Loss,
    hidden_BxTxE: jax.Array,
    targets_BxT: jax.Array,
    weights_BxT: jax.Array,
    place: Placement = ANYWHERE,
) -> tuple[jax.Array, TokenLosses]:
    """Sum over tokens of weight * (cross-entropy + z-loss), from the decoder's output, and each token's losses.

    Differentiable in the hidden states and the head's weights through the sum only; the tokens' losses are constants.
    """
    hidden_BxTxE = hidden_BxTxE.astype(jnp.float32)
    specs = tree.declare(config)
    if params.decoder.logits_dense is None:
        kernel = place.weights(params.token_embedder, specs.token_embedder).embedding
        hidden_BxTxE = hidden_BxTxE / math.sqrt(config.d_model)
    else:
        kernel = place.weights(params.decoder.logits_dense, specs.decoder.logits_dense).kernel
    tied = params.decoder.logits_dense is None
    head = _Head(loss.z_loss, loss.label_smoothing, tied, place.batch_shards)
    value, tokens = _weighted_loss(head, hidden_BxTxE, kernel, targets_BxT, weights_BxT)
    return value, jax.lax.stop_gradient(tokens)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _weighted_loss(
    head: _Head, hidden_BxTxE: jax.Array, kernel: jax.Array, targets_BxT: jax.Array, weights_BxT: jax.Array
) -> tuple[jax.Array, TokenLosses]:
    def step(_: None, chunk: tuple[jax.Array, ...]) -> tuple[None, TokenLosses]:
        hidden, targets, _weights = chunk
        return None, _token_losses(head, _logits(head, hidden, kernel), targets)[0]

    tokens = _over_chunks(step, None, kernel, head, (hidden_BxTxE, targets_BxT, weights_BxT))[1]
    return _weighted_sum(tokens, weights_BxT), tokens


def _forward(
    head: _Head, hidden_BxTxE: jax.Array, kernel: jax.Array, targets_BxT: jax.Array, weights_BxT: jax.Array
) -> tuple[tuple[jax.Array, TokenLosses], tuple[jax.Array, jax.Array]]:
    """Value and gradients in one pass: the loss is a weighted sum, so its gradient needs nothing from later."""

    def step(kernel_gradient: jax.Array, chunk: tuple[jax.Array, ...]) -> tuple[jax.Array, Any]:
        hidden, targets, weights = chunk
        logits = _logits(head, hidden, kernel)
        tokens, softmax = _token_losses(head, logits, targets)
        slope = _logits_gradient(head, softmax, targets, weights)
        if head.tied:
            hidden_gradient = jnp.einsum("bcv,ve->bce", slope, kernel)
            kernel_gradient = kernel_gradient + jnp.einsum("bcv,bce->ve", slope, hidden)
        else:
            hidden_gradient = jnp.einsum("bcv,ev->bce", slope, kernel)
            kernel_gradient = kernel_gradient + jnp.einsum("bce,bcv->ev", hidden, slope)
        return kernel_gradient, (tokens, hidden_gradient)

    chunks = (hidden_BxTxE, targets_BxT, weights_BxT)
    gradient, (tokens, hidden_gradient) = _over_chunks(step, jnp.zeros_like(kernel), kernel, head, chunks)
    return (_weighted_sum(tokens, weights_BxT), tokens), (hidden_gradient, gradient)


def _backward(
    head: _Head, gradients: tuple[jax.Array, jax.Array], cotangents: tuple[jax.Array, TokenLosses]
) -> tuple[jax.Array, jax.Array, None, None]:
    scale = cotangents[0]
    return gradients[0] * scale, gradients[1] * scale, None, None


_weighted_loss.defvjp(_forward, _backward)


def _weighted_sum(tokens: TokenLosses, weights_BxT: jax.Array) -> jax.Array:
    return jnp.sum((tokens.cross_entropy + tokens.z_loss) * weights_BxT)


def _over_chunks(step: Any, carry: Any, kernel: jax.Array, head: _Head, arrays: tuple[jax.Array, ...]) -> Any:
    """Scan `step` over pieces of the length axis; one piece if its logits are small enough. Like lax.scan otherwise."""
    batch, length = arrays[1].shape
    vocabulary = kernel.shape[0] if head.tied else kernel.shape[1]
    size = _chunk_length(length, batch * vocabulary * 4 / head.batch_shards)
    chunks = math.ceil(length / size)
    if chunks == 1:
        return step(carry, arrays)

    def cut(x: jax.Array) -> jax.Array:
        padded = jnp.pad(x, [(0, 0), (0, chunks * size - length)] + [(0, 0)] * (x.ndim - 2))
        return jnp.moveaxis(padded.reshape(batch, chunks, size, *x.shape[2:]), 1, 0)

    def join(x: jax.Array) -> jax.Array:
        return jnp.moveaxis(x, 0, 1).reshape(batch, chunks * size, *x.shape[3:])[:, :length]

    carry, outputs = jax.lax.scan(step, carry, tuple(cut(x) for x in arrays))
    return carry, jax.tree.map(join, outputs)


def _chunk_length(length: int, position_bytes: float) -> int:
    """Positions of a chunk: as many as fit, or somewhat fewer if then nothing need be padded."""
    chunks = max(1, math.ceil(length * position_bytes / CHUNK_BYTES))
    most = math.ceil(length / min(chunks, length))
    return next((size for size in range(most, most // 2, -1) if length % size == 0), most)


def _logits(head: _Head, hidden_BxCxE: jax.Array, kernel: jax.Array) -> jax.Array:
    return jnp.einsum("bce,ve->bcv" if head.tied else "bce,ev->bcv", hidden_BxCxE, kernel)


class _Softmax(NamedTuple):
    """exp(logits - largest) (B, C, V), and per token (B, C) their sum and log Z."""

    powers: jax.Array
    total: jax.Array
    log_z: jax.Array


def _token_losses(head: _Head, logits_BxCxV: jax.Array, targets_BxC: jax.Array) -> tuple[TokenLosses, _Softmax]:
    largest = jnp.max(logits_BxCxV, axis=-1)
    powers = jnp.exp(logits_BxCxV - largest[..., None])
    total = jnp.sum(powers, axis=-1)
    log_z = jnp.log(total) + largest
    target_logit = jax.lax.platform_dependent(logits_BxCxV, targets_BxC, cpu=_gathered, default=_picked)
    if head.label_smoothing:
        on, off, constant = _smoothing(head.label_smoothing, logits_BxCxV.shape[-1])
        expected_logit = off * jnp.sum(logits_BxCxV, axis=-1) + (on - off) * target_logit
        cross_entropy = log_z - expected_logit + constant
    else:
        cross_entropy = log_z - target_logit
    correct = (target_logit == largest).astype(jnp.float32)
    return TokenLosses(cross_entropy, head.z_loss * jnp.square(log_z), correct), _Softmax(powers, total, log_z)


def _gathered(logits_BxCxV: jax.Array, targets_BxC: jax.Array) -> jax.Array:
    """The targets' logits (B, C)."""
    return jnp.take_along_axis(logits_BxCxV, targets_BxC[..., None], axis=-1)[..., 0]


def _picked(logits_BxCxV: jax.Array, targets_BxC: jax.Array) -> jax.Array:
    """`_gathered` as a sum along with those of the softmax, for where a gather is slow or the vocabulary divided."""
    return jnp.sum(jnp.where(_is_target(targets_BxC, logits_BxCxV.shape), logits_BxCxV, 0.0), axis=-1)


def _is_target(targets_BxC: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    return jax.lax.broadcasted_iota(jnp.int32, shape, 2) == targets_BxC[..., None]


def _logits_gradient(head: _Head, softmax: _Softmax, targets_BxC: jax.Array, weights_BxC: jax.Array) -> jax.Array:
    """Gradient of the weighted token losses in the logits (B, C, V)."""
    on, off, _ = _smoothing(head.label_smoothing, softmax.powers.shape[-1])
    scale_BxC = weights_BxC * (1 + 2 * head.z_loss * softmax.log_z) / softmax.total
    is_target = _is_target(targets_BxC, softmax.powers.shape)
    wanted = jnp.where(is_target, (on * weights_BxC)[..., None], (off * weights_BxC)[..., None])
    return softmax.powers * scale_BxC[..., None] - wanted


def _smoothing(share: float, vocabulary: int) -> tuple[float, float, float]:
    """Probability wanted of the target, of every other token, and minus that distribution's entropy."""
    if not 0 <= share < 1 or (share and vocabulary < 2):
        raise ValueError(f"loss.label_smoothing is {share}; it must be at least 0 and below 1")
    if share == 0:
        return 1.0, 0.0, 0.0
    on, off = 1 - share, share / (vocabulary - 1)
    return on, off, on * math.log(on) + (vocabulary - 1) * off * math.log(off + 1e-20)


def expected_initial_loss(config: Model, loss: Loss) -> tuple[float, float]:
    """Band for the first cross-entropy per token, in nats, that the initialisation predicts.

    Untied head: the last norm gives the hidden state a root mean square of 1 and the head's weights have variance
    1 / d_model, so logits are standard normal and E[log Z] = ln V + ln E[exp(N(0, 1))] = ln V + 1/2. The average over a
    batch moves about it because frequent targets share a logit.

    Tied head (T5 1.0): the same, but the hidden state still holds the decoder's input token, whose logit is about
    sqrt(d_model) / sqrt(variance of the residual stream in units of the embedding's). Every layer adds at least 0.4 to
    that variance (its feed-forward block), so a wide, shallow model with a small vocabulary begins far above ln V;
    text that repeats its tokens begins a little lower.

    Label smoothing takes the entropy of what is wanted off: logits of mean 0 give nothing back for it.
    """
    middle = math.log(config.vocab_size) + 0.5
    _, _, constant = _smoothing(loss.label_smoothing, config.vocab_size)
    if not config.tie_embeddings:
        return middle + constant - 0.75, middle + constant + 0.75
    echo = math.sqrt(config.d_model / (1 + 0.4 * config.num_decoder_layers))
    return middle + constant - 1.0, float(np.logaddexp(middle, echo)) + constant + 0.75
