"""Smaller ways to run a step, in the order of what they cost."""

from dataclasses import replace
from itertools import islice

import pytest

from spanloom.recipes.quickstart import recipe
from spanloom.scale.changes import MOST_PARTS, smaller
from spanloom.settings.mesh import Mesh

pytestmark = pytest.mark.short
RUN = replace(recipe(), batch_size=64, model=replace(recipe().model, num_heads=4)).resolve()


def flags(run, devices):
    """The flags of every change without other rematerialisation."""
    return [change.flags for change in smaller(run, devices) if not any("remat" in flag for flag in change.flags)]


def test_on_one_device_there_are_microbatches():
    sizes = [size for (size,) in flags(RUN, 1)]
    assert sizes == [f"--microbatch-size {rows}" for rows in (32, 16, 8, 4, 2, 1)]


def test_more_devices_share_weights_before_microbatches_go_on_without_end():
    found = flags(RUN, 4)
    assert found[:3] == [("--microbatch-size 32",), ("--microbatch-size 16",), ("--microbatch-size 8",)]
    assert found[3] == ("--mesh.fsdp 2",)
    assert found.index(("--mesh.fsdp 4",)) < found.index(("--mesh.tensor 2",))
    last = found[-1]
    assert last == ("--microbatch-size 1", "--mesh.tensor 4")
    assert found.index(("--microbatch-size 4",)) > found.index(("--mesh.tensor 4",))


def test_every_change_is_a_run_that_devices_can_share():
    run = replace(RUN, batch_size=48, mesh=Mesh(fsdp=2)).resolve()
    for change in smaller(run, 8):
        mesh = change.run.mesh
        assert 8 % (mesh.fsdp * mesh.tensor) == 0 and change.run.batch_size == 48
        assert change.run.batch_size % change.run.at_a_time == 0
        assert change.run.at_a_time % (8 // mesh.tensor) == 0
        assert change.run.resolve() == change.run
    assert len({change.flags for change in smaller(run, 8)}) == len(list(smaller(run, 8)))


def test_what_was_set_stays_or_grows():
    run = replace(RUN, microbatch_size=16, mesh=Mesh(fsdp=2, tensor=2, data=2)).resolve()
    for change in islice(smaller(run, 8), 40):
        assert change.run.microbatches >= 4 and change.run.mesh.fsdp >= 2 and change.run.mesh.tensor >= 2
        assert any("--mesh.data auto" in flag for flag in change.flags) == (change.run.mesh != run.mesh)


def test_heads_bound_what_tensor_can_divide():
    assert all(change.run.mesh.tensor <= 4 for change in smaller(RUN, 64))
    assert MOST_PARTS == 8
