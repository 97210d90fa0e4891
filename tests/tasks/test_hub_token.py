"""Whether a failure is the token's fault."""

import pytest

from spanloom.tasks.hub_token import is_odd

pytestmark = pytest.mark.short


@pytest.fixture
def token(monkeypatch):
    pytest.importorskip("huggingface_hub")
    return lambda value: monkeypatch.setattr("huggingface_hub.get_token", lambda: value)


def unsendable() -> Exception:
    """As of a library that wraps what it was told."""
    try:
        try:
            "Bearer hf_ö".encode("ascii")
        except UnicodeEncodeError as error:
            raise RuntimeError("request") from error
    except RuntimeError as error:
        return error


def test_only_a_header_that_cannot_be_sent_is_the_fault_of_an_odd_token(token):
    token("hf_ö")
    assert is_odd(unsendable())
    assert not is_odd(FileNotFoundError("a"))
    for value in ("hf_good", None):
        token(value)
        assert not is_odd(unsendable())
