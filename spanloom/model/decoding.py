"""Writing sequences token by token: the likeliest token each time, or one drawn at random.

Both are one loop, for the settings are those of each input: temperature 0 is greedy. Shapes as in `decoding_cache`.
Beam search is in `decoding_beams`.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from spanloom.model.decoding_cache import Cache, Ready, advance, grow, ready, start
from spanloom.model.decoding_rules import FORBIDDEN, Numbers, Rules, allow
from spanloom.model.params import T5
from spanloom.model.placement import ANYWHERE, Placement
from spanloom.settings.model import Model

FIRST_ROOM = 64
"""Tokens that a cache has room for at first; then for twice as many, and so on, up to what is asked for."""


class Decoded(NamedTuple):
    """What was written."""

    tokens: jax.Array
    """(B, T) int32: without start token, end of sequence kept, then 0."""
    log_probs: jax.Array
    """(B,) float32: summed log-probability of the tokens, end of sequence included, forced ones left out."""


class Written(NamedTuple):
    """Several sequences for each input."""

    tokens: jax.Array
    """(B, K, T) int32: without start token, end of sequence kept, then 0."""
    log_probs: jax.Array
    """(B, K, T) float32: log-probability of each token by the model, 0 for forced ones and beyond the end."""


class Sampling(NamedTuple):
    """How each input's tokens are chosen; arrays (B,). Probabilities are filtered in this order."""

    temperature: Numbers
    """Logits are divided by it, float32; 0: the likeliest token."""
    top_k: Numbers
    """Only the k likeliest tokens, int32; 0: all."""
    top_p: Numbers
    """Only the likeliest tokens that together have this probability (Holtzman et al. 2020), float32; 1: all."""
    min_p: Numbers
    """Only tokens at least this fraction as likely as the likeliest (Nguyen et al. 2024), float32; 0: all."""
    seed: Numbers
    """What is drawn follows from it, the number of the sequence and the place alone; uint32."""


class _Progress(NamedTuple):
    cache: Cache
    last: jax.Array
    done: jax.Array
    written: Written


def greedy(
    params: T5,
    config: Model,
    encoder_input_tokens_BxS: Any,
    max_length: int,
    *,
    forced_tokens_BxT: Any = None,
    eos_id: int = 1,
) -> Decoded:
    """The likeliest token at each place, up to the end of sequence, and the log-probability of what is written.

    `forced_tokens_BxT` (B, up to max_length) holds tokens that must stand at their places, 0 where the model is free.
    A row without any input token stays 0, with log-probability 0.
    Compiled once for each shape and length. Raises ValueError for a length below 1 or too many forced tokens.
    """
    inputs = jnp.asarray(encoder_input_tokens_BxS, jnp.int32)
    forced = forced_tokens(forced_tokens_BxT, inputs.shape[0], max_length)
    written = sample(
        get_ready(params, config), config, inputs, Rules(forced), np.full(inputs.shape[0], max_length), eos_id=eos_id
    )
    return Decoded(written.tokens[:, 0], jnp.sum(written.log_probs[:, 0], axis=-1))


def forced_tokens(given_BxT: Any, batch: int, max_length: int) -> np.ndarray:
    """Forced tokens as `Rules` has them, (B, max_length). Raises ValueError where there can be none such."""
    if max_length < 1:
        raise ValueError(f"max_length is {max_length}; at least 1 token must be written")
    forced = np.zeros((batch, max_length), np.int32)
    if given_BxT is not None:
        given = np.asarray(given_BxT)
        if given.shape[0] != batch or given.shape[1] > max_length:
            raise ValueError(
                f"forced tokens have shape {given.shape}, but there are {batch} inputs and room for "
                f"{max_length} tokens; give one row an input, and no more tokens than max_length"
            )
        forced[:, : given.shape[1]] = given
    return forced


@functools.partial(jax.jit, static_argnames=("config", "place"))
def get_ready(params: T5, config: Model, place: Placement = ANYWHERE) -> Ready:
    """`decoding_cache.ready`, compiled: worth keeping where the same weights write often."""
    return ready(params, config, place)


def sample(
    weights: Ready,
    config: Model,
    encoder_input_tokens_BxS: Any,
    rules: Rules,
    limit_B: Any,
    *,
    count: int = 1,
    sampling: Sampling | None = None,
    eos_id: int = 1,
    place: Placement = ANYWHERE,
) -> Written:
    """Write `count` sequences for each input, of at most `limit` tokens each (end of sequence included, T in all).

    The width of the rules is T. `sampling`: None is greedy. An input without tokens gets none. Compiled once for each
    shape and each room of the cache.
    """
    longest = rules.forced_BxT.shape[1]
    begin = functools.partial(_begin, config=config, count=count, place=place)
    run = functools.partial(_run, config=config, eos_id=eos_id, place=place)

    def step(progress: _Progress, rules: Rules) -> _Progress:
        return run(weights, progress, rules, jnp.asarray(limit_B, jnp.int32), sampling)

    progress = write_in_rooms(
        lambda room: begin(weights, jnp.asarray(encoder_input_tokens_BxS, jnp.int32), room=room),
        _more_room,
        step,
        rules,
        longest,
    )
    return Written(*(x[:, :, :longest] for x in progress.written))


