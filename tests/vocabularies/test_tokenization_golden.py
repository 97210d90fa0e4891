"""Encoding and decoding against recorded values of SeqIO's vocabularies; the reader also gets a case made here."""

import json
from pathlib import Path

import pytest
from golden_data import golden_dir, shared_dir

from spanloom.settings.vocabulary import Bytes, SentencePiece
from spanloom.vocabularies.build import build
from spanloom.vocabularies.vocabulary import Vocabulary


def vocabulary_named(name: str) -> Vocabulary:
    if name in ("t5", "mt5"):
        return build(SentencePiece(str(shared_dir("data", "tokenizers", name, "spiece.model"))))
    return build(Bytes("seqio")) if name == "byte125" else build(Bytes("google"))


def check_file(path: Path) -> int:
    """Compare each row with ours; how many answers were compared."""
    vocabularies: dict[str, Vocabulary] = {}
    compared = 0
    for line in path.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        answers = {row["vocab"]: row} if row["row"] == "decode" else {k: v for k, v in row.items() if type(v) is dict}
        for name, answer in answers.items():
            if name not in vocabularies:
                vocabularies[name] = vocabulary_named(name)
            vocabulary = vocabularies[name]
            if row["row"] == "encode":
                check_encode(vocabulary, row["text"], answer)
            assert vocabulary.decode(answer["ids"]) == answer["decoded"], (name, answer)
            compared += 1
    return compared


def check_encode(vocabulary: Vocabulary, text: str, answer: dict) -> None:
    allowed = [answer["ids"]]
    if answer.get("ambiguous"):
        allowed.append(answer["ids_python_encode"])
    assert vocabulary.encode(text).tolist() in allowed, text
    assert [ids.tolist() for ids in vocabulary.encode_batch([text, "x", text])][2] in allowed, text


@pytest.mark.golden
def test_golden_tokenization() -> None:
    assert check_file(golden_dir("seqio", "tokenization.jsonl")) > 0


@pytest.mark.short
def test_a_case_of_our_own(tmp_path: Path) -> None:
    ids = [byte + 3 for byte in "né <extra_id_0>".encode()]
    rows = [
        {
            "row": "encode",
            "kind": "edge",
            "text": "né <extra_id_0>",
            "byte": {"ids": ids, "decoded": "né <extra_id_0>"},
        },
        {"row": "decode", "vocab": "byte125", "kind": "own", "ids": [383, 68, 1, 69], "decoded": "A"},
    ]
    path = tmp_path / "tokenization.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    assert check_file(path) == 2
    ids[0] += 1
    path.write_text(json.dumps(rows[0]), encoding="utf-8")
    with pytest.raises(AssertionError):
        check_file(path)
