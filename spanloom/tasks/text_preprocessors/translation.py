"""'translate English to German: <text>' -> the translation, as in T5 (Raffel et al. 2020, appendix D.15)."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from spanloom.tasks.templates import FieldError
from spanloom.tasks.text_preprocessors import fields
from spanloom.tasks.text_preprocessors.fields import Example
from spanloom.tasks.text_preprocessors.languages import language_name


@dataclass(frozen=True)
class _LanguagePair:
    """Two languages and what the prompt calls them."""

    source_language: str
    """Code of the language: 'en', 'zh-cn'."""
    target_language: str
    """Likewise."""
    source_name: str = ""
    """English name in the prompt; empty: that of the code."""
    target_name: str = ""
    """Likewise."""

    def __post_init__(self) -> None:
        """Raises ValueError for a language without a known name."""
        _ = self.prompt

    @property
    def prompt(self) -> str:
        """What stands before the text."""
        source = self.source_name or language_name(self.source_language)
        target = self.target_name or language_name(self.target_language)
        return f"translate {source} to {target}: "


@dataclass(frozen=True)
class Translate(_LanguagePair):
    """From an example with a field for each language, named by its code: {"en": ..., "de": ...}."""

    def __call__(self, example: Example) -> dict[str, Any]:
        """Raises FieldError for missing fields."""
        inputs = fields.text(example, self.source_language)
        return {"inputs": self.prompt + inputs, "targets": fields.text(example, self.target_language)}


@dataclass(frozen=True)
class MultiTranslate(_LanguagePair):
    """From an example with its languages in lists, as in ted_multi_translate: {"translations": {"language": [...],
    "translation": [...]}}. One without both languages gives nothing.
    """

    def __call__(self, example: Example) -> Iterator[dict[str, Any]]:
        """Raises FieldError for missing fields, and for lists of different lengths."""
        languages = fields.texts(example, "translations/language")
        translations = fields.texts(example, "translations/translation")
        if len(languages) != len(translations):
            what = f"{len(languages)} languages, but {len(translations)} translations"
            raise FieldError(what, "Leave such examples out", "languages and translations differ")
        by_language = dict(zip(reversed(languages), reversed(translations), strict=True))  # the first of a language
        if self.source_language in by_language and self.target_language in by_language:
            inputs = self.prompt + by_language[self.source_language]
            yield {"inputs": inputs, "targets": by_language[self.target_language]}
