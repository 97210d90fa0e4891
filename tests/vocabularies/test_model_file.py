import io
import json
from pathlib import Path

import pytest
import sentencepiece

from spanloom.settings.vocabulary import SentencePiece
from spanloom.vocabularies.build import build
from spanloom.vocabularies.model_file import append_user_defined, read_model
from spanloom.vocabularies.vocabulary import VocabularyError


@pytest.fixture(scope="module")
def model() -> bytes:
    written = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["a small model of a few words", "some words more"] * 30), model_writer=written,
        vocab_size=40, hard_vocab_limit=False, minloglevel=2, pad_id=0, eos_id=1, unk_id=2, bos_id=-1,
        normalization_rule_name="identity",
    )  # fmt: skip
    return written.getvalue()


def refused(path: Path, content: bytes, message: str) -> None:
    path.write_bytes(content)
    with pytest.raises(VocabularyError, match=message) as error:
        build(SentencePiece(str(path)))
    assert str(path) in str(error.value)


@pytest.mark.short
def test_each_wrong_file_has_an_error_that_names_the_fix(tmp_path: Path, model: bytes) -> None:
    path = tmp_path / "wrong.model"
    with pytest.raises(VocabularyError, match=r"does not exist: give the path of a SentencePiece \.model file"):
        build(SentencePiece(str(path)))
    refused(path, b"", "is empty")
    refused(path, json.dumps({"version": "1.0", "model": {}}).encode(), r"tokenizer\.json.*spiece\.model")
    refused(path, b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n", "git lfs pull")
    refused(path, b"<pad>\t0\n</s>\t0\n", r"list of pieces \(\.vocab\)")
    refused(path, b"once upon a time there was a text file", "not a SentencePiece model")
    refused(path, bytes(range(256)) * 4, "not a SentencePiece model")
    refused(path, b"\x12\x02hi", r"no pieces")
    refused(path, b"PK\x03\x04" + model, "not a SentencePiece model")


def test_a_file_cut_off_anywhere_is_refused(tmp_path: Path, model: bytes) -> None:
    path = tmp_path / "cut.model"
    for length in range(1, len(model), 7):
        refused(path, model[:length], r"cut off|damaged|not a SentencePiece model")


def test_a_directory_is_refused_with_the_model_in_it(tmp_path: Path, model: bytes) -> None:
    with pytest.raises(VocabularyError, match=r"directory.*name the \.model file"):
        read_model(tmp_path)
    (tmp_path / "spiece.model").write_bytes(model)
    with pytest.raises(VocabularyError, match=r"did you mean .*spiece\.model"):
        read_model(tmp_path)


@pytest.mark.short
def test_appended_pieces_follow_and_change_nothing_else(model: bytes) -> None:
    pieces = ["\u2581<extra_id_1>", "\u2581<extra_id_0>", "x" * 300]
    before, after = sentencepiece.SentencePieceProcessor(), sentencepiece.SentencePieceProcessor()
    before.load_from_serialized_proto(model)
    after.load_from_serialized_proto(append_user_defined(model, pieces))
    size = before.get_piece_size()
    assert [after.id_to_piece(token) for token in range(size, after.get_piece_size())] == pieces
    assert [after.id_to_piece(token) for token in range(size)] == [before.id_to_piece(token) for token in range(size)]
    assert after.encode("a small <extra_id_0> of words") != before.encode("a small <extra_id_0> of words")
    assert after.encode("a small of words") == before.encode("a small of words")
