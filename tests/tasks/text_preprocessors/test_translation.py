import pytest

from spanloom.tasks.templates import FieldError
from spanloom.tasks.text_preprocessors import MultiTranslate, Translate
from spanloom.tasks.text_preprocessors.languages import language_name


@pytest.mark.short
def test_translate():
    example = {"de": "Haus", "en": "house", "xx": "h"}
    assert Translate("de", "en")(example) == {"inputs": "translate German to English: Haus", "targets": "house"}
    named = Translate("en", "xx", target_name="Old High Xish")
    assert named(example) == {"inputs": "translate English to Old High Xish: house", "targets": "h"}
    with pytest.raises(ValueError, match=r"no English name is known for the language 'xx'; .*target_name"):
        Translate("en", "xx")
    with pytest.raises(FieldError, match="no field 'fr'"):
        Translate("en", "fr")(example)


@pytest.mark.short
def test_multi_translate_gives_nothing_where_a_language_is_missing():
    example = {"translations": {"language": ["fr", "en"], "translation": ["maison", "house"]}}
    [row] = MultiTranslate("en", "fr")(example)
    assert row == {"inputs": "translate English to French: house", "targets": "maison"}
    assert list(MultiTranslate("en", "de")(example)) == []
    example["translations"]["language"].pop()
    with pytest.raises(FieldError, match="1 languages, but 2 translations"):
        list(MultiTranslate("en", "fr")(example))


def test_names_of_languages():
    assert [language_name(code) for code in ("zh-cn", "pt_BR", "NB", "gd")] == [
        "Chinese", "Portuguese", "Norwegian Bokmål", "Scottish Gaelic",
    ]  # fmt: skip
