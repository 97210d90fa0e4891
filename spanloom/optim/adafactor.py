"""Adafactor (Shazeer and Stern 2018) with the rules of T5X and Mesh TensorFlow, as an optax transformation.

`optax.adafactor` is another algorithm: it has no absolute parameter scale per layer and lets stacked layers share
moments and RMS values. Here every layer of a stacked parameter is updated as if it stood alone.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import optax

from spanloom.model.params import flatten
from spanloom.optim.clipping import clip_scale
from spanloom.optim.decay import decay_mask
from spanloom.optim.factoring import STANDARD_RULES, Factoring, Rule, Spec, by_rules, by_size, inner_dims
from spanloom.optim.schedules import Curve
from spanloom.settings.optimizer import Adafactor


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class AdafactorState:
    """Moments, keyed by the parameter's path ("encoder/layers/mlp/wi_0/kernel"); all float32.

    A slot that a parameter does not use is absent: it has either v_row and v_col, or v, and m only with momentum.
    """

    count: jax.Array
    """Steps taken, int32 scalar."""
    v_row: dict[str, jax.Array]
    """Mean squared gradients, averaged over the columns: the parameter's shape without its column axes."""
    v_col: dict[str, jax.Array]
    """Mean squared gradients, averaged over the rows: the parameter's shape without its row axes."""
    v: dict[str, jax.Array]
    """Squared gradients of unfactored parameters, in the parameter's shape."""
    m: dict[str, jax.Array]
    """Momentum of the scaled updates, in the parameter's shape."""


SLOTS = ("v_row", "v_col", "v", "m")
LARGE = 1 << 18
"""Elements from which a parameter is treated so as to spare memory traffic; below, T5X's order of operations is kept,
so that its numbers come out to the last bit on the same CPU."""
WIDE = 1 << 13
"""Columns from which a matrix is very wide."""


def adafactor(
    settings: Adafactor,
    learning_rate: Curve,
    specs: Any,
    rules: Mapping[str, Rule] = STANDARD_RULES,
) -> optax.GradientTransformation:
    """T5X's Adafactor for the parameters that `specs` declares (a pytree of leaves with `shape` and `axes`).

    `learning_rate` is called with the state's count. Updates come in the parameter's type and are to be added to the
    parameters; weight decay is part of them. Raises ValueError for a parameter that cannot be factored as the
    settings ask (see `spanloom.optim.factoring`).
    """
    layout = {name: factoring(settings, spec, name, rules) for name, spec in flatten(specs).items()}
    decays = flatten(decay_mask(settings.decayed, specs))

    def init(params: Any) -> AdafactorState:
        return _initial_state(settings, layout, flatten(params))

    def update(grads: Any, state: AdafactorState, params: Any = None) -> tuple[Any, AdafactorState]:
        if params is None:
            raise ValueError("Adafactor's steps depend on the parameters: call update(grads, state, params)")
        rate = jnp.asarray(learning_rate(state.count), jnp.float32)
        beta2 = second_moment_decay(settings, state.count)
        clip = clip_scale(grads, settings.global_norm_clip) if settings.global_norm_clip is not None else None
        gradients, weights = flatten(grads), flatten(params)
        slots = {name: _slots_of(state, name) for name in weights}
        moved = {
            name: _update_parameter(
                settings, layout[name], decays[name], rate, beta2, clip, gradients[name], weights[name], slots[name]
            )
            for name in weights
        }
        updates = jax.tree.unflatten(jax.tree.structure(params), [update for update, _ in moved.values()])
        return updates, _collect(state.count + 1, {name: new for name, (_, new) in moved.items()})

    return optax.GradientTransformation(init, update)


def factoring(settings: Adafactor, spec: Spec, name: str, rules: Mapping[str, Rule] = STANDARD_RULES) -> Factoring:
    """How the settings treat one parameter.

    With `factor_rules="logical"` and `factored=False` T5X knows no axes, so that RMS values are over all layers
    together; with "heuristic" they are per layer in any case.
    """
    if settings.factor_rules == "logical":
        if not settings.factored:
            return Factoring(averaged=tuple(range(len(spec.shape))))
        return by_rules(spec, settings.min_dim_size_to_factor, name, rules)
    treated = by_size(spec, settings.min_dim_size_to_factor, name) if settings.factored else None
    return treated or Factoring(averaged=inner_dims(spec.axes))


def second_moment_decay(settings: Adafactor, count: jax.Array) -> jax.Array:
    """1 - (t + 1)^-decay_rate with t = count - step_offset: 0 at first, so that the first step ignores old moments.

    Steps before the offset count as the offset.
    """
    t = jnp.maximum(0, count - settings.step_offset).astype(jnp.float32)
    return 1 - (t + 1) ** -settings.decay_rate


def _initial_state(
    settings: Adafactor, layout: Mapping[str, Factoring], params: Mapping[str, jax.Array]
) -> AdafactorState:
    slots: dict[str, dict[str, jax.Array]] = {}
    for name, param in params.items():
        how = layout[name]
        slots[name] = {} if settings.beta1 is None else {"m": jnp.zeros(param.shape, jnp.float32)}
        if how.factored:
            slots[name]["v_row"] = jnp.zeros(_without(param.shape, how.columns), jnp.float32)
            slots[name]["v_col"] = jnp.zeros(_without(param.shape, how.rows), jnp.float32)
        else:
            slots[name]["v"] = jnp.zeros(param.shape, jnp.float32)
    return _collect(jnp.zeros((), jnp.int32), slots)


