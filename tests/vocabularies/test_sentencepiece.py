import io
import pickle
import random
import struct
from pathlib import Path

import numpy as np
import pytest
import sentencepiece
from golden_data import shared_dir

from spanloom.settings.vocabulary import SentencePiece
from spanloom.vocabularies.build import build
from spanloom.vocabularies.model_file import append_user_defined
from spanloom.vocabularies.vocabulary import VocabularyError

SENTENCES = [
    "the quick brown fox jumps over the lazy dog",
    "pack my box with five dozen liquor jugs",
    "how vexingly quick daft zebras jump",
    "sphinx of black quartz, judge my vow",
    "all characters of < extra _ id _ 0 1 2 >",
] * 20
T5_IDS = {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1}


def train(path: Path, **options: object) -> str:
    """A tiny model in a file; T5's special ids unless told otherwise."""
    model = io.BytesIO()
    settings = (
        {"vocab_size": 80, "hard_vocab_limit": False, "minloglevel": 2, "model_type": "unigram"} | T5_IDS | options
    )
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(SENTENCES), model_writer=model, **settings)
    path.write_bytes(model.getvalue())
    return str(path)


def names(count: int, mark: str = "") -> list[str]:
    return [f"{mark}<extra_id_{number}>" for number in range(count)]


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> str:
    return train(tmp_path_factory.mktemp("plain") / "my.model")


@pytest.mark.short
def test_sentinels_are_appended_last_one_first(plain: str) -> None:
    base = sentencepiece.SentencePieceProcessor(model_file=plain)
    for kind in ("auto", "appended"):
        vocabulary = build(SentencePiece(plain, sentinels=kind, extra_ids=7))
        assert vocabulary.size == base.get_piece_size() + 7
        assert vocabulary.sentinels == tuple(reversed(range(base.get_piece_size(), vocabulary.size)))
        assert (vocabulary.pad_id, vocabulary.eos_id, vocabulary.unk_id) == (0, 1, 2)
        text = "my <extra_id_0> fox <extra_id_6>"
        ids = vocabulary.encode(text)
        assert ids.dtype == np.int32
        assert [token for token in ids.tolist() if token in vocabulary.sentinels] == [
            vocabulary.size - 1,
            vocabulary.size - 7,
        ]
        assert vocabulary.decode(ids) == vocabulary.decode_with_sentinels(ids) == text
        assert vocabulary.encode("brown fox").tolist() == base.encode("brown fox")
        assert vocabulary.size - 1 not in vocabulary.encode("my<extra_id_0>").tolist()
    assert build(SentencePiece(plain, extra_ids=0)).sentinels == ()


@pytest.mark.short
def test_batches_equal_single_texts(plain: str) -> None:
    vocabulary = build(SentencePiece(plain))
    texts = ["", "fox", "the <extra_id_3> dog", "  many   spaces\n"]
    rows = vocabulary.encode_batch(texts)
    assert [row.tolist() for row in rows] == [vocabulary.encode(text).tolist() for text in texts]
    assert all(row.dtype == np.int32 and row.ndim == 1 for row in rows)
    assert vocabulary.encode_batch([]) == []


@pytest.mark.short
@pytest.mark.parametrize("end", [None, 1])
def test_utf8_is_encoded_as_text_is(plain: str, end: int | None) -> None:
    vocabulary = build(SentencePiece(plain))
    for texts in (["", "fox", "the <extra_id_3> dög", "  many   spaces\n", " ", "nul \0 kept", "水"], [""], []):
        rows = [row.tolist() for row in vocabulary.encode_batch(texts)]
        rows = [[*row, end] if end and row else row for row in rows]
        ids, lengths = vocabulary.encode_utf8([text.encode() for text in texts], np.uint16, end)
        assert ids.tolist() == [token for row in rows for token in row]
        assert lengths.tolist() == [len(row) for row in rows]
        assert (ids.dtype, lengths.dtype) == (np.uint16, np.int64)


