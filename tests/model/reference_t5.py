"""T5 written down naively: per-layer parameters under T5X's names, one-hot embeddings, whole logits, no shortcuts.

An independent description to test the real model against, gradients by plain autodiff.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from spanloom.settings.model import Model

Flat = dict[str, Any]
ACTIVATIONS = {"gelu": jax.nn.gelu, "relu": jax.nn.relu, "silu": jax.nn.silu, "linear": lambda x: x}


def norm(x: Any, scale: Any, epsilon: float) -> Any:
    return x / jnp.sqrt((x * x).mean(-1, keepdims=True) + epsilon) * scale


def bucket(distance: int, both_ways: bool, buckets: int, max_distance: int) -> int:
    base, back = 0, -distance
    if both_ways:
        buckets //= 2
        if back < 0:
            base, back = buckets, -back
    back = max(back, 0)
    exact = buckets // 2
    if back < exact:
        return base + back
    far = exact + int(math.log(back / exact + 2.0**-23) / math.log(max_distance / exact) * (buckets - exact))
    return base + min(far, buckets - 1)


def bias(table: Any, length: int, both_ways: bool, m: Model) -> Any:
    size = (m.relative_position_buckets, m.relative_position_max_distance)
    index = np.array([[bucket(s - t, both_ways, *size) for s in range(length)] for t in range(length)])
    return table[:, index][None]


def attention(p: Flat, name: str, x: Any, context: Any, extra: Any, m: Model) -> Any:
    def heads(part: str, y: Any) -> Any:
        return (y @ p[f"{name}/{part}/kernel"]).reshape(*y.shape[:2], m.num_heads, m.d_kv)

    q, k, v = heads("query", x), heads("key", context), heads("value", context)
    weights = jax.nn.softmax(jnp.einsum("bthd,bshd->bhts", q, k) + extra, axis=-1)
    return jnp.einsum("bhts,bshd->bthd", weights, v).reshape(*x.shape[:2], -1) @ p[f"{name}/out/kernel"]


def mlp(p: Flat, name: str, x: Any, m: Model) -> Any:
    names = ["wi"] if len(m.activations) == 1 else ["wi_0", "wi_1"]
    hidden = 1.0
    for branch, activation in zip(names, m.activations, strict=True):
        hidden = hidden * ACTIVATIONS[activation](x @ p[f"{name}/{branch}/kernel"])
    return hidden @ p[f"{name}/wo/kernel"]


def masks(batch: dict[str, Any]) -> tuple[Any, Any, Any]:
    inputs, targets = batch["encoder_input_tokens"], batch["decoder_target_tokens"]
    encoder = batch.get("encoder_segment_ids", jnp.ones_like(inputs))
    decoder = batch.get("decoder_segment_ids", jnp.ones_like(targets))

    def additive(valid_q: Any, valid_k: Any, seg_q: Any, seg_k: Any) -> Any:
        seen = (valid_q[:, :, None] * valid_k[:, None, :] > 0) & (seg_q[:, :, None] == seg_k[:, None, :])
        return jnp.where(seen, 0.0, -1e10)[:, None]

    length = targets.shape[1]
    causal = jnp.where(np.tril(np.ones((length, length))) > 0, 0.0, -1e10)
    return (
        additive(inputs > 0, inputs > 0, encoder, encoder),
        additive(targets > 0, targets > 0, decoder, decoder) + causal,
        additive(targets > 0, inputs > 0, decoder, encoder),
    )


def forward(p: Flat, m: Model, batch: dict[str, Any]) -> tuple[Any, Any]:
    """(encoder output, logits)"""
    encoder_mask, decoder_mask, cross_mask = masks(batch)

    def table(stack: str, layer: int) -> Any:
        own = f"{stack}/layers_{layer}/relpos_bias/rel_embedding"
        return p.get(own, p.get(f"{stack}/relpos_bias/rel_embedding"))

    def embedded(tokens: Any) -> Any:
        return jax.nn.one_hot(tokens, m.vocab_size) @ p["token_embedder/embedding"]

    x, eps = embedded(batch["encoder_input_tokens"]), m.norm_epsilon
    for i in range(m.num_encoder_layers):
        name = f"encoder/layers_{i}"
        extra = bias(table("encoder", i), x.shape[1], True, m) + encoder_mask
        y = norm(x, p[f"{name}/pre_attention_layer_norm/scale"], eps)
        x = x + attention(p, f"{name}/attention", y, y, extra, m)
        x = x + mlp(p, f"{name}/mlp", norm(x, p[f"{name}/pre_mlp_layer_norm/scale"], eps), m)
    encoded = norm(x, p["encoder/encoder_norm/scale"], eps)

    x = embedded(batch["decoder_input_tokens"])
    for i in range(m.num_decoder_layers):
        name = f"decoder/layers_{i}"
        extra = bias(table("decoder", i), x.shape[1], False, m) + decoder_mask
        y = norm(x, p[f"{name}/pre_self_attention_layer_norm/scale"], eps)
        x = x + attention(p, f"{name}/self_attention", y, y, extra, m)
        y = norm(x, p[f"{name}/pre_cross_attention_layer_norm/scale"], eps)
        x = x + attention(p, f"{name}/encoder_decoder_attention", y, encoded, cross_mask, m)
        x = x + mlp(p, f"{name}/mlp", norm(x, p[f"{name}/pre_mlp_layer_norm/scale"], eps), m)
    x = norm(x, p["decoder/decoder_norm/scale"], eps)
    if m.tie_embeddings:
        return encoded, x @ p["token_embedder/embedding"].T / math.sqrt(m.d_model)
    return encoded, x @ p["decoder/logits_dense/kernel"]


def token_losses(logits: Any, targets: Any, z: float, smoothing: float) -> tuple[Any, Any]:
    """(cross-entropy, z-loss) of each token"""
    vocabulary = logits.shape[-1]
    low = smoothing / (vocabulary - 1)
    wanted = jax.nn.one_hot(targets, vocabulary) * (1 - smoothing - low) + low
    entropy = 0.0 if smoothing == 0 else -((1 - smoothing) * math.log(1 - smoothing) + smoothing * math.log(low))
    cross_entropy = -(wanted * jax.nn.log_softmax(logits)).sum(-1) - entropy
    return cross_entropy, z * jax.nn.logsumexp(logits, axis=-1) ** 2


def resolved(normalizer: Any, batch: dict[str, Any]) -> tuple[np.ndarray, float]:
    """(weights, divisor) of T5X's loss normalising factor"""
    weights = np.asarray(batch["decoder_loss_weights"], np.float32)
    if normalizer == "NUM_REAL_TARGET_TOKENS":
        return weights, weights.sum()
    if normalizer == "NUM_TOTAL_TARGET_TOKENS":
        return weights, weights.size
    if normalizer == "AVERAGE_PER_SEQUENCE":
        result = np.zeros_like(weights)
        segments = batch.get("decoder_segment_ids", np.ones(weights.shape, np.int32))
        for row in range(len(weights)):
            for segment in np.unique(segments[row]):
                here = segments[row] == segment
                total = weights[row, here].sum()
                result[row, here] = weights[row, here] / total if total else 0
        return result, result.sum()
    return weights, normalizer or 1.0
