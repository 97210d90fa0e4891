import contextlib
import random

import pytest
import sentencepiece
from vocabulary_models import write_model

from spanloom.vocabularies.pieces import (
    BYTE,
    CONTROL,
    NORMAL,
    UNKNOWN,
    USER_DEFINED,
    algorithm_of,
    pieces_of,
    with_only,
    without_edges,
)
from spanloom.vocabularies.vocabulary import VocabularyError

pytestmark = pytest.mark.short


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return tmp_path_factory.mktemp("pieces") / "a.model"


@pytest.fixture(scope="module")
def model(path):
    write_model(path, size=420, byte_fallback=True, symbols=("{",))
    return path.read_bytes()


def test_pieces_are_those_that_the_library_reads(model):
    library = sentencepiece.SentencePieceProcessor(model_proto=model)
    found = pieces_of(model)
    assert [piece.text for piece in found] == library.id_to_piece(list(range(library.get_piece_size())))
    assert [piece.score for piece in found] == library.get_score(list(range(len(found))))
    for token, piece in enumerate(found):
        assert (piece.kind == CONTROL) == library.is_control(token)
        assert (piece.kind == UNKNOWN) == library.is_unknown(token)
        assert (piece.kind == BYTE) == library.is_byte(token)
    assert {piece.text for piece in found if piece.kind == USER_DEFINED} >= {"{", "\u2581<extra_id_0>"}
    assert sum(piece.kind == NORMAL for piece in found) > 100


def test_damaged_models_are_errors_that_say_so(model):
    draw = random.Random(0)
    small = len(model) - 2000  # behind the rules for characters stand the settings
    for at in [*draw.sample(range(3000), 150), *range(small, len(model), 3)]:
        damaged = model[:at] + bytes([model[at] ^ 0xFF]) + model[at + 1 :]
        for read in (pieces_of, algorithm_of):
            with contextlib.suppress(VocabularyError):
                read(damaged)


def test_kinds_of_models(model, path):
    assert algorithm_of(model) == "unigram"
    write_model(path.with_name("bpe.model"), kind="bpe")
    assert algorithm_of(path.with_name("bpe.model").read_bytes()) == "bpe"
    assert algorithm_of(b"") == "unknown"


def test_a_stretch_inside_a_text_keeps_its_spaces(model):
    plain, inside = (sentencepiece.SentencePieceProcessor(model_proto=m) for m in (model, without_edges(model)))
    assert "".join(inside.encode("ox  ", out_type=str)) == "ox\u2581\u2581"
    assert "".join(plain.encode("ox  ", out_type=str)) == "\u2581ox"
    assert inside.encode(" the") == plain.encode("the")


def test_only_what_is_kept_is_left(model):
    every = pieces_of(model)
    few = [0, 1, 2, *range(5, len(every), 3)]
    assert pieces_of(with_only(model, few)) == tuple(every[token] for token in few)


def test_damaged_files_are_errors(model):
    draw = random.Random(0)
    for _ in range(300):
        damaged = bytearray(model[: draw.randrange(len(model))])
        for _ in range(draw.randrange(4)):
            damaged[draw.randrange(len(damaged) or 1) : draw.randrange(len(damaged) + 1)] = draw.randbytes(3)
        with contextlib.suppress(VocabularyError):  # and no other error
            pieces_of(bytes(damaged))
    with pytest.raises(VocabularyError, match=r"fetch the \.model file again"):
        pieces_of(model[: len(model) // 2])