def write_in_rooms(
    begin: Callable[[int], Any],
    more_room: Callable[..., Any],
    run: Callable[[Any, Rules], Any],
    rules: Rules,
    longest: int,
) -> Any:
    """The last progress of a loop that runs until its cache is full, gets twice the room, and goes on.

    So a token costs what the tokens before it are, not what the longest sequence could have been.
    """
    final = room_for(longest)
    room = min(FIRST_ROOM, final)
    progress = begin(room)
    while True:
        progress = run(progress, within(rules, room))
        if room >= final or bool(jnp.all(progress.done)):
            return progress
        room *= 2
        progress = more_room(progress, room=room)


def room_for(length: int) -> int:
    """The room that a cache gets for so many tokens: a power of two, at least 8, so that few are compiled."""
    return max(8, 1 << (length - 1).bit_length())


def within(rules: Rules, room: int) -> Rules:
    """The rules for the first `room` places."""

    def fitted(x: Any) -> np.ndarray:
        x = np.asarray(x, np.int32)[..., :room]
        return np.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, room - x.shape[-1])])

    choices = None if rules.choices_BxCxT is None else fitted(rules.choices_BxCxT)
    return Rules(fitted(rules.forced_BxT), choices, rules.ngram_B)


@functools.partial(jax.jit, static_argnames=("config", "count", "room", "place"))
def _begin(
    weights: Ready, inputs_BxS: jax.Array, *, config: Model, count: int, room: int, place: Placement
) -> _Progress:
    batch = inputs_BxS.shape[0]
    empty = jnp.zeros((batch, count, room), jnp.int32)
    nobody_B = ~jnp.any(inputs_BxS > 0, axis=1)  # rows that only fill a batch up
    return _Progress(
        start(weights, config, inputs_BxS, count, room, place),
        jnp.zeros((batch, count), jnp.int32),
        jnp.broadcast_to(nobody_B[:, None], (batch, count)),
        Written(empty, empty.astype(jnp.float32)),
    )


@functools.partial(jax.jit, static_argnames=("room",))
def _more_room(progress: _Progress, *, room: int) -> _Progress:
    more = [(0, 0), (0, 0), (0, room - progress.cache.room)]
    written = Written(*(jnp.pad(x, more) for x in progress.written))
    return progress._replace(cache=grow(progress.cache, room), written=written)


@functools.partial(jax.jit, static_argnames=("config", "eos_id", "place"), donate_argnums=(1,))
def _run(
    weights: Ready,
    progress: _Progress,
    rules: Rules,
    limit_B: jax.Array,
    sampling: Sampling | None,
    *,
    config: Model,
    eos_id: int,
    place: Placement,
) -> _Progress:
    """Until every sequence is done or the cache is full."""

    def unfinished(progress: _Progress) -> jax.Array:
        return (progress.cache.length < progress.cache.room) & ~jnp.all(progress.done)

    def write(progress: _Progress) -> _Progress:
        at = progress.cache.length
        logits_BxKxV, cache = advance(weights, config, progress.cache, progress.last, place)
        forced_Bx1 = jax.lax.dynamic_slice_in_dim(rules.forced_BxT, at, 1, axis=1)
        chosen_BxK = _choose(allow(logits_BxKxV, rules, progress.written.tokens, at), sampling, at)
        token_BxK = jnp.where(forced_Bx1 > 0, forced_Bx1, chosen_BxK)
        token_BxK = jnp.where(progress.done, 0, token_BxK)
        logit_BxK = jnp.take_along_axis(logits_BxKxV, token_BxK[..., None], axis=-1)[..., 0]
        log_prob_BxK = logit_BxK - jax.nn.logsumexp(logits_BxKxV, axis=-1)
        log_prob_BxK = jnp.where(progress.done | (forced_Bx1 > 0), 0.0, log_prob_BxK)
        written = Written(
            *(put(x, new, at) for x, new in zip(progress.written, (token_BxK, log_prob_BxK), strict=True))
        )
        done = progress.done | (token_BxK == eos_id) | (at + 1 >= limit_B)[:, None]
        return _Progress(cache, token_BxK, done, written)

    return jax.lax.while_loop(unfinished, write, progress)


