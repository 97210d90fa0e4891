"""Spaces where a space tokenizer needs them. Punctuation and white space are ASCII's alone, as in RE2."""

import re
from dataclasses import dataclass
from string import punctuation
from typing import Any

from spanloom.tasks.text_preprocessors import fields
from spanloom.tasks.text_preprocessors.fields import Example

SPACES = r"[\t\n\f\r ]"
"""A white space character of RE2's \\s, as a regular expression."""

_PUNCTUATION = re.compile(f"([{re.escape(punctuation)}])")
_RUN = re.compile(SPACES + "+")
_BLOCKS = (
    (0x0E00, 0x0E7F),  # Thai
    (0x0E80, 0x0EFF),  # Lao
    (0x0F00, 0x0FFF),  # Tibetan
    (0x1000, 0x104F),  # Burmese
    (0x1780, 0x17FF),  # Khmer
    (0x1980, 0x19DF),  # New Tai Lue
    (0x19E0, 0x19FF),  # Khmer symbols
    (0x1A20, 0x1AAF),  # Tai Tham
    (0x2E80, 0x2EFF),  # CJK radicals
    (0x3000, 0x303F),  # CJK punctuation
    (0x3040, 0x309F),  # Hiragana
    (0x30A0, 0x30FF),  # Katakana
    (0x31C0, 0x31EF),  # CJK strokes
    (0x3400, 0x4DBF),  # CJK ideographs, extension A
    (0x4E00, 0x9FFF),  # CJK ideographs
    (0xA980, 0xA9DF),  # Javanese
    (0xF900, 0xFAFF),  # CJK compatibility ideographs
)
_NOT_SPACED = re.compile("([" + "".join(f"{chr(first)}-{chr(last)}" for first, last in _BLOCKS) + "])")


def collapse_spaces(text: str) -> str:
    """Each run of white space as one space."""
    return _RUN.sub(" ", text)


def pad_punctuation(text: str) -> str:
    """A space on both sides of each punctuation character, and no two spaces together."""
    return collapse_spaces(_PUNCTUATION.sub(r" \1 ", text))


@dataclass(frozen=True)
class PadNonspacedLanguages:
    """Spaces around each character of the scripts that write none between words; Hangul does."""

    text_key: str = "text"

    def __call__(self, example: Example) -> dict[str, Any]:
        """Raises FieldError where the field is missing."""
        padded = collapse_spaces(_NOT_SPACED.sub(r" \1 ", fields.text(example, self.text_key)))
        return {**example, self.text_key: padded}
