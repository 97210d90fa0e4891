"""Devices by the names under which they are rented."""

import math

import pytest

from spanloom.scale.topologies import CHIPS, UnknownTopologyError, names, topology

pytestmark = pytest.mark.short


@pytest.mark.parametrize(
    ("name", "layout", "chips", "devices", "hosts", "cores"),
    [
        ("v2-8", "v2:2x2", 4, 8, 1, 8),
        ("v3-8", "v3:2x2", 4, 8, 1, 8),
        ("v3-512", "v3:16x16", 256, 512, 64, 512),
        ("v4-8", "v4:2x2x1", 4, 4, 1, 8),
        ("v4-32", "v4:2x2x4", 16, 16, 4, 32),
        ("v4-128", "v4:4x4x4", 64, 64, 16, 128),
        ("v5e-1", "v5e:1x1", 1, 1, 1, 1),
        ("v5e-4", "v5e:2x2", 4, 4, 1, 4),
        ("v5e-8", "v5e:2x4", 8, 8, 1, 8),
        ("v5e-16", "v5e:4x4", 16, 16, 4, 16),
        ("v5e-256", "v5e:16x16", 256, 256, 64, 256),
        ("v5p-8", "v5p:2x2x1", 4, 4, 1, 8),
        ("v5p-128", "v5p:4x4x4", 64, 64, 16, 128),
        ("v6e-8", "v6e:2x4", 8, 8, 1, 8),
        ("h100x8", "", 8, 8, 1, 8),
        ("a100x16", "", 16, 16, 2, 16),
    ],
)
def test_names(name, layout, chips, devices, hosts, cores):
    found = topology(name)
    assert (found.layout, found.chips, found.devices) == (layout, chips, devices)
    assert (found.hosts, found.cores) == (hosts, cores)


def test_other_ways_to_write_a_name():
    assert topology(" V5E-16 ") == topology("v5litepod-16") == topology("v5e-16")
    assert topology("h100x3").devices == 3


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("v4-7", r"no devices are called 'v4-7'; the nearest is v4-8; there are v4-8, v4-16, .*v4-8192$"),
        ("v5p-2000", r"the nearest is v5p-2048"),
        ("h100x9", r"the nearest is h100x8"),
        ("v5-8", r"did you mean .*v5e-8"),
        ("laptop", r"there are v2-8 to v2-512, v3-8 .* and cpu \(this machine\)$"),
        ("", r"there are v2-8"),
    ],
)
def test_unknown_names_have_the_nearest_and_the_list(name, message):
    with pytest.raises(UnknownTopologyError, match=message):
        topology(name)


def test_every_listed_name_is_known_and_no_two_are_alike():
    found = [topology(name) for name in names()]
    assert [one.name for one in found] == names() and len({*names()}) == len(names())
    for one in found:
        assert math.prod(one.grid) == one.chips and one.hosts <= one.chips
        assert one.device_memory * one.devices == pytest.approx(one.chip.memory * one.chips)


def test_figures_are_of_one_device():
    v3, v4 = topology("v3-8"), topology("v4-8")
    assert v3.device_flops("bfloat16") == 61.5e12 and v4.device_flops("bfloat16") == 275e12
    assert v3.device_bandwidth == 450e9 and v3.device_interconnect == pytest.approx(164e9)
    assert topology("h100x8").device_flops("float32") == 495e12


def test_every_chip_says_where_its_figures_come_from():
    assert all(len(chip.source) > 10 for chip in CHIPS.values())
