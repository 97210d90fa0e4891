"""What a model says, with one layer of it in memory at a time: log-probabilities of a batch, for models of any size."""

import functools
from collections.abc import Generator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import jax
import numpy as np

from spanloom.conversion.weights import Dtype, Weights, as_float32, cast, in_order, written_type
from spanloom.model.attention import make_mask
from spanloom.model.layers import rms_norm
from spanloom.model.params import DecoderLayer, EncoderLayer, Norm, PositionBias, declare, path_name
from spanloom.model.t5 import decoder_layer, encoder_layer, stack_bias
from spanloom.settings.model import Model

LayerByLayer = Generator[None, None, np.ndarray]
"""Yields nothing, before each layer that it reads; returns the log-probabilities of a batch."""
_READ_AT_ONCE = 2  # parameters; more need more memory
_HEAD_BYTES = 1 << 26  # of the output head are multiplied at a time


def log_probabilities(
    model: Model, weights: Weights, batch: Mapping[str, np.ndarray], dtype: Dtype = "keep"
) -> np.ndarray:
    """Log-probability of every target token of a batch, (tokens,) float32, padding left out.

    Weights are read layer by layer, as they are when written in `dtype`; all is computed in float32.
    """
    (found,) = in_lockstep(log_probabilities_by_layer(model, weights, batch, dtype))
    return found


def in_lockstep(*models: LayerByLayer) -> list[np.ndarray]:
    """What each of several models gives; all read a layer, one after another, before any reads its next one."""
    found: dict[LayerByLayer, np.ndarray] = {}
    while len(found) < len(models):
        for model in models:
            if model not in found:
                try:
                    next(model)
                except StopIteration as end:
                    found[model] = end.value
    return [found[model] for model in models]


def log_probabilities_by_layer(
    model: Model, weights: Weights, batch: Mapping[str, np.ndarray], dtype: Dtype = "keep"
) -> LayerByLayer:
    """`log_probabilities`, for `in_lockstep`."""
    config = replace(model, dtype="float32", dropout=0.0, attention="einsum")
    read = _Reader(config, weights, dtype)
    inputs, targets = batch["encoder_input_tokens"], batch["decoder_target_tokens"]
    encoded_BxSxE = yield from _encode(read, config, inputs)
    hidden_BxTxE = yield from _decode(read, config, encoded_BxSxE, batch)
    real = targets > 0
    return _picked(read, config, np.asarray(hidden_BxTxE)[real], targets[real])


class _Reader:
    """Weights by name as float32 arrays."""

    def __init__(self, config: Model, weights: Weights, dtype: Dtype) -> None:
        self._specs = declare(config)
        self._weights = weights
        self._dtype = dtype

    def raw(self, name: str, layer: int | None = None) -> np.ndarray:
        return self._weights[name].read(layer)

    def as_written(self, name: str, array: np.ndarray) -> np.ndarray:
        return as_float32(cast(in_order(array), written_type(self._weights[name].dtype, self._dtype)))

    def whole(self, name: str, layer: int | None = None) -> jax.Array:
        return jax.device_put(self.as_written(name, self.raw(name, layer)))

    def embedded(self, tokens_BxL: np.ndarray) -> jax.Array:
        name = "token_embedder/embedding"
        return jax.device_put(self.as_written(name, self.raw(name)[tokens_BxL]))

    def layer(self, stack: str, number: int) -> Any:
        """One layer's tree, read by several threads; `stack` is encoder or decoder."""
        places, tree = jax.tree_util.tree_flatten_with_path(getattr(self._specs, stack).layers)
        names = [f"{stack}/layers/{path_name(path)}" for path, _ in places]
        with ThreadPoolExecutor(_READ_AT_ONCE) as threads:
            leaves = threads.map(functools.partial(self.whole, layer=number), names)
            return jax.tree_util.tree_unflatten(tree, leaves)

    def table(self, stack: str) -> PositionBias | None:
        if getattr(self._specs, stack).relpos_bias is None:
            return None
        return PositionBias(self.whole(f"{stack}/relpos_bias/rel_embedding"))

    def norm(self, stack: str) -> Norm:
        return Norm(self.whole(f"{stack}/{stack}_norm/scale"))


