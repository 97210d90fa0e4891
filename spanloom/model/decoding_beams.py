"""Beam search as T5X has it, and as transformers has it. Shapes as in `decoding_cache`; K beams.

Each step takes the 2 K likeliest continuations of the K live beams; those that end become finished ones, of which the K
with the best scores are kept, and the best K others live on. A score is the summed log-probability divided by a penalty
of the length (Wu et al. 2016). Search ends where no live beam can come to beat the worst finished one.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp

from spanloom.model.decoding import write_in_rooms
from spanloom.model.decoding_cache import Cache, Ready, advance, grow, reorder, start
from spanloom.model.decoding_rules import Rules, allow, likeliest
from spanloom.model.placement import ANYWHERE, Placement
from spanloom.settings.model import Model

NOTHING = -1e7
"""Score of a beam that there is none of."""
_IS_SOMETHING = -1e6


@dataclass(frozen=True)
class BeamRule:
    """What implementations of beam search do not agree on."""

    penalty: Callable[[Any, Any], Any]
    """Of a length in tokens, end of sequence included, and alpha."""
    best_rank: Literal["all", "first"]
    """Which of the 2 K continuations may end: all, or the first K."""
    bound: Literal["longest", "now"]
    """The length by which a live beam is judged when search may end: one more than the longest, or its own."""
    cut_counts: bool
    """Whether a beam that reaches the longest length without an end counts as finished; else it is returned only where
    none ended."""


RULES = {
    "t5x": BeamRule(lambda length, alpha: ((5.0 + length) / 6.0) ** alpha, "all", "longest", False),
    "transformers": BeamRule(lambda length, alpha: jnp.asarray(length, jnp.float32) ** alpha, "first", "now", True),
}
"""By name. `transformers` is its `early_stopping=False`, alpha its `length_penalty` (1.0 by default there)."""


class Beams(NamedTuple):
    """The beams of each input, best first."""

    tokens: jax.Array
    """(B, K, T) int32: without start token, end of sequence kept, then 0."""
    scores: jax.Array
    """(B, K) float32: log-probability over penalty. Where no beam ended, T5X's rule gives the live ones and their plain
    log-probability; where fewer than K did, the rest are empty and have NOTHING, or close to it."""
    log_probs: jax.Array
    """(B, K) float32: summed log-probability, end of sequence included, forced tokens left out."""


class _Search(NamedTuple):
    cache: Cache
    last: jax.Array
    live: Beams
    ended: Beams
    done: jax.Array
    """Whether an input's search is over, (B,): nothing of it changes any more."""


def beam_search(
    weights: Ready,
    config: Model,
    encoder_input_tokens_BxS: Any,
    rules: Rules,
    limit_B: Any,
    *,
    count: int,
    alpha_B: Any = 0.6,
    rule: str = "t5x",
    eos_id: int = 1,
    place: Placement = ANYWHERE,
) -> Beams:
    """The `count` best sequences for each input, of at most `limit` tokens each (T in all, the width of the rules).

    `alpha` must not be negative: search would end too early. An input without tokens gets empty beams with score 0.
    Compiled once for each shape and each room of the cache.
    """
    inputs = jnp.asarray(encoder_input_tokens_BxS, jnp.int32)
    batch, longest = rules.forced_BxT.shape
    alpha = jnp.broadcast_to(jnp.asarray(alpha_B, jnp.float32), (batch,))
    run = functools.partial(_run, config=config, rule=rule, eos_id=eos_id, place=place)

    def step(search: _Search, rules: Rules) -> _Search:
        return run(weights, search, rules, jnp.asarray(limit_B, jnp.int32), alpha)

    begin = functools.partial(_begin, weights, inputs, config=config, count=count, place=place)
    search = write_in_rooms(lambda room: begin(room=room), _more_room, step, rules, longest)
    found = _found(search, inputs)
    return found._replace(tokens=found.tokens[:, :, :longest])


