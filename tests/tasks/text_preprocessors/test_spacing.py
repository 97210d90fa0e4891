import pytest

from spanloom.tasks.text_preprocessors import PadNonspacedLanguages
from spanloom.tasks.text_preprocessors.spacing import pad_punctuation


@pytest.mark.short
def test_spaces_around_punctuation_and_characters():
    assert pad_punctuation("a-b,\t\nc 6½…") == "a - b , c 6½…"
    assert PadNonspacedLanguages("t")({"t": "日本 is a한", "n": 1}) == {"t": " 日 本 is a한", "n": 1}
