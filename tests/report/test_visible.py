import pytest

from spanloom.report.visible import visible

pytestmark = pytest.mark.short


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\nb\tc", "a\u21b5b\u21e5c"),
        ("\x1b[31mred\x07\x00", "\\x1b[31mred\\x07\\x00"),
        ("\x9b31m", "\\x9b31m"),
        ("\u202eabc\u2066", "\\u202eabc\\u2066"),
        ("\ufeffa\u2028b", "\\ufeffa\\u2028b"),
        ("\u0301a", "\u25cc\u0301a"),
        ("a\u0301", "a\u0301"),
        ("\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645", "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645"),
        ("\u0936\u093e\u0928\u094d\u0924\u093f", "\u0936\u093e\u0928\u094d\u0924\u093f"),
        ("\u094d\u0924", "\u25cc\u094d\u0924"),
        ("\U0001f468\u200d\U0001f469 \u6c34", "\U0001f468\u200d\U0001f469 \u6c34"),
        ("", ""),
    ],
)
def test_nothing_steers_hides_or_turns_around(text, shown):
    assert visible(text) == shown