@functools.partial(jax.jit, static_argnames=("config", "count", "room", "place"))
def _begin(weights: Ready, inputs_BxS: jax.Array, *, config: Model, count: int, room: int, place: Placement) -> _Search:
    batch = inputs_BxS.shape[0]
    empty = jnp.zeros((batch, count, room), jnp.int32)
    nothing_BxK = jnp.full((batch, count), NOTHING, jnp.float32)
    first_BxK = nothing_BxK.at[:, 0].set(0.0)  # all begin alike: one is enough
    return _Search(
        start(weights, config, inputs_BxS, count, room, place),
        jnp.zeros((batch, count), jnp.int32),
        Beams(empty, first_BxK, first_BxK),
        Beams(empty, nothing_BxK, nothing_BxK),
        ~jnp.any(inputs_BxS > 0, axis=1),
    )


@functools.partial(jax.jit, static_argnames=("room",))
def _more_room(search: _Search, *, room: int) -> _Search:
    more = [(0, 0), (0, 0), (0, room - search.cache.room)]
    live, ended = (beams._replace(tokens=jnp.pad(beams.tokens, more)) for beams in (search.live, search.ended))
    return search._replace(cache=grow(search.cache, room), live=live, ended=ended)


@functools.partial(jax.jit, static_argnames=("config", "rule", "eos_id", "place"), donate_argnums=(1,))
def _run(
    weights: Ready,
    search: _Search,
    rules: Rules,
    limit_B: jax.Array,
    alpha_B: jax.Array,
    *,
    config: Model,
    rule: str,
    eos_id: int,
    place: Placement,
) -> _Search:
    """Until the search of every input is over or the cache is full."""
    how, alpha_Bx1 = RULES[rule], alpha_B[:, None]

    def unfinished(search: _Search) -> jax.Array:
        return (search.cache.length < search.cache.room) & ~jnp.all(search.done)

    def write(search: _Search) -> _Search:
        count, length = search.last.shape[1], search.cache.length + 1
        logits_BxKxV, cache = advance(weights, config, search.cache, search.last, place)
        more, parents_BxN, tokens_BxN = _continuations(logits_BxKxV, search, rules)
        is_last_Bx1 = (length >= limit_B)[:, None]
        ends_BxN = (tokens_BxN == eos_id) | (is_last_Bx1 & how.cut_counts)
        may_end_BxN = ends_BxN & ((jnp.arange(2 * count) < count) | (how.best_rank == "all"))
        scores = more.log_probs / how.penalty(length, alpha_Bx1)
        candidates = more._replace(scores=jnp.where(may_end_BxN, scores, NOTHING))
        ended = _best(_joined(search.ended, candidates), count)
        going_on = jnp.where(ends_BxN, NOTHING, 0.0) + more.log_probs
        live, order_BxK = _best_with_order(more._replace(scores=going_on), count)
        live = live._replace(log_probs=live.scores)
        parents_BxK, last_BxK = (jnp.take_along_axis(x, order_BxK, axis=1) for x in (parents_BxN, tokens_BxN))
        bound = how.penalty(limit_B[:, None] + 1 if how.bound == "longest" else length, alpha_Bx1)
        hopeless_B = _hopeless(ended, live.scores[:, :1] / bound, how)
        done = search.done | is_last_Bx1[:, 0] | hopeless_B | (live.scores[:, 0] < _IS_SOMETHING)
        kept_live, kept_ended = (
            Beams(*(jnp.where(_like(search.done, x), x, y) for x, y in zip(old, new, strict=True)))
            for old, new in ((search.live, live), (search.ended, ended))
        )
        return _Search(reorder(cache, parents_BxK), last_BxK, kept_live, kept_ended, done)

    return jax.lax.while_loop(unfinished, write, search)


