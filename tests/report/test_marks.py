import pytest

from spanloom.pipeline.facts.pieces import Piece
from spanloom.report.marks import words

pytestmark = pytest.mark.short


def text_of(*pieces: Piece) -> str:
    return "".join(word.text for word in words(pieces))


def test_spans_behind_their_sentinels_need_no_marks_of_their_own():
    targets = [Piece("sentinel", (9,), "<extra_id_0>", 0), Piece("text", (5,), "a", 0), Piece("eos", (1,), "</s>", 0)]
    assert text_of(*targets, Piece("sentinel", (8,), "<extra_id_1>", 1), Piece("text", (5,), "b\n", 1)) == (
        "<0>a</s><1>b\u21b5"
    )


def test_spans_in_the_text_have_marks_at_both_ends():
    pieces = [
        Piece("text", (5,), "a", 0),
        Piece("eos", (1,), "</s>", 0),
        Piece("text", (5,), "b"),
        Piece("text", (5,), "c", 1),
        Piece("text", (5,), "d", 2),
    ]
    assert text_of(*pieces) == "<0>a</s></0>b<1>c</1><2>d</2>"
    assert text_of(*pieces[2:4], Piece("text", (5,), "e")) == "b<1>c</1>e"


def test_modes_and_strays_stand_out():
    assert text_of(Piece("mode", (7,), "<extra_id_99>"), Piece("stray", (8,), "<extra_id_3>")) == (
        "[<extra_id_99>][!<extra_id_3>]"
    )
    assert text_of() == ""
