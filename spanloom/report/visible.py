"""Text of the data as it can be shown: nothing in it steers a terminal, turns a line around or hides."""

import unicodedata

NEWLINE = "\u21b5"
_HIDING = {"Cc", "Cf", "Cs", "Zl", "Zp"}
_KEPT = {"\u00ad", "\u200c", "\u200d"}  # soft hyphens and joiners, which scripts need
_NAMED = {"\n": NEWLINE, "\t": "\u21e5"}
_CIRCLE = "\u25cc"  # carries a mark that has no letter before it


def visible(text: str) -> str:
    """Line breaks and tabs as arrows, other control and direction characters as their codes, and a mark that a cut has
    left without its letter on a dotted circle.
    """
    shown = "".join(map(_visible, text))
    return _CIRCLE + shown if shown and unicodedata.category(shown[0]) in ("Mn", "Mc", "Me") else shown


def _visible(character: str) -> str:
    if character in _NAMED:
        return _NAMED[character]
    if unicodedata.category(character) not in _HIDING or character in _KEPT:
        return character
    return character.encode("unicode_escape").decode()
