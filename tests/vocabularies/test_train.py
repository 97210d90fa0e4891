import re

import pytest
from vocabulary_models import sentences, write_model

from spanloom.conversion import spiece
from spanloom.conversion.hf_tokenizer import spiece_sentinels
from spanloom.settings.vocabulary import SentencePiece
from spanloom.vocabularies.build import build
from spanloom.vocabularies.train import Sample, Training, check, lines_of, train
from spanloom.vocabularies.vocabulary import VocabularyError

pytestmark = pytest.mark.short
SMALL = {"size": 120, "sentinels": 10, "byte_fallback": False}


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_special_ids_are_t5s_and_sentinels_the_highest(tmp_path, kind):
    path = write_model(tmp_path / "my.model", kind=kind)
    vocabulary = build(SentencePiece(path))
    assert (vocabulary.pad_id, vocabulary.eos_id, vocabulary.unk_id) == (0, 1, 2)
    assert vocabulary.size == 130
    assert vocabulary.sentinels == tuple(range(129, 119, -1))
    assert vocabulary.encode("fox <extra_id_0> dog <extra_id_9>").tolist().count(129) == 1
    read = spiece.parse((tmp_path / "my.model").read_bytes(), path)
    assert spiece_sentinels(SentencePiece(path), read) == dict(enumerate(vocabulary.sentinels))


def test_without_sentinels_they_are_appended_to_the_same_ids(tmp_path):
    with_them = build(SentencePiece(write_model(tmp_path / "a.model")))
    without = build(SentencePiece(write_model(tmp_path / "b.model", sentinels=0), extra_ids=10))
    assert without.sentinels == with_them.sentinels
    text = "the lazy <extra_id_3> jumps over <extra_id_0>"
    assert without.encode(text).tolist() == with_them.encode(text).tolist()


def test_the_same_text_and_seed_give_the_same_file_and_another_seed_another_sample():
    texts = sentences(3000)
    some = Training(megabytes=0.01, **SMALL)
    first, again, whole = train(texts, some), train(iter(texts), some), train(texts, Training(**SMALL))
    assert first.model == again.model
    assert first.learnt_bytes <= 10_000 and 100 < first.learnt_lines < first.lines == 3000
    assert whole.learnt_lines == whole.lines == 3000
    assert train(texts, Training(megabytes=0.01, seed=1, **SMALL)).model != first.model


def test_a_sample_is_bounded_in_order_and_fair():
    sample = Sample(2_000, seed=0)
    for number in range(10_000):
        sample.add(f"{number:05d}")
    kept = [int(line) for line in sample.lines()]
    assert sample.seen == 10_000
    assert len(kept) == 400
    assert kept == sorted(kept)
    assert 0.4 < sum(number < 5_000 for number in kept) / 400 < 0.6
    bigger = Sample(4_000, seed=0)
    for number in range(10_000):
        bigger.add(f"{number:05d}")
    assert set(kept) <= {int(line) for line in bigger.lines()}


@pytest.mark.parametrize("letters", ["ab ", "äß ", "水火", "🐟 ", "x" * 9])
def test_long_lines_are_cut_and_nothing_is_lost(letters):
    text = letters * 5000
    parts = list(lines_of(text))
    assert all(len(part.encode()) <= 4000 for part in parts)
    assert "".join(parts).rstrip() == text.rstrip()
    assert len(parts) < len(text) / 400


def test_characters_for_which_the_library_passes_lines_over_hide_none(tmp_path):
    texts = [f"{line} \u2585 \0 Ω" for line in sentences()]
    assert build(SentencePiece(write_model(tmp_path / "a.model", texts))).unk_id not in build(
        SentencePiece(str(tmp_path / "a.model"))
    ).encode("Ω fox")


CODE = "def f(x):\n\tif x == {1, 2}:\n        return  [x]\n\n"


def test_kept_whitespace_comes_back_as_it_was(tmp_path):
    texts = sentences() + [CODE] * 50
    keeps = build(SentencePiece(write_model(tmp_path / "keep.model", texts, whitespace="keep")))
    for text in (CODE, "  fox  dog ", "\n", "\tfox\n\n dog", "fox\t\t{dog}", "fox\n"):
        assert keeps.decode(keeps.encode(text)) == text
    collapses = build(SentencePiece(write_model(tmp_path / "collapse.model", texts)))
    assert collapses.decode(collapses.encode("fox\n\n  dog")) == "fox dog"


def test_characters_without_a_piece_are_bytes_or_unknown(tmp_path):
    with_bytes = build(SentencePiece(write_model(tmp_path / "a.model", size=400, byte_fallback=True)))
    assert with_bytes.decode(with_bytes.encode("fox 水 ☃")) == "fox 水 ☃"
    without = build(SentencePiece(write_model(tmp_path / "b.model")))
    assert without.unk_id in without.encode("fox 水")