def put(x_BxKxT: jax.Array, new_BxK: jax.Array, at: jax.Array) -> jax.Array:
    """The sequences with `new` at a place."""
    return jax.lax.dynamic_update_slice_in_dim(x_BxKxT, new_BxK[..., None].astype(x_BxKxT.dtype), at, axis=2)


def _choose(logits_BxKxV: jax.Array, sampling: Sampling | None, at: jax.Array) -> jax.Array:
    """The next token of each sequence, (B, K) int32."""
    likeliest_BxK = _largest(logits_BxKxV)
    if sampling is None:
        return likeliest_BxK
    drawn_BxK = _draw(logits_BxKxV, sampling, at)
    return jnp.where(sampling.temperature[:, None] > 0, drawn_BxK, likeliest_BxK)


def _largest(logits_BxKxV: jax.Array) -> jax.Array:
    """The token with the largest logit, of equal ones the lowest, (B, K) int32.

    A maximum and a minimum: XLA's CPU compiler makes a slow loop of argmax, and devices that divide the vocabulary
    send one another one number of a sequence.
    """
    size = logits_BxKxV.shape[-1]
    is_largest = logits_BxKxV == jnp.max(logits_BxKxV, axis=-1, keepdims=True)
    found_BxK = jnp.min(jnp.where(is_largest, jnp.arange(size, dtype=jnp.int32), size), axis=-1)
    return jnp.minimum(found_BxK, size - 1)  # nothing equals NaN


def _draw(logits_BxKxV: jax.Array, sampling: Sampling, at: jax.Array) -> jax.Array:
    count, size = logits_BxKxV.shape[1:]
    rows = Sampling(*(x[:, None, None] for x in sampling))
    scaled = logits_BxKxV / jnp.where(rows.temperature > 0, rows.temperature, 1.0)
    kept = filtered(scaled, rows)

    def noise(seed: jax.Array, sequence: jax.Array) -> jax.Array:
        key = jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), sequence), at)
        return jax.random.gumbel(key, (size,))

    gumbel = jax.vmap(lambda seed: jax.vmap(functools.partial(noise, seed))(jnp.arange(count)))(sampling.seed)
    return _largest(kept + gumbel)


def filtered(logits_BxKxV: jax.Array, rows: Sampling) -> jax.Array:
    """FORBIDDEN where top-k, top-p or min-p leave a token out; settings (B, 1, 1). Ties with the last one stay in."""
    wants_k, wants_p = (rows.top_k > 0) & (rows.top_k < logits_BxKxV.shape[2]), rows.top_p < 1

    def by_count(logits: jax.Array) -> jax.Array:
        least = _least(logits, jnp.ones_like(logits), rows.top_k.astype(jnp.float32))
        return jnp.where(wants_k & (logits < least), FORBIDDEN, logits)

    def by_mass(logits: jax.Array) -> jax.Array:
        least = _least(logits, jax.nn.softmax(logits, axis=-1), rows.top_p)
        return jnp.where(wants_p & (logits < least), FORBIDDEN, logits)

    logits_BxKxV = jax.lax.cond(jnp.any(wants_k), by_count, lambda logits: logits, logits_BxKxV)
    logits_BxKxV = jax.lax.cond(jnp.any(wants_p), by_mass, lambda logits: logits, logits_BxKxV)
    largest = jnp.max(logits_BxKxV, axis=-1, keepdims=True)
    least = largest + jnp.log(jnp.maximum(rows.min_p, jnp.finfo(jnp.float32).tiny))
    return jnp.where((rows.min_p > 0) & (logits_BxKxV < least), FORBIDDEN, logits_BxKxV)


def _least(values_BxKxV: jax.Array, weights_BxKxV: jax.Array, needed: Numbers) -> jax.Array:
    """The largest bound, (B, K, 1), at or above which weights sum to `needed`, or the smallest value.

    By halving the range of float32's bits, in their order as numbers, 32 times: exact, and cheaper than sorting.
    """
    bits = jax.lax.bitcast_convert_type(values_BxKxV, jnp.int32)
    ordered = jnp.where(bits < 0, bits ^ 0x7FFFFFFF, bits)  # integers in the order of the floats
    low, high = (jnp.min(ordered, axis=-1, keepdims=True), jnp.max(ordered, axis=-1, keepdims=True))

    def halve(_: int, ends: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        low, high = ends
        middle = (low >> 1) + (high >> 1) + ((low | high) & 1)  # rounded up, and never too large for an int32
        enough = jnp.sum(jnp.where(ordered >= middle, weights_BxKxV, 0.0), axis=-1, keepdims=True) >= needed
        return jnp.where(enough, middle, low), jnp.where(enough, high, jnp.maximum(middle - 1, low))

    low, _ = jax.lax.fori_loop(0, 32, halve, (low, high))
    return jax.lax.bitcast_convert_type(jnp.where(low < 0, low ^ 0x7FFFFFFF, low), jnp.float32)
