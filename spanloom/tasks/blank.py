"""Which texts are blank, and so no documents: in every format those without a character but Unicode's white space.

That is what `str.isspace` goes by: tabs, spaces, U+0085, U+00A0, U+3000 and so on, and not U+200B or U+FEFF.
"""

import re

_BLANKS = re.compile(
    rb"(?:[\t-\r\x1c- ]|\xc2[\x85\xa0]|\xe1\x9a\x80|\xe2(?:\x80[\x80-\x8a\xa8\xa9\xaf]|\x81\x9f)|\xe3\x80\x80)*+"
)


def is_blank(text: str) -> bool:
    """Whether a text is empty or white space alone."""
    return not text or text.isspace()


def is_blank_utf8(raw: bytes) -> bool:
    """The same of a text in UTF-8, which is not decoded for it."""
    return _BLANKS.fullmatch(raw) is not None