@functools.partial(jax.jit, static_argnums=2)
def _encoder_layer(x: jax.Array, layer: EncoderLayer, config: Model, bias: Any, real_BxS: jax.Array) -> jax.Array:
    return encoder_layer(x, layer, config, bias, make_mask(real_BxS))


@functools.partial(jax.jit, static_argnums=3)
def _decoder_layer(
    x: jax.Array, encoded: jax.Array, layer: DecoderLayer, config: Model, bias: Any, real_BxT: Any, real_BxS: Any
) -> jax.Array:
    masks = make_mask(real_BxT, causal=True), make_mask(real_BxS)
    return decoder_layer(x, encoded, layer, config, bias, masks)


# Jitted as wholes: each of their operations by itself would be compiled apart, which takes longer than small models do.
_stack_bias = jax.jit(stack_bias, static_argnums=(1, 2, 3), static_argnames="bidirectional")
_rms_norm = jax.jit(rms_norm, static_argnums=2)


def _encode(read: _Reader, config: Model, tokens_BxS: np.ndarray) -> Generator[None, None, jax.Array]:
    length = tokens_BxS.shape[1]
    bias = _stack_bias(read.table("encoder"), config, length, length, bidirectional=True)
    x_BxSxE, real_BxS = read.embedded(tokens_BxS), jax.device_put(tokens_BxS > 0)
    for number in range(config.num_encoder_layers):
        yield
        x_BxSxE = _encoder_layer(x_BxSxE, read.layer("encoder", number), config, bias, real_BxS).block_until_ready()
    return _rms_norm(x_BxSxE, read.norm("encoder"), config.norm_epsilon)


def _decode(
    read: _Reader, config: Model, encoded_BxSxE: jax.Array, batch: Mapping[str, np.ndarray]
) -> Generator[None, None, jax.Array]:
    inputs, targets = batch["encoder_input_tokens"], batch["decoder_target_tokens"]
    length = targets.shape[1]
    real = jax.device_put(targets > 0), jax.device_put(inputs > 0)
    bias = _stack_bias(read.table("decoder"), config, length, length, bidirectional=False)
    x_BxTxE = read.embedded(batch["decoder_input_tokens"])
    for number in range(config.num_decoder_layers):
        yield
        # Without a name of its own, so that it is gone before the next one is read.
        x_BxTxE = _decoder_layer(x_BxTxE, encoded_BxSxE, read.layer("decoder", number), config, bias, *real)
        x_BxTxE.block_until_ready()
    return _rms_norm(x_BxTxE, read.norm("decoder"), config.norm_epsilon)


def _picked(read: _Reader, config: Model, hidden_NxE: np.ndarray, targets_N: np.ndarray) -> np.ndarray:
    """Log-probabilities of the targets, the head multiplied some rows of the vocabulary at a time."""
    tied = config.tie_embeddings
    name = "token_embedder/embedding" if tied else "decoder/logits_dense/kernel"
    head_VxE = read.raw(name) if tied else read.raw(name).T
    if tied:
        hidden_NxE = hidden_NxE / np.sqrt(np.float32(config.d_model))
    largest_N = np.full(len(targets_N), -np.inf, np.float32)
    total_N, chosen_N = np.zeros(len(targets_N), np.float64), np.zeros(len(targets_N), np.float32)
    step = max(1, _HEAD_BYTES // (4 * config.d_model))
    for begin in range(0, config.vocab_size, step):
        part = read.as_written(name, head_VxE[begin : begin + step])
        logits_NxV = hidden_NxE @ part.T
        new_N = np.maximum(largest_N, logits_NxV.max(axis=1))
        total_N = total_N * np.exp(largest_N - new_N) + np.exp(logits_NxV - new_N[:, None]).sum(axis=1)
        largest_N = new_N
        here = (targets_N >= begin) & (targets_N < begin + len(part))
        chosen_N[here] = logits_NxV[here, targets_N[here] - begin]
    return (chosen_N - largest_N - np.log(total_N)).astype(np.float32)