def test_symbols_are_one_piece_each_wherever_they_stand(tmp_path):
    vocabulary = build(SentencePiece(write_model(tmp_path / "a.model", symbols=("{", "<sep>"))))
    ids = vocabulary.encode("fox{dog<sep>x{")
    assert vocabulary.decode(ids) == "fox{dog<sep>x{"
    assert [text for text in map(vocabulary.spell, ids[:, None]) if text in ("{", "<sep>")] == ["{", "<sep>", "{"]


@pytest.mark.parametrize("byte_fallback", [False, True])
def test_whatever_symbols_are_taken_the_model_can_be_used(tmp_path, byte_fallback):
    """Names that SentencePiece or others give a meaning: each is refused before the text is read, or gets a piece."""
    taken = set()
    for symbol in ("<pad>", "</s>", "<s>", "<unk>", "<0x41>", "<0xZZ>", "<mask>", "<cls>", "\u2581", "\u2047"):
        settings = {"symbols": (symbol,), "size": 420 if byte_fallback else 120, "byte_fallback": byte_fallback}
        try:
            check(Training(**settings))
        except VocabularyError:
            continue
        vocabulary = build(SentencePiece(write_model(tmp_path / "a.model", **settings)))
        assert symbol.replace("\u2581", " ") in map(vocabulary.spell, vocabulary.encode(f"fox {symbol} dog")[:, None])
        taken.add(symbol)
    assert taken >= {"<s>", "<mask>", "<cls>", "<0xZZ>"}


def test_a_model_that_no_command_would_take_is_not_handed_out(monkeypatch):
    monkeypatch.setattr("spanloom.vocabularies.train._check_symbols", lambda training: None)
    with pytest.raises(VocabularyError, match="the model that was learnt has no end-of-sequence piece"):
        train(sentences(), Training(**SMALL | {"symbols": ("</s>",)}))


@pytest.mark.parametrize("settings", [{}, {"byte_fallback": True}, {"kind": "bpe"}])
def test_a_size_that_cannot_be_names_the_nearest_that_can(tmp_path, settings):
    texts = ["ab abc abd " * 20]
    with pytest.raises(VocabularyError, match="largest possible is") as error:
        write_model(tmp_path / "a.model", texts, **{"size": 5000, **settings})
    largest = int(re.search(r"--size (\d+)\)", str(error.value))[1])
    write_model(tmp_path / "a.model", texts, **{"size": largest, **settings})
    with pytest.raises(VocabularyError, match=f"--size {largest + 1} is more"):
        write_model(tmp_path / "b.model", texts, **{"size": largest + 1, **settings})
    with pytest.raises(VocabularyError, match="is too small: the single characters") as error:
        write_model(tmp_path / "b.model", texts, **{"size": 5, **settings})


@pytest.mark.parametrize(
    ("texts", "settings", "words"),
    [
        ([], {}, "no text to learn from"),
        (["", " \n\t ", "\0"], {}, "no text to learn from"),
        (["x"], {"size": 3}, "above 3"),
        (["x"], {"sentinels": -1}, "0 or more"),
        (["x"], {"character_coverage": 0.5}, "from 0.98 to 1"),
        (["x"], {"size": 10**14}, "at most 10,000,000"),
        (["x"], {"sentinels": 10**14}, "at most 1,000,000"),
        (["x"], {"megabytes": 0.0}, "above 0"),
        (["x"], {"megabytes": float("nan")}, "above 0"),
        (["x"], {"megabytes": float("inf")}, "at most"),
        (["x"], {"symbols": ("\udcff",)}, "no character"),
        (["x"], {"whitespace": "keep", "normalization": "nmt_nfkc"}, "--normalization identity"),
        (["x"], {"symbols": ("a b",)}, "no blanks"),
        (["x"], {"symbols": ("<extra_id_5>",)}, "is a sentinel"),
        (["x"], {"symbols": ("{", "{")}, "twice"),
        (["x"], {"symbols": ("{", "<pad>")}, "--symbols <pad>: every model has this special piece"),
        (["x"], {"symbols": ("</s>",)}, "--symbols </s>: every model has"),
        (["x"], {"symbols": ("<unk>",)}, "--symbols <unk>: every model has"),
        (["x"], {"symbols": ("<0x4A>",), "byte_fallback": True}, "--symbols <0x4A>: that is the piece of a byte"),
    ],
)
def test_what_makes_no_model_is_named(texts, settings, words):
    with pytest.raises(VocabularyError, match=words):
        train(texts, Training(**SMALL | settings))
