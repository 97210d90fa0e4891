"""Which parameters decay."""

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

import jax

from spanloom.model.params import flatten, path_name
from spanloom.optim.factoring import Spec, is_matrix
from spanloom.settings.nearest import did_you_mean


def decay_mask(decayed: Sequence[str], specs: Any) -> Any:
    """Whether each parameter that `specs` declares decays: a tree of bools.

    `decayed` is what settings have: "matrices" (within one layer), "all", or names such as 'encoder/*/kernel'; with "!"
    before it, what does not decay; the last that matches a parameter decides. Raises ValueError for one that matches no
    parameter, with the nearest name.
    """
    flat: Mapping[str, Spec] = flatten(specs)
    chosen = dict.fromkeys(flat, False)
    for word in decayed:
        pattern = word.removeprefix("!")
        matched = [name for name, spec in flat.items() if _matches(pattern, name, spec)]
        if not matched:
            raise ValueError(
                f"optimizer.decayed: {word!r} matches no parameter{did_you_mean(pattern, [*flat, 'matrices', 'all'])} "
                "(names are those of stacked layers, such as encoder/layers/mlp/wo/kernel; * stands for any letters)"
            )
        chosen |= dict.fromkeys(matched, not word.startswith("!"))
    return jax.tree_util.tree_map_with_path(lambda path, _: chosen[path_name(path)], specs)


def _matches(pattern: str, name: str, spec: Spec) -> bool:
    if pattern == "matrices":
        return is_matrix(spec)
    return pattern == "all" or fnmatchcase(name, pattern)
