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


def test_words_behind_two_dashes_are_no_flags():
    assert split(["a", "--x", "1", "--", "b", "--y", "-h"]) == (["a", "b", "--y", "-h"], [Flag("--x", "x", ("1",))])


def test_a_flag_ends_with_its_equals_sign_or_what_it_does_not_take():
    def takes(flag: Flag, word: str) -> bool:
        return flag.name == "many" or not flag.values

    words, flags = split(["--one", "1", "a", "--many", "2", "3", "--many=4", "b", "5"], takes)
    assert words == ["a", "b", "5"]
    assert [flag.values for flag in flags] == [("1",), ("2", "3"), ("4",)]


def test_a_flag_as_words_is_read_as_it_again():
    for argv in (["--x=--y", "z"], ["--x", "a", "b"], ["--x"], ["--x=-1"]):
        (flag,) = split(argv)[1]
        assert split(flag.words())[1] == [flag]
