import json
import time

import pytest

from spanloom.training.machine import cpu_count, describe_machine, differences, measured_peak


@pytest.mark.short
def test_what_decides_the_last_bits_is_plain_data():
    machine = describe_machine()
    assert json.loads(json.dumps(machine)) == machine
    assert {"spanloom", "python", "jax", "jaxlib", "numpy", "devices", "cpu_count", "processor"} <= machine.keys()
    assert machine["cpu_count"] == cpu_count() >= 1
    assert differences(machine, machine) == []


@pytest.mark.short
def test_differences_are_named():
    found = differences({"jax": "1", "numpy": "2"}, {"jax": "1", "numpy": "3", "new": 4})
    assert found == ["numpy: 2 in the checkpoint, 3 here", "new: not said in the checkpoint, 4 here"]


def test_the_peak_is_measured_quickly_and_is_that_of_a_computer():
    measured_peak.cache_clear()
    started = time.process_time()
    peak = measured_peak("float32")
    assert time.process_time() - started < 10  # CPU seconds over all cores, on a busy machine
    assert 1e9 < peak < 1e16
    assert measured_peak("float32") == peak