@pytest.mark.parametrize("mark", ["", "\u2581"])
@pytest.mark.parametrize("kind", ["auto", "pieces"])
def test_a_model_with_sentinels_of_its_own(tmp_path: Path, mark: str, kind: str) -> None:
    path = train(tmp_path / "own.model", user_defined_symbols=names(12, mark))
    vocabulary = build(SentencePiece(path, sentinels=kind))
    processor = sentencepiece.SentencePieceProcessor(model_file=path)
    assert vocabulary.size == processor.get_piece_size()
    assert vocabulary.sentinels == tuple(processor.piece_to_id(name) for name in names(12, mark))
    ids = vocabulary.encode("my <extra_id_0> fox <extra_id_11>").tolist()
    assert [token for token in ids if token in vocabulary.sentinels] == [
        vocabulary.sentinels[0],
        vocabulary.sentinels[11],
    ]
    assert vocabulary.decode_with_sentinels(ids) == "my <extra_id_0> fox <extra_id_11>"
    with pytest.raises(VocabularyError, match=r"12 <extra_id_N> pieces of its own.*sentinels=pieces"):
        build(SentencePiece(path, sentinels="appended"))


def test_sentinels_as_control_symbols(tmp_path: Path) -> None:
    path = train(tmp_path / "control.model", control_symbols=names(5))
    vocabulary = build(SentencePiece(path))
    assert len(vocabulary.sentinels) == 5
    fox = vocabulary.encode("fox").tolist()
    assert "extra_id" not in vocabulary.decode([vocabulary.sentinels[1], *fox])
    assert vocabulary.decode_with_sentinels([vocabulary.sentinels[1], *fox, 1, *fox]) == "<extra_id_1> fox"


def test_unusable_sentinels_are_refused(tmp_path: Path, plain: str) -> None:
    with pytest.raises(VocabularyError, match=r"no <extra_id_N> pieces: set sentinels=appended"):
        build(SentencePiece(plain, sentinels="pieces"))
    gap = train(tmp_path / "gap.model", user_defined_symbols=["<extra_id_0>", "<extra_id_2>"])
    with pytest.raises(VocabularyError, match="none for N = 1: number them from 0"):
        build(SentencePiece(gap))
    double = train(tmp_path / "double.model", user_defined_symbols=["<extra_id_0>", "\u2581<extra_id_0>"])
    with pytest.raises(VocabularyError, match="two pieces for <extra_id_0>"):
        build(SentencePiece(double))
    for count in (-1, 10**12):
        with pytest.raises(VocabularyError, match=f"extra_ids={count}: must be from 0 to"):
            build(SentencePiece(plain, extra_ids=count))
    with pytest.raises(VocabularyError, match="auto, appended or pieces"):
        build(SentencePiece(plain, sentinels="guess"))  # type: ignore[arg-type]


def test_sentinels_as_ordinary_pieces_are_refused(tmp_path: Path) -> None:
    path = Path(train(tmp_path / "ordinary.model", user_defined_symbols=names(3)))
    user_defined = b"<extra_id_1>\x15" + struct.pack("<f", 0.0) + b"\x18\x04"
    ordinary = b"<extra_id_1>\x15" + struct.pack("<f", -99.0) + b"\x18\x01"
    content = path.read_bytes()
    assert content.count(user_defined) == 1
    path.write_bytes(content.replace(user_defined, ordinary))
    with pytest.raises(VocabularyError, match=r"<extra_id_1> as an ordinary piece.*--user_defined_symbols"):
        build(SentencePiece(str(path)))


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (
            {"pad_id": -1, "unk_id": 0, "bos_id": 1, "eos_id": 2},
            r"no padding piece.*id 0 must be padding.*'<unk>'.*--pad_id=0",
        ),
        ({"pad_id": 3, "unk_id": 0, "bos_id": 1, "eos_id": 2}, r"padding at id 3"),
        ({"pad_id": 0, "unk_id": 1, "bos_id": -1, "eos_id": -1}, r"no end-of-sequence piece.*--eos_id=1"),
    ],
)
def test_special_ids_that_do_not_serve(tmp_path: Path, ids: dict, message: str) -> None:
    with pytest.raises(VocabularyError, match=message):
        build(SentencePiece(train(tmp_path / "ids.model", **ids)))


