import numpy as np
import pytest

from spanloom.settings.vocabulary import Bytes
from spanloom.vocabularies.build import build
from spanloom.vocabularies.vocabulary import VocabularyError

TEXTS = ["", "a", "Über die Brücke", "日本語 🙂", "x\x00y\n\t", "\u2047", "<extra_id_0> </s>"]


@pytest.mark.short
@pytest.mark.parametrize(
    ("settings", "size", "sentinels"),
    [
        (Bytes(), 384, range(259, 384)),
        (Bytes("google"), 259, range(258, 247, -1)),
        (Bytes("seqio"), 384, range(383, 258, -1)),
        (Bytes("huggingface", extra_ids=10), 269, range(259, 269)),
        (Bytes("seqio", extra_ids=0), 259, range(0)),
        (Bytes("google", extra_ids=0), 259, range(258, 247, -1)),
        (Bytes("google", google_sentinels=51), 259, range(258, 207, -1)),
    ],
)
def test_the_three_conventions(settings: Bytes, size: int, sentinels: range) -> None:
    vocabulary = build(settings)
    assert (vocabulary.size, vocabulary.sentinels) == (size, tuple(sentinels))
    assert (vocabulary.pad_id, vocabulary.eos_id, vocabulary.unk_id) == (0, 1, 2)


@pytest.mark.short
def test_encode_is_utf8_plus_three_and_round_trips() -> None:
    vocabulary = build(Bytes())
    for text in TEXTS:
        ids = vocabulary.encode(text)
        assert ids.dtype == np.int32 and ids.ndim == 1
        assert ids.tolist() == [byte + 3 for byte in text.encode("utf-8")]
        assert vocabulary.decode(ids) == text
        assert vocabulary.decode_with_sentinels(ids) == text
    for batch in (TEXTS, [], [""], ["", "", "b"]):
        rows = vocabulary.encode_batch(batch)
        assert [row.tolist() for row in rows] == [vocabulary.encode(text).tolist() for text in batch]
        assert all(row.dtype == np.int32 for row in rows)
        for end in (None, 1):
            ids, lengths = vocabulary.encode_utf8([text.encode() for text in batch], np.uint16, end)
            expected = [[*row.tolist(), end] if end and len(row) else row.tolist() for row in rows]
            assert ids.tolist() == [token for row in expected for token in row]
            assert lengths.tolist() == [len(row) for row in expected]
            assert (ids.dtype, lengths.dtype) == (np.uint16, np.int64)


@pytest.mark.short
def test_google_sentinels_can_never_be_text() -> None:
    every = "".join(map(chr, [*range(0xD800), *range(0xE000, 0x110000)]))
    ids = np.unique(build(Bytes("google")).encode(every))
    assert ids.max() < 248
    assert not set(build(Bytes("google")).sentinels) & set(ids.tolist())


def test_more_google_sentinels_are_bytes_that_text_can_hold() -> None:
    accepted = build(Bytes("google", google_sentinels=16))
    assert accepted.sentinels[11] in accepted.encode("\U00100000") and accepted.sentinels[15] in accepted.encode("😀")
    assert not set(accepted.sentinels[:15]) & set(accepted.encode("😀 中文 žluťoučký").tolist())
    for wrong in (-1, 257):
        with pytest.raises(VocabularyError, match="11 of them can never be text"):
            build(Bytes("google", google_sentinels=wrong))


def test_decode_drops_what_is_no_text_and_stops_at_the_end() -> None:
    vocabulary = build(Bytes())
    a, b = ord("a") + 3, ord("b") + 3
    assert vocabulary.decode([a, 0, 2, 259, 383, 384, 10**9, -5, b, 1, a]) == "ab"
    assert vocabulary.decode(np.array([0xC3 + 3, a], np.uint16)) == "a"
    assert vocabulary.decode([]) == ""


def test_decode_with_sentinels_shows_them_in_order_of_use() -> None:
    a, broken = ord("a") + 3, 0xC3 + 3
    assert build(Bytes()).decode_with_sentinels([259, a, 260, 260, broken, a, 1, a]) == (
        "<extra_id_0>a<extra_id_1><extra_id_1>\ufffda"
    )
    assert build(Bytes("google")).decode_with_sentinels([a, 258, 248]) == "a<extra_id_0><extra_id_10>"
    assert build(Bytes("seqio")).decode_with_sentinels([383, a, 0, 0]) == "<extra_id_0>a"


def test_fingerprints_tell_conventions_apart() -> None:
    kinds = [Bytes(), Bytes("google"), Bytes("seqio"), Bytes(extra_ids=10)]
    assert len({build(settings).fingerprint() for settings in kinds}) == 4
    assert build(Bytes("google", extra_ids=3)).fingerprint() == build(Bytes("google")).fingerprint()
    assert build(Bytes()).files() == {}


def test_impossible_settings_and_text() -> None:
    for count in (-1, 10**12):
        with pytest.raises(VocabularyError, match=f"extra_ids={count}: must be from 0 to"):
            build(Bytes(extra_ids=count))
    with pytest.raises(VocabularyError, match="huggingface, google or seqio"):
        build(Bytes("other"))  # type: ignore[arg-type]
    with pytest.raises(UnicodeEncodeError):
        build(Bytes()).encode("\ud800")


@pytest.mark.short
def test_bytes_are_spelled_so_that_every_id_is_seen() -> None:
    vocabulary = build(Bytes())
    ids = vocabulary.encode("n\u00e9 \u6c34")
    assert vocabulary.spell(ids) == "n\u00e9 \u6c34" and vocabulary.spell([]) == ""
    assert vocabulary.spell(ids[:2]) + vocabulary.spell(ids[2:5]) == "n\\xc3\\xa9 \\xe6"
    assert vocabulary.spell([0, 1, 2, 259, 383, 384]) == "<pad></s><unk><extra_id_0><extra_id_124><id 384>"
    assert build(Bytes("google")).spell([258, 100]) == "\\xffa"
