"""What may be written next: forced beginnings, constrained choices, no n-gram twice; and the likeliest tokens.

B inputs, K sequences of each, C choices, T places, V tokens. What must not be written gets FORBIDDEN added to its
logit; probabilities of what is left are not made larger for it.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

FORBIDDEN = -1e9
_SIDE_BY_SIDE = 128  # logits in a group, see `likeliest`; divides the vocabularies of all released models
_FEWEST_GROUPS = 8  # for which two passes pay


Numbers = jax.Array | np.ndarray[Any, Any]


class Rules(NamedTuple):
    """What may be written. None: no such rule."""

    forced_BxT: Numbers
    """Tokens that must stand at their places, int32; 0 where the model is free."""
    choices_BxCxT: Numbers | None = None
    """Sequences one of which it must be, int32, end of sequence included, then 0; a row of zeros is no choice. An input
    without choices is free."""
    ngram_B: Numbers | None = None
    """No n-gram of this length comes twice in a sequence, int32; 0: they may."""


def allow(logits_BxKxV: jax.Array, rules: Rules, written_BxKxT: jax.Array, place: jax.Array) -> jax.Array:
    """The logits with FORBIDDEN added where the rules are against a token. Forced tokens are the caller's matter."""
    if rules.choices_BxCxT is not None:
        logits_BxKxV = logits_BxKxV + _off_choices(logits_BxKxV.shape[2], rules.choices_BxCxT, written_BxKxT, place)
    if rules.ngram_B is not None:
        logits_BxKxV = logits_BxKxV + _repeating(logits_BxKxV.shape[2], rules.ngram_B, written_BxKxT, place)
    return logits_BxKxV


def _off_choices(size: int, choices_BxCxT: Numbers, written_BxKxT: jax.Array, place: jax.Array) -> jax.Array:
    """FORBIDDEN for each token with which no choice goes on that begins as the sequence does."""
    later_T = jnp.arange(written_BxKxT.shape[2]) >= place
    same_BxKxC = jnp.all((written_BxKxT[:, :, None] == choices_BxCxT[:, None]) | later_T, axis=-1)
    is_choice_BxC = jnp.any(choices_BxCxT > 0, axis=-1)
    next_BxC = jax.lax.dynamic_index_in_dim(choices_BxCxT, place, axis=2, keepdims=False)
    batch, count, _ = same_BxKxC.shape
    rows, sequences = jnp.arange(batch)[:, None, None], jnp.arange(count)[None, :, None]
    open_BxKxC = same_BxKxC & (is_choice_BxC & (next_BxC > 0))[:, None]
    allowed = jnp.zeros((batch, count, size), bool).at[rows, sequences, next_BxC[:, None]].max(open_BxKxC)
    free_Bx1x1 = ~jnp.any(is_choice_BxC, axis=1)[:, None, None]
    return jnp.where(allowed | free_Bx1x1, 0.0, FORBIDDEN)


def _repeating(size: int, ngram_B: Numbers, written_BxKxT: jax.Array, place: jax.Array) -> jax.Array:
    """FORBIDDEN for each token that would end an n-gram which the sequence has already.

    The token at place j is such a one if the n - 1 tokens before it are the n - 1 last ones: if the agreement of what
    ends before j with what ends before `place` reaches as far back as n - 1. The start token counts, as in
    transformers.
    """
    written_BxKxT = jnp.pad(written_BxKxT, [(0, 0), (0, 0), (1, 0)])
    place = place + 1
    batch, count, room = written_BxKxT.shape
    before_T = jnp.arange(room)

    def same(back: jax.Array, agreeing_BxKxT: jax.Array) -> jax.Array:
        """Whether tokens `back` places before each place and before `place` are the same, for those in use."""
        last_BxKx1 = jax.lax.dynamic_slice_in_dim(written_BxKxT, place - back, 1, axis=2)
        at_T = before_T - back
        equal_BxKxT = (jnp.take(written_BxKxT, jnp.maximum(at_T, 0), axis=2) == last_BxKx1) & (at_T >= 0)
        return agreeing_BxKxT & (equal_BxKxT | (back >= ngram_B)[:, None, None])

    longest = jnp.minimum(jnp.max(ngram_B), place + 1)
    there_BxKxT = (before_T < place) & (ngram_B > 0)[:, None, None] & (place + 1 >= ngram_B)[:, None, None]
    there_BxKxT = jnp.broadcast_to(there_BxKxT, written_BxKxT.shape)
    repeats_BxKxT = jax.lax.fori_loop(1, longest, same, there_BxKxT)
    rows, sequences = jnp.arange(batch)[:, None, None], jnp.arange(count)[None, :, None]
    nothing = jnp.zeros((batch, count, size), jnp.float32)
    return nothing.at[rows, sequences, written_BxKxT].min(jnp.where(repeats_BxKxT, FORBIDDEN, 0.0))


def likeliest(logits_BxKxV: jax.Array, count: int) -> tuple[jax.Array, jax.Array]:
    """The `count` largest logits of each sequence and their tokens, (B, K, count), largest first, then lowest token.

    Exact, in two passes: no group of tokens holds one of them unless its own largest is among the `count` largest of
    all groups. The first pass is a maximum over groups side by side, many times faster than sorting.
    """
    batch, rows, size = logits_BxKxV.shape
    groups = -(-size // _SIDE_BY_SIDE)
    if groups < _FEWEST_GROUPS or count >= groups:
        return jax.lax.top_k(logits_BxKxV, min(count, size))
    padding = [(0, 0), (0, 0), (0, groups * _SIDE_BY_SIDE - size)]
    grouped = jnp.pad(logits_BxKxV, padding, constant_values=-jnp.inf).reshape(batch, rows, groups, _SIDE_BY_SIDE)
    best_BxKxN = jnp.sort(jax.lax.top_k(jnp.max(grouped, axis=3), count)[1], axis=-1)  # of equal ones the first wins
    tokens = best_BxKxN[..., None] * _SIDE_BY_SIDE + jnp.arange(_SIDE_BY_SIDE)
    candidates = jnp.take_along_axis(grouped, best_BxKxN[..., None], axis=2).reshape(batch, rows, -1)
    values, places = jax.lax.top_k(candidates, count)
    return values, jnp.take_along_axis(tokens.reshape(batch, rows, -1), places, axis=2)
