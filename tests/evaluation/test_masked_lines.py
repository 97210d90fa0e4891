from types import SimpleNamespace

import jax
import numpy as np
import pytest

from spanloom.evaluation import masked_lines
from spanloom.evaluation.masked_lines import (
    BATCH,
    LineError,
    fill_lines,
    masked_ids,
    masked_line,
    most_tokens,
    predictor,
    rows_together,
)
from spanloom.model.params import declare, initialize
from spanloom.settings.model import Model
from spanloom.settings.vocabulary import Bytes
from spanloom.vocabularies.build import build

pytestmark = pytest.mark.short

VOCABULARY = build(Bytes())
TINY = Model(vocab_size=384, d_model=16, d_ff=32, num_heads=2, d_kv=8, num_encoder_layers=1, num_decoder_layers=1)


def answer(*spans, order=None):
    """Target tokens that put these texts after sentinels 0, 1, ..., or after those of `order`."""
    parts = []
    for index, text in zip(order or range(len(spans)), spans, strict=True):
        parts += [[VOCABULARY.sentinels[index]], VOCABULARY.encode(text)]
    return np.concatenate([*parts, [VOCABULARY.eos_id], [0]]).astype(np.int32)


def predict(inputs):
    return [answer("one", "two")] * len(inputs)


def test_masks_become_sentinels():
    ids = masked_ids(1, "a<mask>b<mask>", VOCABULARY)
    assert ids.tolist() == [100, 259, 101, 260, 1]
    assert masked_ids(1, "a<extra_id_0>b<extra_id_1>", VOCABULARY).tolist() == ids.tolist()
    assert masked_ids(1, "<extra_id_3><mask>", VOCABULARY).tolist() == [262, 263, 1]
    assert ids.dtype == np.int32


def test_lines_and_records():
    lines = ["a <mask> b <mask> c <mask>\n", '{"id": 7, "text": "<extra_id_1>|<extra_id_0>"}\n']
    first, second = fill_lines(lines, VOCABULARY, predict)
    assert first == {
        "text": "a <mask> b <mask> c <mask>",
        "filled": "a one b two c ",
        "spans": ["one", "two", ""],
    }
    assert second == {"id": 7, "text": "<extra_id_1>|<extra_id_0>", "filled": "two|one", "spans": ["two", "one"]}


def test_many_lines_keep_their_order():
    lines = [f"{number} <mask>" for number in range(100)]
    assert [r["filled"] for r in fill_lines(lines, VOCABULARY, predict)] == [f"{number} one" for number in range(100)]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("no masks", r"line 2: no <mask>"),
        ("<extra_id_125>", r"line 2: sentinel 125 of 125"),
        ("<extra_id_" + "9" * 5_000 + ">", r"line 2: sentinel 999999999\.\.\. of 125 .*numbered from 0"),
        ('{"text": "<mask>", "n": ' + "9" * 10_000 + "}", r"line 2: holds a number of thousands of digits"),
        ('{"text": 3}', r'line 2: .*"text"'),
        ("{broken", r"line 2: begins like JSON"),
        ('{"text": ' + "[" * 100_000, r"line 2: begins like JSON"),
        ('{"text": "\\ud800 <mask>"}', r"line 2: is not UTF-8 text .*ud800"),
        ("caf\udce9 <mask>", r"line 2: is not UTF-8 text .*udce9 after 'caf'.*iconv"),
    ],
)
def test_bad_lines_are_named(line, message):
    with pytest.raises(LineError, match=message):
        list(fill_lines(["<mask>", line], VOCABULARY, predict))


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
    (record,) = fill_lines(["<mask>|<mask>"], VOCABULARY, lambda inputs: [written])
    assert record["spans"] == spans
    assert record["filled"] == "|".join(spans)


@pytest.mark.parametrize(
    ("text", "filled"),
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
def test_an_empty_span_leaves_one_blank_where_two_would_meet(text, filled):
    (record,) = fill_lines([text], VOCABULARY, lambda inputs: [answer()])
    assert (record["text"], record["filled"]) == (text, filled)


def test_long_lines_are_decoded_few_at_a_time_and_all_keep_their_places(monkeypatch):
    shapes = []

    def length_of_each(params, model, tokens_BxS, max_length, eos_id):
        shapes.append(tokens_BxS.shape)
        return SimpleNamespace(tokens=(tokens_BxS > 0).sum(axis=1, keepdims=True))

    monkeypatch.setattr(masked_lines, "greedy", length_of_each)
    lengths = [3, 40_000, 5, 5_000, 2_000, *range(10, 30), 4_000]
    written = predictor(None, TINY, VOCABULARY, 1)([np.ones(length, np.int32) for length in lengths])
    assert [int(row[0]) for row in written] == lengths
    assert shapes == [(1, 40_000), (1, 5_056), (2, 4_032), (32, 64)]


def test_few_numbers_of_rows_are_compiled_and_none_takes_more_memory_than_short_lines_do():
    rows = {width: rows_together(width) for width in range(64, 9_000, 64)}
    assert set(rows.values()) == {1, 2, 4, 8, 16, 32}
    assert all(count == 1 or count * width**2 <= BATCH * 1024**2 for width, count in rows.items())


def test_the_longest_line_follows_from_memory():
    assert most_tokens(TINY, None) is None
    assert most_tokens(TINY, 2 * 16 * 1000**2) == 1000
    assert masked_ids(1, "b" * 998 + "<mask>", VOCABULARY, 1000).shape == (1000,)
    with pytest.raises(LineError, match="line 7: has 1,001 tokens, and memory takes about 1,000"):
        masked_ids(7, "b" * 999 + "<mask>", VOCABULARY, 1000)


def test_masks_of_one_number_get_the_same_text():
    (record,) = fill_lines(["<extra_id_0>-<extra_id_0>"], VOCABULARY, predict)
    assert record["filled"] == "one-one"


def test_a_model_writes_for_any_number_of_lines():
    params = initialize(declare(TINY), jax.random.key(0))
    write = predictor(params, TINY, VOCABULARY, 5)
    short, long = masked_ids(1, "a <mask>", VOCABULARY), masked_ids(1, "b" * 70 + "<mask>", VOCABULARY)
    alone = write([short])
    together = write([short, long])
    assert [row.shape for row in together] == [(5,), (5,)]
    np.testing.assert_array_equal(together[0], alone[0])
    assert len(list(fill_lines(["x <mask>"] * (BATCH + 1), VOCABULARY, write))) == BATCH + 1


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
