import json
from types import SimpleNamespace

import jax
import pytest

from spanloom.training.machine import cpu_count, describe_machine, differences, measured_peak


@pytest.mark.short
def test_what_decides_the_last_bits_is_plain_data():
    machine = describe_machine()
    assert json.loads(json.dumps(machine)) == machine
    assert {"spanloom", "python", "jax", "jaxlib", "numpy", "optax"} <= machine.keys()
    assert {"devices", "cpu_count", "processor", "xla_flags"} <= machine.keys()
    assert machine["cpu_count"] == cpu_count() >= 1
    assert differences(machine, machine) == []


@pytest.mark.short
def test_differences_are_named():
    found = differences({"jax": "1", "numpy": "2", "gone": None}, {"jax": "1", "numpy": "3", "new": 4})
    assert found == ["numpy: 2 in the checkpoint, 3 here", "gone: None in the checkpoint, not said here"]


@pytest.mark.short
@pytest.mark.parametrize(
    ("name", "value"),
    [("jax_default_matmul_precision", "float32"), ("jax_default_prng_impl", "rbg"), ("jax_enable_x64", True)],
)
def test_settings_of_jax_that_decide_the_last_bits_are_told(name, value):
    before = describe_machine()
    old = getattr(jax.config, name)
    try:
        jax.config.update(name, value)
        (said,) = differences(before, describe_machine())
    finally:
        jax.config.update(name, old)
    assert said == f"{name}: {old} in the checkpoint, {value} here"


def test_the_peak_is_measured_once_and_is_that_of_a_computer():
    measured_peak.cache_clear()
    peak = measured_peak("float32")
    assert 1e9 < peak < 1e16
    assert measured_peak("float32") == peak and measured_peak.cache_info().misses == 1


@pytest.mark.parametrize(("platform", "counted"), [("cpu", 1), ("gpu", 8)])
def test_devices_that_share_the_same_cores_count_once(monkeypatch, platform, counted):
    measured_peak.cache_clear()
    monkeypatch.setattr("spanloom.training.machine._timed", lambda multiply, square: 1.0)
    monkeypatch.setattr(jax, "local_devices", lambda: [SimpleNamespace(platform=platform)] * 8)
    monkeypatch.setattr(jax, "local_device_count", lambda: 8)
    assert measured_peak("float32") == 2 * 1024**3 * counted
    measured_peak.cache_clear()
