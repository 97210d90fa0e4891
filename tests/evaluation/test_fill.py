import jax
import numpy as np
import pytest

from spanloom.evaluation.fill import Piece, coloured, fill_examples, pieces_of, plain, show, spans_of
from spanloom.model.params import declare, initialize
from spanloom.pipeline.dataset import TextExample
from spanloom.settings.model import Model
from spanloom.settings.vocabulary import Bytes
from spanloom.vocabularies.build import build

VOCABULARY = build(Bytes())
S0, S1 = VOCABULARY.sentinels[:2]
EOS = VOCABULARY.eos_id
TINY = Model(vocab_size=384, d_model=16, d_ff=32, num_heads=2, d_kv=8, num_encoder_layers=1, num_decoder_layers=1)
pytestmark = pytest.mark.short


def ids(text: str) -> list[int]:
    return VOCABULARY.encode(text).tolist()


INPUTS = [*ids("the "), S0, *ids(" sat on "), S1, EOS]
TARGETS = [S0, *ids("cat"), S1, *ids("a mat"), EOS]


def test_pieces_lie_in_reading_order():
    written = [S0, *ids("cat"), S1, *ids("it"), EOS, 0, 0]
    pieces = pieces_of(INPUTS, TARGETS, written, VOCABULARY)
    assert pieces == [Piece("the "), Piece("cat", "cat"), Piece(" sat on "), Piece("a mat", "it")]
    assert plain(pieces) == "the [cat] sat on [it|a mat]"
    assert coloured(pieces).plain == plain(pieces)
    assert {str(span.style) for span in coloured(pieces).spans} == {"dim", "bold green", "bold red", "cyan"}


def test_what_the_model_does_not_come_to_is_empty():
    assert (
        plain(pieces_of(INPUTS, TARGETS, [*ids("noise"), S1, *ids("x")], VOCABULARY)) == "the [|cat] sat on [x|a mat]"
    )
    assert plain(pieces_of(INPUTS, TARGETS, [], VOCABULARY)) == "the [|cat] sat on [|a mat]"


def test_a_gap_that_the_vocabulary_cannot_write_is_never_guessed_right():
    words = Words(VOCABULARY)
    (words.unk_id,) = ids("?")
    (piece,) = pieces_of([S0, EOS], [S0, words.unk_id, EOS], [S0, words.unk_id, EOS], words)
    assert piece.guess == piece.text == "?" and not piece.right
    assert plain([piece]) == "[?|?]"
    assert "bold red" in {str(span.style) for span in coloured([piece]).spans}


def test_documents_that_meet_and_broken_bytes_are_shown():
    assert show([*ids("one"), EOS, *ids("two")], VOCABULARY) == "one\ntwo"
    assert plain([Piece("one\ntwo")]) == "one / two"
    assert show(ids("é")[:1], VOCABULARY) == "�"
    inner = [S0, *ids("x"), EOS, *ids("y"), EOS]
    assert spans_of(inner, VOCABULARY) == {S0: [*ids("x"), EOS, *ids("y")]}


@pytest.mark.parametrize(
    ("written", "spans"),
    [
        ([S0, *ids("a"), S1, *ids("b"), S0, *ids("c"), EOS], {S0: ids("a"), S1: ids("b")}),
        ([S1, *ids("b"), S0, *ids("a")], {S0: ids("a"), S1: ids("b")}),
        ([*ids("lost"), S1, *ids("b"), 0, 0], {S1: ids("b")}),
        ([S0, S1], {S0: [], S1: []}),
        ([S0, S0, *ids("late"), EOS], {S0: []}),
        ([], {}),
        ([EOS, 0], {}),
    ],
    ids=["twice", "out of order", "first missing", "empty", "twice at once", "nothing", "the end alone"],
)
def test_spans_of_what_is_no_target(written, spans):
    assert spans_of(written, VOCABULARY) == spans
    assert spans_of(np.array(written, np.int32), VOCABULARY) == spans


def test_long_text_is_cut_in_its_middle():
    line = plain([Piece("a" * 500 + "z")], context=25)
    assert line == "a" * 10 + " ... " + "a" * 9 + "z"
    assert len(plain([Piece("a" * 500)], context=0)) == 500


class Words:
    """As SentencePiece: the space before the first piece is lost."""

    def __init__(self, vocabulary):
        self.sentinels, self.eos_id, self._vocabulary = vocabulary.sentinels, vocabulary.eos_id, vocabulary
        self.unk_id = vocabulary.unk_id

    def decode_with_sentinels(self, ids):
        return self._vocabulary.decode_with_sentinels(ids).removeprefix(" ")


def test_a_space_before_a_piece_survives():
    inputs = [*ids("the"), S0, *ids(" sat")]
    pieces = pieces_of(inputs, [S0, *ids(" cat"), EOS], [S0, *ids(" dog")], Words(VOCABULARY))
    assert plain(pieces) == "the[ dog| cat] sat"


def test_targets_without_sentinels_are_one_gap_after_the_inputs():
    targets = [*ids("cat sat"), EOS, *ids("on"), EOS]
    pieces = pieces_of([*ids("the "), EOS], targets, [*ids("dog"), EOS], VOCABULARY)
    assert pieces == [Piece("the "), Piece("cat sat\non", "dog")]
    assert pieces_of([EOS], targets, targets, VOCABULARY) == [Piece("cat sat\non", "cat sat\non")]
    masked = pieces_of([*ids("the "), S0, *ids("sat"), EOS], [*ids("the cat sat"), EOS], [], VOCABULARY)
    assert plain(masked) == "the <extra_id_0>sat[|the cat sat]"


def test_a_sentinel_that_masks_nothing_is_no_gap():
    """UL2's modes stand first in the inputs."""
    mode = VOCABULARY.sentinels[-1]
    written = [S0, *ids("cat"), S1, *ids("it"), EOS]
    assert plain(pieces_of([mode, *INPUTS], TARGETS, written, VOCABULARY)) == "the [cat] sat on [it|a mat]"
    assert plain(pieces_of([mode, *INPUTS], TARGETS, [mode, *written], VOCABULARY)) == "the [cat] sat on [it|a mat]"


def test_examples_are_filled_as_one_batch():
    params = initialize(declare(TINY), jax.random.key(0))
    short = TextExample(np.array(ids("the cat")), np.array(INPUTS[:6]), np.array(TARGETS))
    made = fill_examples(
        params, TINY, VOCABULARY, [TextExample(np.array([]), np.array(INPUTS), np.array(TARGETS)), short], 12
    )
    assert [piece.guess is None for piece in made[0]] == [True, False, True, False]
    assert made[0][1].text == "cat"
    assert len(made) == 2
    assert fill_examples(params, TINY, VOCABULARY, [], 12) == []
