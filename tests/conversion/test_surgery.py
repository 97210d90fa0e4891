import dataclasses
from pathlib import Path

import jax
import numpy as np
import pytest
from vocabulary_models import reordered, sentences, write_model

from spanloom.conversion.surgery import EMBEDDING, HEAD, with_vocabulary
from spanloom.conversion.trim import logits
from spanloom.model.params import declare, flatten, initialize, unflatten
from spanloom.settings.model import Model
from spanloom.settings.vocabulary import SentencePiece
from spanloom.vocabularies.build import build
from spanloom.vocabularies.correspondence import correspond

TINY = Model(vocab_size=140, d_model=8, d_ff=8, num_heads=1, d_kv=8, num_encoder_layers=1, num_decoder_layers=1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("surgery")


@pytest.fixture(scope="module")
def old(folder):
    return build(SentencePiece(write_model(folder / "old.model")))


def weights(model):
    flat = flatten(initialize(declare(model), jax.random.key(1)))
    return unflatten(model, {name: np.asarray(leaf) for name, leaf in flat.items()})


def batch_of(vocabulary, texts=()):
    asked = [f"{text} <extra_id_1> fox" for text in texts or sentences(3)]
    rows = [[*vocabulary.encode(text).tolist(), vocabulary.eos_id] for text in asked]
    width = max(map(len, rows))
    ids = np.array([row + [0] * (width - len(row)) for row in rows], np.int32)
    shifted = np.pad(ids, ((0, 0), (1, 0)))[:, :-1]
    return {"encoder_input_tokens": ids, "decoder_target_tokens": ids, "decoder_input_tokens": shifted}


def log_probabilities(model, params, batch):
    log_probs_BxTxV = np.asarray(jax.nn.log_softmax(logits(model, params, batch)))
    targets_BxT = batch["decoder_target_tokens"]
    return np.take_along_axis(log_probs_BxTxV, targets_BxT[..., None], axis=-1)[..., 0][targets_BxT > 0]


@pytest.mark.parametrize("tied", [False, True])
def test_the_same_vocabulary_is_the_same_model(old, tied):
    model = dataclasses.replace(TINY, tie_embeddings=tied)
    params = weights(model)
    same, moved = with_vocabulary(model, params, correspond(old, old), 140)
    assert same == model
    for name, leaf in flatten(params).items():
        assert np.array_equal(flatten(moved)[name], leaf), name
    batch = batch_of(old)
    assert np.array_equal(logits(model, params, batch), logits(same, moved, batch))


@pytest.mark.parametrize("tied", [False, True])
def test_pieces_in_another_order_give_the_same_loss_on_the_same_text(folder, old, tied):
    path = folder / "reordered.model"
    path.write_bytes(reordered((folder / "old.model").read_bytes()))
    new = build(SentencePiece(str(path)))
    model = dataclasses.replace(TINY, tie_embeddings=tied)
    params = weights(model)
    other, moved = with_vocabulary(model, params, correspond(old, new), 140)
    before, after = batch_of(old), batch_of(new)
    assert not np.array_equal(before["encoder_input_tokens"], after["encoder_input_tokens"])
    wanted, found = log_probabilities(model, params, before), log_probabilities(other, moved, after)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=2e-6)


def test_new_rows_are_means_and_rows_beyond_stay(folder, old):
    new = build(SentencePiece(write_model(folder / "bigger.model", size=180)))
    params = weights(TINY)
    moved = correspond(old, new)
    model, bigger = with_vocabulary(TINY, params, moved, 256)
    assert model.vocab_size == 256
    assert flatten(bigger).keys() == flatten(params).keys()
    for name, axis in ((EMBEDDING, 0), (HEAD, 1)):
        before, after = (np.moveaxis(flatten(tree)[name], axis, 0) for tree in (params, bigger))
        assert after.shape == (256, 8) and after.dtype == np.float32
        for token, ids in enumerate(moved.old_ids):
            np.testing.assert_allclose(after[token], before[list(ids)].mean(axis=0), atol=1e-7)
        assert np.array_equal(after[190:200], before[130:140])
        assert np.array_equal(after[200:], np.repeat(before[:1], 56, axis=0))
    with pytest.raises(ValueError, match="189 rows are too few"):
        with_vocabulary(TINY, params, moved, 189)


def test_what_nothing_is_known_of_is_the_mean_of_text(folder, old):
    new = build(SentencePiece(write_model(folder / "water.model", symbols=("水火",))))
    (token,) = new.encode("a水火")[-1:]
    before, after = weights(TINY), with_vocabulary(TINY, weights(TINY), correspond(old, new), 140)[1]
    text = flatten(before)[EMBEDDING][3:120]
    np.testing.assert_allclose(flatten(after)[EMBEDDING][token], text.mean(axis=0), atol=1e-7)
    mean = with_vocabulary(TINY, before, correspond(old, new, "mean"), 140)[1]
    np.testing.assert_allclose(flatten(mean)[EMBEDDING][token], text.mean(axis=0), atol=1e-7)


def test_a_model_goes_there_and_back(folder, old):
    """What was copied comes back to the last bit, by way of a vocabulary that has all of its pieces."""
    path = Path(folder / "reordered.model")
    path.write_bytes(reordered((folder / "old.model").read_bytes(), seed=7))
    new, params = build(SentencePiece(str(path))), weights(TINY)
    model, there = with_vocabulary(TINY, params, correspond(old, new), 256)
    _, back = with_vocabulary(model, there, correspond(new, old), 140)
    assert all(np.array_equal(flatten(back)[name], leaf) for name, leaf in flatten(params).items())
