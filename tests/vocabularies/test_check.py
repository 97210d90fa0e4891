import pytest
from vocabulary_models import sentences, write_model

from spanloom.settings.vocabulary import Bytes, SentencePiece
from spanloom.vocabularies.build import build
from spanloom.vocabularies.check import check_sentinels, check_texts, findings

pytestmark = pytest.mark.short


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory):
    return build(SentencePiece(write_model(tmp_path_factory.mktemp("check") / "a.model")))


def lost(check):
    return {one.character: (one.kind, one.count, one.of) for one in check.lost}


def test_what_does_not_come_back_is_counted_by_character(vocabulary):
    texts = ["the fox.", "the  fox\nover\tthe {dog}\n", " ½ fox…", "the\u00a0fox"]
    check = check_texts(vocabulary, "x", texts)
    assert (check.texts, check.changed_texts, check.words) == (4, 3, 11)
    assert check.characters == sum(map(len, texts))
    found = lost(check)
    assert found["\n"] == ("newline", 2, 2)
    assert found["\t"] == ("tab", 1, 1)
    assert found["{"] == found["}"] == ("unknown", 1, 1)
    assert found[" "] == ("space", 2, 6)
    assert found["\u00a0"][0] == "other blank"
    assert found["…"] == ("normalised", 1, 1)
    assert {one.character: one.becomes for one in check.lost}["…"] == "..."
    assert "fox\\nover" in repr({one.character: one.examples for one in check.lost}["\n"])
    assert check.unknown > 0
    assert check.unknown_share == check.unknown / check.tokens


def test_a_newline_that_becomes_a_space_hides_no_lost_space(vocabulary):
    assert lost(check_texts(vocabulary, "x", ["a\nb\nc  d"]))[" "] == ("space", 1, 2)
    assert " " not in lost(check_texts(vocabulary, "x", ["a\nb\nc d"]))


def test_nothing_is_lost_in_bytes():
    check = check_texts(build(Bytes()), "x", ["a  b\n\t{水}", "", "\0\u2028"])
    assert (check.changed_texts, check.lost, check.unknown) == (0, (), 0)
    assert check.bytes == check.tokens


def test_long_texts_are_looked_at_in_parts(vocabulary):
    text = " ".join(sentences(4000))
    assert len(text) > 100_000
    for one in (vocabulary, build(Bytes())):
        check = check_texts(one, "x", [text])
        assert (check.changed_texts, check.texts, check.characters, check.bytes) == (0, 1, len(text), len(text))
        assert check.tokens == len(one.encode(text))
    without_blanks = "水" * 250_000
    assert check_texts(build(Bytes()), "x", [without_blanks]).tokens == 750_000


def test_no_text_is_no_division_by_zero(vocabulary):
    check = check_texts(vocabulary, "x", [])
    assert (check.unknown_share, check.tokens_a_word, check.bytes_a_token) == (0, 0, 0)


def test_sentinels_and_whether_text_can_hold_them(vocabulary, tmp_path):
    found = check_sentinels(vocabulary)
    assert (len(found.ids), found.order, found.written, found.inside_words) == (
        10,
        "descending",
        tuple(range(10)),
        False,
    )
    assert check_sentinels(build(Bytes())).order == "ascending"
    assert check_sentinels(build(Bytes())).written == ()
    bare = build(SentencePiece(write_model(tmp_path / "a.model", sentinels=0), extra_ids=0))
    assert check_sentinels(bare).ids == ()
    (finding,) = findings(bare, None, check_sentinels(bare), [])
    assert "no sentinels" in finding.what and "--sentinels 100" in finding.fix


def test_findings_name_the_fix(vocabulary):
    check = check_texts(vocabulary, "novels", ["the\nfox {"])
    found = findings(vocabulary, 128, check_sentinels(vocabulary), [check])
    texts = [f"{finding.what}; {finding.fix}" for finding in found]
    assert "130 ids and the embedding 128 rows" in texts[0]
    assert "novels: 1 of 1 are lost, newline; train one with --whitespace keep" in texts[1]
    assert "unknown" in texts[2] and "--byte-fallback true" in texts[2] and "'{'" in texts[2]
    assert findings(vocabulary, 256, check_sentinels(vocabulary), [check_texts(vocabulary, "x", ["the fox"])]) == ()
