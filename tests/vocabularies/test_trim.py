import numpy as np
import pytest
import sentencepiece
from golden_data import shared_dir
from vocabulary_models import sentences, write_model

from spanloom.settings.vocabulary import SentencePiece
from spanloom.vocabularies.build import build
from spanloom.vocabularies.pieces import BYTE, pieces_of, with_only
from spanloom.vocabularies.trim import Choice, count_pieces, table, trim
from spanloom.vocabularies.vocabulary import VocabularyError

TEXTS = [line for line in sentences(200) if "harbour" not in line and "wizards" not in line]


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("trim") / "a.model", size=500, byte_fallback=True)


def trimmed(path, texts, **choice):
    vocabulary = build(SentencePiece(path))
    model = vocabulary.files()["spiece.model"]
    counts = count_pieces(vocabulary, texts)
    return vocabulary, pieces_of(model), counts, trim(model, vocabulary.sentinels, counts, Choice(**choice))


@pytest.mark.short
@pytest.mark.parametrize("choice", [{"coverage": 1.0}, {"coverage": 0.8}, {"min_count": 5}, {"keep": 330}])
def test_what_must_stay_stays_with_its_score(path, choice):
    vocabulary, pieces, _, small = trimmed(path, TEXTS, **choice)
    after = pieces_of(small.model)
    assert after == tuple(pieces[old] for old in small.old_ids)
    assert small.old_ids[:3] == (0, 1, 2)
    assert small.old_ids[-10:] == tuple(sorted(vocabulary.sentinels))
    assert sum(piece.kind == BYTE for piece in after) == 256
    assert len(after) < len(pieces)
    letters = set("".join(TEXTS)) - {" "}
    assert letters <= {piece.text for piece in after}


@pytest.mark.short
def test_text_of_kept_pieces_is_cut_as_before_and_nothing_becomes_unknown(path, tmp_path):
    for choice in ({"coverage": 1.0}, {"coverage": 0.9}):
        vocabulary, _, _, small = trimmed(path, TEXTS, **choice)
        (tmp_path / "small.model").write_bytes(small.model)
        new = build(SentencePiece(str(tmp_path / "small.model")))
        where = {old: at for at, old in enumerate(small.old_ids)}
        same = 0
        for line in [*TEXTS, "the <extra_id_0> fox", "水", " \n"]:
            before, after = vocabulary.encode(line).tolist(), new.encode(line).tolist()
            if all(token in where for token in before):
                same += 1
                assert [where[token] for token in before] == after
            assert new.unk_id not in after
            assert new.decode(after) == vocabulary.decode(before)
        assert same >= (len(TEXTS) if choice["coverage"] == 1 else 10)


@pytest.mark.short
def test_how_many_are_kept(path):
    _, _, _, small = trimmed(path, TEXTS, keep=330)
    assert len(small.old_ids) == 330 + 10
    _, _, counts, whole = trimmed(path, TEXTS, coverage=1.0)
    used = set(np.flatnonzero(counts).tolist())
    assert used <= set(whole.old_ids)
    _, _, _, few = trimmed(path, TEXTS, min_count=50)
    assert {token for token in used if counts[token] >= 50} <= set(few.old_ids)
    with pytest.raises(VocabularyError, match=r"--keep 100 is too few.*are 2\d\d"):
        trimmed(path, TEXTS, keep=100)


@pytest.mark.short
def test_the_table_has_a_line_for_each_kept_piece(path):
    _, pieces, counts, small = trimmed(path, TEXTS, coverage=0.9)
    lines = table(pieces, small, counts).decode().splitlines()
    assert lines[0] == "old_id\tnew_id\tpiece\tcount"
    assert len(lines) == len(small.old_ids) + 1
    old, new, piece, count = lines[-1].split("\t")
    assert (int(old), int(new), piece, count) == (small.old_ids[-1], len(small.old_ids) - 1, "\u2581<extra_id_0>", "0")


@pytest.mark.short
@pytest.mark.parametrize(
    ("choice", "words"),
    [
        ({}, "give one of"),
        ({"keep": 10, "coverage": 0.5}, "give one of"),
        ({"keep": 2}, "above 3"),
        ({"min_count": 0}, "1 or more"),
        ({"coverage": 0.0}, "above 0"),
        ({"coverage": 1.1}, "at most 1"),
    ],
)
def test_one_way_to_choose_is_given(path, choice, words):
    with pytest.raises(VocabularyError, match=words):
        trimmed(path, TEXTS, **choice)


@pytest.mark.short
def test_other_kinds_of_models_are_refused(tmp_path):
    with pytest.raises(VocabularyError, match=r"type bpe.*--follow.vocabulary by_piece"):
        trimmed(write_model(tmp_path / "bpe.model", kind="bpe"), TEXTS, coverage=1.0)


@pytest.mark.short
def test_a_model_of_all_pieces_is_the_same_file(path):
    model = build(SentencePiece(path)).files()["spiece.model"]
    whole = with_only(model, range(len(pieces_of(model))))
    assert pieces_of(whole) == pieces_of(model)
    one, other = (sentencepiece.SentencePieceProcessor(model_proto=content) for content in (model, whole))
    assert one.encode("the fox 水") == other.encode("the fox 水")


def test_released_models_cut_real_text_as_before(tmp_path):
    """Of T5 and mT5, on text that the choice was not made by, too: no line of kept pieces is cut otherwise."""
    folder = shared_dir("data", "tokenizers")
    lines = [line for line in (folder.parent.parent / "DESIGN.md").read_text().splitlines() if line.strip()]
    others = (folder.parent.parent / "README.md").read_text().splitlines()
    for name in ("t5", "mt5"):
        vocabulary, _, _, small = trimmed(str(folder / name / "spiece.model"), lines[::2], coverage=1.0)
        (tmp_path / "small.model").write_bytes(small.model)
        new = build(SentencePiece(str(tmp_path / "small.model")))
        where = {old: at for at, old in enumerate([*small.old_ids, *range(32_000, vocabulary.size)][: new.size])}
        same = 0
        for line in [*lines, *others]:
            before = vocabulary.encode(line).tolist()
            if all(token in where for token in before):
                same += 1
                assert [where[token] for token in before] == new.encode(line).tolist()
        assert same >= len(lines) // 2
