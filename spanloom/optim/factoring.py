"""Which axes of a parameter Adafactor averages over and factors along. Plain integers, no arrays."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

Rule = Literal["ROW", "COLUMN", "NONE", "BATCH"]

LAYER_AXES = frozenset({"layers", "stack"})
"""Names of axes along which independent layers are stacked; nothing is ever averaged over them."""

TABLE_AXES = frozenset({"vocab", "relpos_buckets"})
"""Names of axes along which rows are looked up, or stand for one token each."""

STANDARD_RULES: Mapping[str, Rule] = {
    "embed": "ROW",
    "vocab": "COLUMN",
    "mlp": "COLUMN",
    "heads": "COLUMN",
    "kv": "COLUMN",
    "joined_kv": "COLUMN",
    "q_wi_fused": "COLUMN",
    "o_wo_fused": "COLUMN",
    "multiquery_heads": "COLUMN",
    "kv_fused": "COLUMN",
    "mlp_activations": "COLUMN",
    "relpos_buckets": "NONE",
    "layer_norm_scale": "NONE",
    "layers": "BATCH",
    "stack": "BATCH",
}
"""T5X's standard logical factor rules."""


class Spec(Protocol):
    """What the optimizers need to know of a parameter: `spanloom.model.params.ParamSpec` has it."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of the axes."""

    @property
    def axes(self) -> tuple[str, ...]:
        """Names of the axes."""


@dataclass(frozen=True)
class Factoring:
    """How Adafactor treats one parameter; the numbers are axes of the parameter."""

    averaged: tuple[int, ...]
    """Axes over which RMS values (clipping, parameter scale) are taken: all but the layers."""
    rows: tuple[int, ...] = ()
    """Axes that v_row keeps and v_col is averaged over; empty: full second moments in v."""
    columns: tuple[int, ...] = ()
    """Axes that v_col keeps and v_row is averaged over."""

    @property
    def factored(self) -> bool:
        """Whether second moments are kept as v_row and v_col."""
        return bool(self.rows)


def inner_dims(axes: tuple[str, ...]) -> tuple[int, ...]:
    """Positions of the axes of one layer."""
    return tuple(i for i, axis in enumerate(axes) if axis not in LAYER_AXES)


def is_matrix(spec: Spec) -> bool:
    """Whether one layer of the parameter is a matrix (weight decay spares norm scales and scalars)."""
    return len(inner_dims(spec.axes)) >= 2


def is_projection(spec: Spec) -> bool:
    """Whether a parameter is a layer's map from one space to another: no embedding, head, position table or norm."""
    return is_matrix(spec) and not TABLE_AXES & set(spec.axes)


def by_size(spec: Spec, min_size: int, name: str) -> Factoring:
    """Mesh TensorFlow's size heuristic on each layer: factor if the smaller side has at least min_size.

    v_row keeps the smaller axis (equal sizes keep their order). Raises ValueError where a layer has more than two
    axes, for which the heuristic is not defined.
    """
    inner = inner_dims(spec.axes)
    if len(inner) > 2:
        raise ValueError(
            f"parameter {name} has more than two axes in one layer ({spec.axes}), and Adafactor's size heuristic knows "
            'matrices only; set factor_rules="logical", or factored=False'
        )
    if len(inner) < 2 or min(spec.shape[i] for i in inner) < min_size:
        return Factoring(averaged=inner)
    smaller, larger = sorted(inner, key=lambda i: spec.shape[i])
    return Factoring(averaged=inner, rows=(smaller,), columns=(larger,))


def by_rules(spec: Spec, min_size: int, name: str, rules: Mapping[str, Rule]) -> Factoring:
    """T5X's logical rules: by axis name, whatever the size, for parameters with a layers axis or more than two axes.

    Any other parameter falls back to the size heuristic, as in T5X. Without both a ROW and a COLUMN axis it stays
    unfactored. Raises ValueError for an axis without a rule, and for ROW, COLUMN and NONE on the same parameter.
    """
    unknown = [axis for axis in spec.axes if axis not in rules]
    if unknown:
        raise ValueError(
            f"no factor rule for axis {unknown[0]!r} of parameter {name} (there are rules for "
            f'{", ".join(sorted(rules))}); set factor_rules="heuristic"'
        )
    found: dict[Rule, tuple[int, ...]] = {
        rule: tuple(i for i, axis in enumerate(spec.axes) if rules[axis] == rule)
        for rule in ("ROW", "COLUMN", "NONE", "BATCH")
    }
    both = bool(found["ROW"] and found["COLUMN"])
    if both and found["NONE"]:
        raise ValueError(
            f"parameter {name} mixes ROW, COLUMN and NONE axes {spec.axes}, which cannot be factored; "
            'set factor_rules="heuristic" or factored=False'
        )
    if len(spec.shape) <= 2 and not found["BATCH"]:
        return by_size(spec, min_size, name)
    averaged = tuple(i for i in range(len(spec.shape)) if i not in found["BATCH"])
    return Factoring(averaged, found["ROW"], found["COLUMN"]) if both else Factoring(averaged)
