"""One character written in one way: Unicode normal forms, Romanian commas, lower case."""

import unicodedata
from dataclasses import dataclass
from typing import Any, Literal

from spanloom.tasks.text_preprocessors import fields
from spanloom.tasks.text_preprocessors.fields import Example

_COMMAS = str.maketrans({"Ş": "Ș", "ş": "ș", "Ţ": "Ț", "ţ": "ț"})


@dataclass(frozen=True)
class NormalizeUnicode:
    """Text in a Unicode normal form (Unicode Standard Annex 15): NFC keeps what is seen, NFKC also unites variants."""

    form: Literal["NFC", "NFD", "NFKC", "NFKD"] = "NFC"
    feature_keys: tuple[str, ...] = ("inputs", "targets")

    def __call__(self, example: Example) -> dict[str, Any]:
        """Raises FieldError for fields that are missing or no text."""
        changed = {name: unicodedata.normalize(self.form, fields.text(example, name)) for name in self.feature_keys}
        return {**example, **changed}


@dataclass(frozen=True)
class CedillaToComma:
    """Romanian s and t with the comma below that its spelling asks for, where old fonts put a cedilla.

    Decomposed letters become composed ones. Not for Turkish, whose s has a cedilla.
    """

    feature_keys: tuple[str, ...] = ("inputs", "targets")

    def __call__(self, example: Example) -> dict[str, Any]:
        """Raises FieldError for fields that are missing or no text."""
        return {**example, **{name: cedilla_to_comma(fields.text(example, name)) for name in self.feature_keys}}


@dataclass(frozen=True)
class Lowercase:
    """Text in lower case, as Unicode has it in no particular language."""

    feature_keys: tuple[str, ...] = ("inputs", "targets")

    def __call__(self, example: Example) -> dict[str, Any]:
        """Raises FieldError for fields that are missing or no text."""
        return {**example, **{name: fields.text(example, name).lower() for name in self.feature_keys}}


def cedilla_to_comma(text: str) -> str:
    """The text with ș and ț for ş and ţ, whether these are one character or letter and combining cedilla."""
    for letter in "SsTt":
        text = text.replace(f"{letter}\u0327", f"{letter}\u0326")
    composed = {f"{letter}\u0326": comma for letter, comma in zip("SsTt", "ȘșȚț", strict=True)}
    for decomposed, letter in composed.items():
        text = text.replace(decomposed, letter)
    return text.translate(_COMMAS)
