from types import SimpleNamespace

import jax
import numpy as np
import pytest
import sentencepiece

from spanloom.evaluation.exact_match import predictions
from spanloom.model.decoding import greedy
from spanloom.model.params import declare, initialize
from spanloom.settings.model import Model
from spanloom.settings.vocabulary import Bytes, SentencePiece
from spanloom.vocabularies.build import build

VOCABULARY = build(Bytes())
TINY = Model(vocab_size=384, d_model=16, d_ff=32, num_heads=2, d_kv=8, num_encoder_layers=1, num_decoder_layers=1)
pytestmark = pytest.mark.short


def batch(inputs: list[str], width: int = 8) -> dict[str, np.ndarray]:
    rows = np.zeros((len(inputs), width), np.int32)
    for row, text in zip(rows, inputs, strict=True):
        row[: len(text) + 1] = [*VOCABULARY.encode(text), VOCABULARY.eos_id]
    return {"encoder_input_tokens": rows}


def test_counts_examples_whose_text_is_equal():
    """The model's own words are the right answers of the first batch, but for one; filled-in rows do not count."""
    params = initialize(declare(TINY), jax.random.key(0))
    first, second = batch(["abc", "de"]), batch(["xyz", ""])
    for made in (first, second):
        made["decoder_target_tokens"] = np.array(greedy(params, TINY, made["encoder_input_tokens"], 6).tokens)
        made["decoder_loss_weights"] = np.ones((2, 6), np.int32)
    first["decoder_target_tokens"][1] = [*VOCABULARY.encode("no"), 1, 0, 0, 0]
    second["decoder_loss_weights"][1] = 0
    rows = [*first["decoder_target_tokens"], second["decoder_target_tokens"][0]]
    whole = [row[: list(row).index(1)] if 1 in row else row for row in rows]
    made = list(predictions(params, TINY, VOCABULARY, [first, second], enumerate(whole)))
    assert [prediction.correct for prediction in made] == [True, False, True]
    assert [prediction.inputs for prediction in made] == ["abc", "de", "xyz"]
    assert [prediction.number for prediction in made] == [0, 1, 2]
    assert made[1].target == "no"


def test_an_example_that_was_left_out_is_passed_over():
    params = initialize(declare(TINY), jax.random.key(0))
    made = batch(["abc", "", "de"])
    made |= {"decoder_target_tokens": np.zeros((3, 6), np.int32), "decoder_loss_weights": np.ones((3, 6), np.int32)}
    made["decoder_loss_weights"][1] = 0
    targets = [VOCABULARY.encode("x"), np.empty(0, np.int32), VOCABULARY.encode("y")]
    found = list(predictions(params, TINY, VOCABULARY, [made], enumerate(targets)))
    assert [(one.number, one.target) for one in found] == [(0, "x"), (2, "y")]


def test_a_target_that_was_cut_is_compared_whole():
    """The model writes all that training kept of the first target; that is not the whole of it."""
    params = initialize(declare(TINY), jax.random.key(0))
    made = batch(["abc", "de"])
    written = np.array(greedy(params, TINY, made["encoder_input_tokens"], 6).tokens)
    made |= {"decoder_target_tokens": written, "decoder_loss_weights": np.ones((2, 6), np.int32)}
    text = VOCABULARY.decode(written[0])
    whole = [VOCABULARY.encode(text + " and more"), VOCABULARY.encode("x")]
    first, second = predictions(params, TINY, VOCABULARY, [made], enumerate(whole))
    assert not first.correct and not second.correct
    assert (first.target, first.prediction, first.cut) == (text + " and more", text, True)
    assert (second.target, second.cut) == ("x", False)


def test_a_target_with_an_unknown_piece_is_never_right(tmp_path):
    """The unknown piece reads alike whatever it stands for: to write it is not to know the answer."""
    (tmp_path / "text.txt").write_text("a small text of a few words\n" * 20)
    special = {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1}
    text, prefix = str(tmp_path / "text.txt"), str(tmp_path / "few")
    sentencepiece.SentencePieceTrainer.train(
        input=text, model_prefix=prefix, vocab_size=40, hard_vocab_limit=False, minloglevel=2, **special
    )
    words = build(SentencePiece(f"{prefix}.model"))
    known, unknown = words.encode("a word"), words.encode("a \u6c34")
    assert words.unk_id in unknown and words.unk_id not in known
    written = np.zeros((2, 8), np.int32)
    for row, ids in zip(written, (known, unknown), strict=True):
        row[: len(ids) + 1] = [*ids, words.eos_id]
    made = {
        "encoder_input_tokens": written,
        "decoder_target_tokens": written,
        "decoder_loss_weights": np.ones((2, 8), np.int32),
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("spanloom.evaluation.exact_match.greedy", lambda *args, **kwargs: SimpleNamespace(tokens=written))
        first, second = predictions({}, TINY, words, [made], enumerate([known, unknown]))
    assert (first.correct, first.unknown) == (True, False)
    assert second.prediction == second.target and (second.correct, second.unknown) == (False, True)
