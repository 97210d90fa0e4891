"""The lock of the hosts' environment."""

import pytest

from spanloom.launch.environment import LockError, lock


def test_the_lock_has_what_is_needed_in_the_versions_that_are_here():
    import jax

    found = lock((), ())
    assert any(need.startswith("jax>=") for need in found.requirements)
    assert not any("extra" in need for need in found.requirements)
    assert f"jax=={jax.__version__}" in found.constraints
    assert not any(line.startswith("spanloom") or "+" in line for line in found.constraints)


def test_extras_and_packages_are_added_and_change_the_name():
    plain, more = lock((), ()), lock(("tpu",), ("evaluate>=0.4",))
    assert "jax[tpu]>=0.10" in more.requirements and "evaluate>=0.4" in more.requirements
    assert len({plain.name, more.name, lock(("tpu",), ()).name}) == 3
    assert lock((), ()).name == plain.name


def test_other_markers_stay():
    torch = next(need for need in lock(("parity",), ()).requirements if need.startswith("torch"))
    assert "python_version" in torch and "extra" not in torch


def test_an_unknown_extra_is_refused_with_those_that_are():
    with pytest.raises(LockError, match=r"--extras cuda13: no such extra.*cuda.*tpu"):
        lock(("cuda13",), ())
