import pytest
from golden_data import shared_dir
from vocabulary_models import reordered, write_model

from spanloom.settings.vocabulary import Bytes, SentencePiece
from spanloom.vocabularies.build import build
from spanloom.vocabularies.correspondence import correspond
from spanloom.vocabularies.pieces import pieces_of
from spanloom.vocabularies.vocabulary import VocabularyError

pytestmark = pytest.mark.short


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="module")
def plain(folder):
    return build(SentencePiece(write_model(folder / "plain.model")))


def test_the_same_vocabulary_is_copied_whole(plain):
    for vocabulary in (plain, build(Bytes()), build(Bytes("google"))):
        moved = correspond(vocabulary, vocabulary)
        assert moved.old_ids == tuple((token,) for token in range(vocabulary.size))
        assert moved.counts() == {
            "ids": vocabulary.size,
            "copied": vocabulary.size,
            "from_parts": 0,
            "from_mean": 0,
            "new_sentinels": 0,
        } or isinstance(vocabulary, type(build(Bytes())))


def test_pieces_are_found_wherever_they_are(folder, plain):
    path = folder / "reordered.model"
    path.write_bytes(reordered((folder / "plain.model").read_bytes()))
    other = build(SentencePiece(str(path)))
    moved = correspond(plain, other)
    assert all(moved.copied)
    text = "the quick fox <extra_id_4> reads <extra_id_0>"
    assert [moved.old_ids[token][0] for token in other.encode(text)] == plain.encode(text).tolist()
    assert sorted(ids[0] for ids in moved.old_ids) == list(range(plain.size))


def test_new_pieces_are_what_the_old_vocabulary_splits_them_into(folder, plain):
    bigger = build(SentencePiece(write_model(folder / "bigger.model", size=160, sentinels=12)))
    moved = correspond(plain, bigger)
    assert moved.from_parts > 20
    for token, piece in enumerate(pieces_of((folder / "bigger.model").read_bytes())[3:160], 3):
        spelled = "".join(plain.spell([old]) for old in moved.old_ids[token])
        assert spelled == piece.text.replace("\u2581", " ")
    assert moved.sentinels == bigger.sentinels[10:]
    assert all(moved.old_ids[token] == plain.sentinels for token in moved.sentinels)
    assert [moved.old_ids[token] for token in bigger.sentinels[:10]] == [(token,) for token in plain.sentinels]


def test_bytes_and_pieces(folder, plain):
    of_bytes, fallback = (
        build(Bytes()),
        build(SentencePiece(write_model(folder / "f.model", size=380, byte_fallback=True))),
    )
    down = correspond(of_bytes, plain)
    token = plain.encode("the")[0]
    assert down.old_ids[token] == tuple(of_bytes.encode(" the"))
    up = correspond(plain, of_bytes)
    assert up.old_ids[ord("f") + 3] == tuple(plain.encode("xf")[-1:])
    assert up.old_ids[0xC3 + 3] == ()
    assert up.from_mean >= 128
    across = correspond(fallback, of_bytes)
    assert all(across.copied[3:259])


def test_ways_to_begin_a_row(folder, plain):
    bigger = build(SentencePiece(write_model(folder / "b.model", size=160)))
    mean = correspond(plain, bigger, "mean")
    assert mean.from_parts == 0 and mean.from_mean > 20
    assert set(mean.text_ids) == set(range(3, 120))
    with pytest.raises(VocabularyError, match="no pieces of bytes"):
        correspond(plain, bigger, "bytes")
    fallback = build(SentencePiece(write_model(folder / "fb.model", size=380, byte_fallback=True)))
    by_bytes = correspond(fallback, bigger, "bytes")
    token = next(token for token in range(3, 160) if not by_bytes.copied[token])
    text = bigger.spell([token])
    assert fallback.spell(by_bytes.old_ids[token]) == text
    assert len(by_bytes.old_ids[token]) == len(text.encode())


def test_what_the_old_vocabulary_does_not_know_is_the_mean_of_all(folder, plain):
    other = build(SentencePiece(write_model(folder / "water.model", symbols=("水火", "fox水"))))
    moved = correspond(plain, other)
    water, fox = (other.encode(f"a{symbol}")[-1] for symbol in ("水火", "fox水"))
    assert moved.old_ids[water] == ()
    assert plain.spell(moved.old_ids[fox]) == "fox"
    assert moved.from_mean == 1
    assert plain.unk_id not in {old for ids in moved.old_ids[3:] for old in ids}


def test_other_conventions_of_sentinels_move_by_order():
    google, hugging_face = build(Bytes("google")), build(Bytes())
    moved = correspond(google, hugging_face)
    assert [moved.old_ids[token] for token in hugging_face.sentinels[:11]] == [(258 - n,) for n in range(11)]
    assert moved.old_ids[hugging_face.sentinels[11]] == google.sentinels


def test_released_vocabularies():
    t5, mt5 = (
        build(SentencePiece(str(shared_dir("data", "tokenizers", name) / "spiece.model"))) for name in ("t5", "mt5")
    )
    moved = correspond(mt5, t5)
    assert [moved.old_ids[token] for token in t5.sentinels] == [(token,) for token in mt5.sentinels]
    assert sum(moved.copied) > 15_000
    assert moved.from_mean == 0
