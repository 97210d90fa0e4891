import pytest

from spanloom.tasks.split_slices import Part, parse

pytestmark = pytest.mark.short


@pytest.mark.parametrize(
    ("text", "total", "bounds"),
    [
        ("train", 25, (0, 25)),
        ("train[:10%]", 25, (0, 2)),  # 2.5 goes to the even number, as in TFDS
        ("train[10%:60%]", 25, (2, 15)),
        ("train[:3]", 25, (0, 3)),
        ("train[3:]", 25, (3, 25)),
        ("train[-5:]", 25, (20, 25)),
        ("train[:-20%]", 25, (0, 20)),
        ("train[100:]", 25, (25, 25)),
        ("train[9:4]", 25, (9, 9)),
        ("train[:]", 0, (0, 0)),
    ],
)
def test_bounds(text, total, bounds):
    (part,) = parse(text)
    assert part.split == "train" and part.bounds(total) == bounds


def test_parts_are_joined_by_plus():
    assert parse("train[:5]+ validation + test[-1:]") == [
        Part("train", "", "5"),
        Part("validation"),
        Part("test", "-1", ""),
    ]


@pytest.mark.parametrize("text", ["", "train[", "train[1]", "train[:x]", "train[:1%%]", "a++b", "[:1]"])
def test_what_is_no_split(text):
    with pytest.raises(ValueError, match="is no split: write train, "):
        parse(text)
