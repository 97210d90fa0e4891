import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tensorboardX.crc32c import crc32c as plain_crc32c

from spanloom.tasks.crc32c import crc32c, extended


def crcs(data: bytes, stretches):
    starts, ends = np.array(stretches, np.int64).reshape(-1, 2).T
    return crc32c(np.frombuffer(data, np.uint8), starts, ends).tolist()


@pytest.mark.short
@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", 0),
        (b"123456789", 0xE3069283),
        (bytes(32), 0x8A9136AA),  # these three: RFC 3720, B.4
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
    ],
)
def test_published_values(data, expected):
    assert crcs(data, [(0, len(data))]) == [expected]


@settings(deadline=None)
@given(st.binary(max_size=300), st.data())
def test_stretches_of_any_length_at_any_place(data, draw):
    place = st.integers(0, len(data))
    stretches = [sorted(pair) for pair in draw.draw(st.lists(st.tuples(place, place), max_size=8))]
    assert crcs(data, stretches) == [plain_crc32c(data[start:end]) for start, end in stretches]


@settings(deadline=None)
@given(st.binary(max_size=200), st.binary(max_size=200))
def test_one_stretch_after_another(first, second):
    crc = extended(0, np.frombuffer(first, np.uint8))
    assert crc == plain_crc32c(first)
    assert extended(crc, np.frombuffer(second, np.uint8)) == plain_crc32c(first + second)


def test_long_stretches():
    data = np.random.default_rng(0).integers(0, 256, 200_003, np.uint8).tobytes()
    assert crcs(data, [(0, 200_003), (1, 65_537)]) == [plain_crc32c(data), plain_crc32c(data[1:65_537])]
