import pytest

from spanloom.tasks.templates import FieldError, parse

pytestmark = pytest.mark.short

ROW = {
    "title": "A",
    "text": "body",
    "n": 3,
    "ok": True,
    "none": None,
    "meta": {"lang": "de", "tags": ["x", "y"]},
    "a.b": "dotted",
    "#1 String": "odd",
}


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("text", "body"),
        ("meta.lang", "de"),
        ("meta.tags.1", "y"),
        ("a.b", "dotted"),
        ("#1 String", "odd"),
        ("{title}: {text}", "A: body"),
        ("{title}\n{text}", "A\nbody"),
        (r"{title}\n{text}\t|\\n", "A\nbody\t|\\n"),
        ("{{{n}}} {ok}", "{3} true"),
        ("{#1 String}{meta.lang}", "oddde"),
    ],
)
def test_rendering(template, expected):
    assert parse(template).render(ROW) == expected


def test_values_are_never_templates_themselves():
    assert parse("{a}").render({"a": r"{b}\n"}) == r"{b}\n"


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("texts", "no field 'texts'; the fields are 'title', 'text',.*did you mean 'text'"),
        ("Text", "did you mean 'text'"),
        ("meta.language", r"the fields are 'meta.lang', 'meta.tags'; did you mean 'meta.lang'"),
        ("meta.tags.5", "no field 'meta.tags.5'"),
        ("n", r"field 'n' is a number or boolean \(3\), not text"),
        ("none", "field 'none' is null, not text"),
        ("meta", "field 'meta' is an object, not text"),
        ("meta.tags", "field 'meta.tags' is a list, not text"),
        ("{none}", "null"),
    ],
)
def test_fields_that_give_no_text(template, message):
    with pytest.raises(FieldError, match=message):
        parse(template).render(ROW)


def test_a_number_says_how_to_write_it():
    with pytest.raises(FieldError) as failure:
        parse("n").render(ROW)
    assert failure.value.fix == "To write it as text use the template '{n}'"
    assert failure.value.reason == "field 'n' is a number"


@pytest.mark.parametrize("template", ["{text", "text}", "{}", "a {b} }", "{{text}}"])
def test_broken_templates(template):
    with pytest.raises(ValueError, match=r"lone|names no field"):
        parse(template)