def _without(shape: tuple[int, ...], axes: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(size for i, size in enumerate(shape) if i not in axes)


def _slots_of(state: AdafactorState, name: str) -> dict[str, jax.Array]:
    return {slot: getattr(state, slot)[name] for slot in SLOTS if name in getattr(state, slot)}


def _collect(count: jax.Array, slots: Mapping[str, Mapping[str, jax.Array]]) -> AdafactorState:
    by_slot = {slot: {name: own[slot] for name, own in slots.items() if slot in own} for slot in SLOTS}
    return AdafactorState(count, **by_slot)


def _update_parameter(
    settings: Adafactor,
    how: Factoring,
    decays: bool,
    rate: jax.Array,
    beta2: jax.Array,
    clip: jax.Array | None,
    grad: jax.Array,
    param: jax.Array,
    slots: Mapping[str, jax.Array],
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """The update of one parameter and its new slots.

    A large gradient is read three times (row means, column means, RMS of the step) before the update is made. Each
    reader starts from a barrier of its own: left alone, XLA keeps squares and steps in memory between the readers,
    which takes longer than reading the gradient again, and as much memory as the parameters. Not so on TPUs, where both
    means are read off at once, and layers' gradients where they lie instead of stacked for the barrier.
    """

    def afresh(values: Any) -> tuple[jax.Array, Any]:
        again, its_clip, values = jax.lax.platform_dependent(
            (grad, clip, values), tpu=lambda same: same, default=jax.lax.optimization_barrier
        )
        return _clipped(again, its_clip), values

    weights = param.astype(jnp.float32)
    new, factors = _second_moments(settings, how, beta2, afresh, slots)
    step = _divide(how, _clipped(grad, clip), factors)
    if settings.clipping_threshold is not None:
        rms = _step_rms(how, *afresh(factors))
        step = step / jnp.maximum(1, rms / settings.clipping_threshold)
    scale = rate * _parameter_scale(settings, how, weights) if settings.multiply_by_parameter_scale else rate
    step = scale * step
    if settings.beta1 is not None:
        step = new["m"] = settings.beta1 * slots["m"] + (1 - settings.beta1) * step
    update = -step
    decay = _weight_decay(settings, rate) if decays else None
    if decay is not None:
        update = update - decay * weights
    if settings.skip_nan_updates:
        update = jnp.where(jnp.isnan(update), 0, update)
        new = {slot: jnp.where(jnp.isnan(value), slots[slot], value) for slot, value in new.items()}
    return update.astype(param.dtype), new


def _clipped(grad: jax.Array, clip: jax.Array | None) -> jax.Array:
    return grad.astype(jnp.float32) if clip is None else grad.astype(jnp.float32) * clip


def _second_moments(
    settings: Adafactor,
    how: Factoring,
    beta2: jax.Array,
    afresh: Callable[[Any], tuple[jax.Array, Any]],
    slots: Mapping[str, jax.Array],
) -> tuple[dict[str, jax.Array], list[jax.Array]]:
    """The new second moments, and what `_divide` needs of them: v, or a factor for each row and for each column."""
    epsilon = settings.epsilon1
    if not how.factored:
        v = beta2 * slots["v"] + (1 - beta2) * (jnp.square(afresh(beta2)[0]) + epsilon)
        return {"v": v}, [v]
    v_row = beta2 * slots["v_row"] + (1 - beta2) * _mean_square(afresh(beta2)[0], how.columns, epsilon)
    v_col = beta2 * slots["v_col"] + (1 - beta2) * _mean_square(afresh(v_row)[0], how.rows, epsilon)
    row = jnp.expand_dims(v_row, how.columns)
    row_factor = (row / jnp.mean(row, how.rows, keepdims=True)) ** -0.5
    return {"v_row": v_row, "v_col": v_col}, [row_factor, jnp.expand_dims(v_col**-0.5, how.rows)]


def _divide(how: Factoring, grad: jax.Array, factors: Sequence[jax.Array]) -> jax.Array:
    """The gradient divided by the root of its second moments."""
    return grad * factors[0] * factors[1] if how.factored else grad * factors[0] ** -0.5


def _step_rms(how: Factoring, grad: jax.Array, factors: Sequence[jax.Array]) -> jax.Array:
    if how.factored or grad.size < LARGE:
        return _rms(_divide(how, grad, factors), how.averaged)
    return jnp.sqrt(jnp.mean(grad * grad / factors[0], how.averaged, keepdims=True))


def _mean_square(x: jax.Array, axes: tuple[int, ...], epsilon: float) -> jax.Array:
    """Mean of x^2 + epsilon over some axes.

    XLA's CPU compiler sums the rows of a very wide matrix column by column; a product with ones is ten times faster.
    """
    if x.size < LARGE:
        return jnp.mean(x * x + epsilon, axes)
    if x.ndim == 2 and axes == (0,) and x.shape[1] >= WIDE:
        return jnp.dot(jnp.ones(x.shape[0]), x * x, precision="highest") / x.shape[0] + epsilon
    return jnp.mean(x * x, axes) + epsilon


def _rms(x: jax.Array, axes: tuple[int, ...]) -> jax.Array:
    return jnp.sqrt(jnp.mean(x * x, axes, keepdims=True))


def _parameter_scale(settings: Adafactor, how: Factoring, weights: jax.Array) -> jax.Array:
    scale = jnp.maximum(_rms(weights, how.averaged), settings.epsilon2)
    return scale if settings.max_parameter_scale is None else jnp.minimum(scale, settings.max_parameter_scale)


def _weight_decay(settings: Adafactor, rate: jax.Array) -> jax.Array | float | None:
    if not settings.weight_decay_lr_exponent:
        return settings.weight_decay
    return (settings.weight_decay or 1.0) * rate**settings.weight_decay_lr_exponent
