"""What a recipe needs on the slice of TPUs that it is for: found by compiling its step for it (`spanloom plan`)."""

from dataclasses import replace

from spanloom.settings.mesh import Mesh
from spanloom.settings.run import Run

Slice = tuple[Mesh, int]
"""The mesh of a slice, and the sequences of a microbatch."""


def on_slice(run: Run, place: Slice | None) -> Run:
    """The run with a slice's mesh and microbatches, in bfloat16, cheap activations computed again; None: as it is."""
    if place is None:
        return run
    mesh, microbatch = place
    model = replace(run.model, dtype="bfloat16", remat="cheap")
    return replace(run, model=model, mesh=mesh, microbatch_size=microbatch)