def test_special_ids_are_read_from_the_model(tmp_path: Path) -> None:
    path = train(tmp_path / "ids.model", pad_id=0, unk_id=1, bos_id=2, eos_id=3)
    vocabulary = build(SentencePiece(path))
    assert (vocabulary.pad_id, vocabulary.unk_id, vocabulary.eos_id) == (0, 1, 3)
    fox = vocabulary.encode("fox").tolist()
    assert vocabulary.decode([*fox, 3, *fox]) == "fox"
    assert vocabulary.decode([*fox, 10**6]) == "fox \u2047 "


def test_files_and_fingerprint_come_from_the_model_file(tmp_path: Path, plain: str) -> None:
    vocabulary = build(SentencePiece(plain))
    ((name, content),) = vocabulary.files().items()
    assert name == "spiece.model" and content == Path(plain).read_bytes()
    (tmp_path / name).write_bytes(content)
    again = build(SentencePiece(str(tmp_path / name)))
    assert again.fingerprint() == vocabulary.fingerprint()
    assert again.fingerprint() != build(SentencePiece(plain, extra_ids=99)).fingerprint()
    other = train(tmp_path / "other.model", model_type="char")
    assert build(SentencePiece(other)).fingerprint() != vocabulary.fingerprint()


def test_a_vocabulary_can_be_sent_to_another_process(plain: str) -> None:
    vocabulary = build(SentencePiece(plain))
    again = pickle.loads(pickle.dumps(vocabulary))
    assert again.encode("quick <extra_id_0>").tolist() == vocabulary.encode("quick <extra_id_0>").tolist()
    assert again.fingerprint() == vocabulary.fingerprint()


@pytest.mark.golden
def test_published_models() -> None:
    t5 = build(SentencePiece(str(shared_dir("data", "tokenizers", "t5", "spiece.model"))))
    assert t5.size == 32_100 and t5.sentinels == tuple(range(32_099, 31_999, -1))
    mt5 = build(SentencePiece(str(shared_dir("data", "tokenizers", "mt5", "spiece.model"))))
    assert mt5.size == 250_100 and mt5.sentinels == tuple(range(250_099, 249_999, -1))


@pytest.mark.short
def test_pieces_are_spelled_so_that_every_id_is_seen(plain: str, tmp_path: Path) -> None:
    vocabulary = build(SentencePiece(plain, extra_ids=7))
    ids = vocabulary.encode("brown fox")
    whole = vocabulary.spell(ids)
    assert whole == " brown fox" == "".join(vocabulary.spell([token]) for token in ids)
    marks = [0, 1, 2, vocabulary.sentinels[3], vocabulary.size, -1]
    assert vocabulary.spell(marks) == f"<pad></s><unk><extra_id_3><id {vocabulary.size}><id -1>"
    fallback = {"vocab_size": 400, "byte_fallback": True}
    vocabulary = build(SentencePiece(train(tmp_path / "bytes.model", **fallback)))
    ids = vocabulary.encode("fox \u6c34")
    assert vocabulary.spell(ids) == " fox \u6c34"
    assert vocabulary.spell(ids[-1:]) == "\\xb4"
    control = build(SentencePiece(train(tmp_path / "control.model", control_symbols=names(2))))
    assert control.spell([control.sentinels[1]]) == "<extra_id_1>"


@pytest.mark.short
def test_damaged_models_are_refused_and_never_a_traceback(plain: str, tmp_path: Path) -> None:
    """Whatever byte of the pieces is another, appended ones of trained models included."""
    model, draw = Path(plain).read_bytes(), random.Random(0)
    sentinel = append_user_defined(b"", ["\u2581<extra_id_0>"])
    whole = model + sentinel
    said = []
    for at in [*draw.sample(range(900), 200), *range(len(model), len(whole))]:
        damaged = tmp_path / "damaged.model"
        damaged.write_bytes(whole[:at] + bytes([whole[at] ^ 0xAA]) + whole[at + 1 :])
        try:
            vocabulary = build(SentencePiece(str(damaged)))
            vocabulary.spell(range(vocabulary.size))
            vocabulary.decode(vocabulary.encode("the quick brown fox"))
        except VocabularyError as error:
            said.append(str(error))
    assert all(str(damaged) in one for one in said)
    assert sum("is damaged (a piece is no UTF-8: b" in one for one in said) > 10
