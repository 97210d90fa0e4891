import pytest

from spanloom.tasks.shown import shown

pytestmark = pytest.mark.short


class Broken:
    def __init__(self, error):
        self.error = error

    def __repr__(self):
        raise self.error


@pytest.mark.parametrize("error", [ValueError("no"), RuntimeError("no"), AttributeError("no")])
def test_what_has_no_repr_is_named_by_its_class(error):
    assert shown(Broken(error)) == "an object of Broken"
    assert "thousands of digits" in shown(10**10_000)


def test_long_values_are_cut():
    assert shown("ab" * 40) == f"{'ab' * 20!r}..."
    assert shown(list(range(100))).endswith("...") and shown([1, 2]) == "[1, 2]"