def _continuations(logits_BxKxV: jax.Array, search: _Search, rules: Rules) -> tuple[Beams, jax.Array, jax.Array]:
    """The 2 K best beams with one more token, best first; the beam each goes on from, and the token: (B, 2 K)."""
    count, at = search.last.shape[1], search.cache.length
    every = jax.nn.logsumexp(logits_BxKxV, axis=-1, keepdims=True)
    allowed = allow(logits_BxKxV, rules, search.live.tokens, at)
    values, tokens = likeliest(allowed, 2 * count)
    free = values - every
    forced_Bx1x1 = jax.lax.dynamic_slice_in_dim(rules.forced_BxT, at, 1, axis=1)[..., None]
    only_first = jnp.where(jnp.arange(free.shape[2]) == 0, 0.0, NOTHING)
    gained = jnp.where(forced_Bx1x1 > 0, only_first, free)
    tokens = jnp.where(forced_Bx1x1 > 0, forced_Bx1x1, tokens).astype(jnp.int32)
    total = (gained + search.live.log_probs[..., None]).reshape(gained.shape[0], -1)
    best, order_BxN = jax.lax.top_k(total, min(2 * count, total.shape[1]))
    if best.shape[1] < 2 * count:  # a vocabulary of a few tokens
        short = 2 * count - best.shape[1]
        best = jnp.pad(best, [(0, 0), (0, short)], constant_values=NOTHING)
        order_BxN = jnp.pad(order_BxN, [(0, 0), (0, short)])
    parents_BxN = order_BxN // gained.shape[2]
    tokens_BxN = jnp.take_along_axis(tokens.reshape(total.shape), order_BxN, axis=1)
    before = jnp.take_along_axis(search.live.tokens, parents_BxN[..., None], axis=1)
    written = jax.lax.dynamic_update_slice_in_dim(before, tokens_BxN[..., None], at, axis=2)
    return Beams(written, best, best), parents_BxN, tokens_BxN


def _hopeless(ended: Beams, best_live_Bx1: jax.Array, how: BeamRule) -> jax.Array:
    """Whether there are K finished beams and no live one can come to beat the worst of them, (B,)."""
    worst_Bx1 = jnp.min(ended.scores, axis=1, keepdims=True)
    worst_Bx1 = jnp.where(worst_Bx1 > _IS_SOMETHING, worst_Bx1, NOTHING)
    beaten = worst_Bx1 > best_live_Bx1 if how.bound == "longest" else worst_Bx1 >= best_live_Bx1
    return beaten[:, 0] & (worst_Bx1[:, 0] > _IS_SOMETHING)


def _joined(first: Beams, second: Beams) -> Beams:
    return Beams(*(jnp.concatenate(pair, axis=1) for pair in zip(first, second, strict=True)))


def _best(beams: Beams, count: int) -> Beams:
    return _best_with_order(beams, count)[0]


def _best_with_order(beams: Beams, count: int) -> tuple[Beams, jax.Array]:
    order_BxK = jax.lax.top_k(beams.scores, count)[1]
    return Beams(*(jnp.take_along_axis(x, _like(order_BxK, x), axis=1) for x in beams)), order_BxK


def _like(x: jax.Array, other: jax.Array) -> jax.Array:
    """`x` with as many axes as `other`."""
    return x.reshape(*x.shape, *[1] * (other.ndim - x.ndim))


@jax.jit
def _found(search: _Search, inputs_BxS: jax.Array) -> Beams:
    """The finished beams, or the live ones where none is."""
    none_B = search.ended.scores[:, 0] < _IS_SOMETHING
    chosen = (
        jnp.where(_like(none_B, live), live, ended) for live, ended in zip(search.live, search.ended, strict=True)
    )
    beams, real_B = Beams(*chosen), jnp.any(inputs_BxS > 0, axis=1)
    is_beam_BxK = real_B[:, None] & (beams.scores > _IS_SOMETHING)
    return Beams(
        jnp.where(is_beam_BxK[..., None], beams.tokens, 0),
        jnp.where(real_B[:, None], beams.scores, 0.0),
        jnp.where(real_B[:, None], beams.log_probs, 0.0),
    )
