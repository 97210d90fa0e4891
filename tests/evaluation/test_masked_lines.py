import numpy as np
import pytest

from spanloom.evaluation.masked_lines import filled, masked_ids, masked_line
from spanloom.settings.vocabulary import Bytes
from spanloom.vocabularies.build import build

pytestmark = pytest.mark.short

VOCABULARY = build(Bytes())


def answer(*spans, order=None):
    """Target tokens that put these texts after sentinels 0, 1, ..., or after those of `order`."""
    parts = []
    for index, text in zip(order or range(len(spans)), spans, strict=True):
        parts += [[VOCABULARY.sentinels[index]], VOCABULARY.encode(text)]
    return np.concatenate([*parts, [VOCABULARY.eos_id], [0]]).astype(np.int32)


def test_masks_become_sentinels():
    ids = masked_ids("a<mask>b<mask>", VOCABULARY)
    assert ids.tolist() == [100, 259, 101, 260, 1]
    assert masked_ids("a<extra_id_0>b<extra_id_1>", VOCABULARY).tolist() == ids.tolist()
    assert masked_ids("<extra_id_3><mask>", VOCABULARY).tolist() == [262, 263, 1]
    assert ids.dtype == np.int32


@pytest.mark.parametrize(
    ("text", "whole", "spans"),
    [
        ("a <mask> b <mask> c <mask>", "a one b two c ", ["one", "two", ""]),
        ("<extra_id_1>|<extra_id_0>", "two|one", ["two", "one"]),
        ("<2>|<1>", "two|one", ["two", "one"]),
        ("<extra_id_0>-<extra_id_0>", "one-one", ["one", "one"]),
    ],
)
def test_spans_are_put_where_their_masks_are(text, whole, spans):
    assert filled(text, answer("one", "two"), VOCABULARY) == {"filled": whole, "spans": spans}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("no masks", r"^no <mask>"),
        ("<extra_id_125>", r"^sentinel 125 of 125"),
        ("<extra_id_" + "9" * 5_000 + ">", r"^sentinel 999999999\.\.\. of 125 .*numbered from 0"),
    ],
)
def test_texts_without_masks_or_sentinels_are_refused(text, message):
    with pytest.raises(ValueError, match=message):
        masked_ids(text, VOCABULARY)


@pytest.mark.parametrize(
    ("written", "spans"),
    [
        (answer("a", "b", order=[1, 0]), ["b", "a"]),
        (answer("a", "b", "c", order=[0, 1, 0]), ["a", "b"]),
        (answer("b", order=[1]), ["", "b"]),
        (answer("a", "x", order=[0, 7]), ["a", ""]),
        (np.array([70, 71], np.int32), ["", ""]),
        (np.zeros(0, np.int32), ["", ""]),
    ],
    ids=["out of order", "twice", "one missing", "never asked for", "no sentinel", "nothing"],
)
def test_what_a_model_writes_need_not_be_a_target(written, spans):
    assert filled("<mask>|<mask>", written, VOCABULARY) == {"filled": "|".join(spans), "spans": spans}


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("a <mask> b", "a b"),
        ("a <mask> <mask> b", "a b"),
        ("a<mask>b", "ab"),
        ("a <mask>, b", "a , b"),
        ("a  <mask>  b", "a   b"),
        ("<mask> b", " b"),
        ("a <mask>", "a "),
    ],
)
def test_an_empty_span_leaves_one_blank_where_two_would_meet(text, whole):
    assert filled(text, answer(), VOCABULARY)["filled"] == whole


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a title\nthe old man went down to the sea again", "the old man <mask> down to the"),
        ("--flag {json} of three", "flag <mask> of"),
        ("\u6c34" * 30, "\u6c34" * 10 + "<mask>" + "\u6c34" * 9),
        ("abc", "a<mask>c"),
        ("ab", ""),
        ("", ""),
        ("...", ""),
    ],
)
def test_a_line_to_try_is_a_few_words_with_one_masked(text, line):
    assert masked_line(text) == line
