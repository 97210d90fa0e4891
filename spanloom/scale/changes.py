"""Changes of a run that make its step smaller in memory, the smallest first, as the flags that make them."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, get_args, get_type_hints

from spanloom.settings.model import Model
from spanloom.settings.run import Run

MOST_PARTS = 8
"""Microbatches of a batch before devices share weights, too: each takes a whole step's way to and fro."""


@dataclass(frozen=True)
class Change:
    """A run that needs less memory, and the flags that make it of the one that was asked for."""

    run: Run
    flags: tuple[str, ...]


def smaller(run: Run, devices: int) -> Iterator[Change]:
    """Changes of a resolved run on so many devices, in the order of what they cost: activations are computed again
    (remat), then microbatches, then weights are shared along fsdp, then matrices are divided along tensor; last of all,
    microbatches without end.
    """
    for fewest, most in ((1, MOST_PARTS), (MOST_PARTS + 1, run.batch_size)):
        for tensor in _doubled(_extent(run.mesh.tensor), devices, run.model.num_heads):
            for fsdp in _doubled(_extent(run.mesh.fsdp), devices // tensor, devices):
                for parts in _parts(run, devices // tensor, fewest, most):
                    for remat in _policies(run.model):
                        change = _change(run, tensor, fsdp, parts, remat)
                        if change.flags:
                            yield change


def _change(run: Run, tensor: int, fsdp: int, parts: int, remat: str) -> Change:
    flags: list[str] = []
    changed = run
    if remat != run.model.remat:
        changed = replace(changed, model=_with(changed.model, "remat", remat))
        flags.append(f"--model.remat {remat}")
    if parts != run.microbatches:
        changed = replace(changed, microbatch_size=run.batch_size // parts, microbatch_tokens=None)
        flags.append(f"--microbatch-size {run.batch_size // parts}")
    for name, size in (("fsdp", fsdp), ("tensor", tensor)):
        if size != _extent(getattr(run.mesh, name)):
            changed = replace(changed, mesh=_with(replace(changed.mesh, data="auto"), name, size))
            flags.append(f"--mesh.{name} {size}")
    if run.mesh.data != "auto" and changed.mesh != run.mesh:
        flags.append("--mesh.data auto")
    return Change(changed, tuple(flags))


def _with(settings: Any, name: str, value: Any) -> Any:
    return replace(settings, **{name: value})


def _extent(size: int | str) -> int:
    return size if isinstance(size, int) else 1


def _doubled(first: int, most: int, divides: int) -> list[int]:
    """`first`, and twice that and so on, while it is a divisor of the devices that there are."""
    found = [first]
    while most % (2 * found[-1]) == 0 and divides % (2 * found[-1]) == 0:
        found.append(2 * found[-1])
    return found


def _parts(run: Run, shards: int, fewest: int, most: int) -> list[int]:
    """Numbers of microbatches from `fewest` to `most`: as they are, and more, whose rows devices can share evenly."""
    now = run.microbatches
    doubled = (now * 2**power for power in range(run.batch_size.bit_length()))
    fitting = (parts for parts in doubled if run.batch_size % parts == 0 and run.batch_size // parts % shards == 0)
    return [parts for parts in fitting if max(fewest, now) <= parts <= max(most, now)]


def _policies(model: Model) -> list[str]:
    """Rematerialisation policies from the model's own to the one that keeps least."""
    names: tuple[str, ...] = get_args(get_type_hints(Model)["remat"])
    return [*names[names.index(model.remat) :]]
