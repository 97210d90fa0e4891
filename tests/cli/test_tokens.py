import pytest

from spanloom.cli.tokens import Flag, merge_repeated, split

pytestmark = pytest.mark.short


def test_words_flags_and_values():
    words, flags = split(["a", "b", "--batch-size", "3", "--x.y=1", "--files", "p", "q", "--seed", "-1", "--on"])
    assert words == ["a", "b"]
    assert [(f.name, f.values) for f in flags] == [
        ("batch_size", ("3",)),
        ("x.y", ("1",)),
        ("files", ("p", "q")),
        ("seed", ("-1",)),
        ("on", ()),
    ]
    assert flags[0].typed == "--batch-size"


def test_a_value_may_hold_an_equals_sign_and_be_empty():
    assert split(["--field=a=b", "--text="])[1] == [Flag("--field", "field", ("a=b",)), Flag("--text", "text", ("",))]


def test_short_help():
    assert split(["-h"])[1][0].name == "help"


def test_repeated_lists_are_joined_and_of_others_the_last_counts():
    flags = split(["--text", "a", "--steps", "1", "--text", "b", "c", "--steps", "2"])[1]
    merged = {f.name: f.values for f in merge_repeated(flags, ["text"])}
    assert merged == {"text": ("a", "b", "c"), "steps": ("2",)}
