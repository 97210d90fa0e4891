"""SentencePiece files are read as SentencePiece itself reads them."""

import random

import pytest
import sentencepiece
from golden_data import shared_dir

from spanloom.conversion import spiece
from spanloom.conversion.errors import ConversionError


@pytest.fixture(scope="module")
def content() -> bytes:
    return (shared_dir("data", "tokenizers", "t5") / "spiece.model").read_bytes()


def test_pieces_and_scores_are_sentencepieces(content):
    model = spiece.parse(content, "t5")
    reference = sentencepiece.SentencePieceProcessor(model_proto=content)
    assert len(model.pieces) == reference.vocab_size()
    for index in (*range(100), 31_999):
        assert model.pieces[index].text == reference.id_to_piece(index)
        assert model.pieces[index].score == reference.get_score(index)
    assert model.algorithm == "unigram"
    assert model.add_dummy_prefix
    assert model.remove_extra_whitespaces
    assert len(model.charsmap) > 100_000


def test_damaged_models_give_errors_and_nothing_else(content):
    rng = random.Random(0)
    for data in (b"", b"\xff" * 50, b"hello world", content[:1000], content[:-10]):
        with pytest.raises(ConversionError, match=r"x\.model"):
            spiece.parse(data, "x.model")
    head = content[:3000]
    for _ in range(300):
        changed = bytearray(head)
        for _ in range(3):
            changed[rng.randrange(len(head))] = rng.randrange(256)
        try:
            spiece.parse(bytes(changed), "x.model")
        except ConversionError:
            continue
