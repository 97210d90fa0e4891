"""A tokenizer that has other tokens than the vocabulary read from its folder is refused, and no released one is."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from golden_data import shared_dir
from vocabulary_models import reordered, sentences, write_model

from spanloom.conversion import hf_added_tokens, spiece
from spanloom.conversion.convert import convert_to_hf
from spanloom.conversion.errors import ConversionError
from spanloom.conversion.huggingface import read_settings
from spanloom.settings.vocabulary import Bytes, SentencePiece


def edit(path: Path, change) -> None:
    content = json.loads(path.read_text()) if path.is_file() else {}
    change(content)
    path.write_text(json.dumps(content))


ADDED = {
    "tokenizer_config.json": lambda c: c["added_tokens_decoder"].update({"250": {"content": "<SEP>"}}),
    "added_tokens.json": lambda c: c.update({"<SEP>": 250}),
    "tokenizer.json": lambda c: c.setdefault("added_tokens", []).append({"id": 250, "content": "<SEP>"}),
}


@pytest.fixture
def exports(tmp_path, tiny, make_source) -> dict[str, Path]:
    """Folders of each kind of tokenizer that we write, without our mark."""
    vocabularies = {
        "unigram": SentencePiece(write_model(tmp_path / "unigram.model", sentences(400))),
        "bpe": SentencePiece(write_model(tmp_path / "bpe.model", sentences(400), kind="bpe")),
        "bytes": Bytes(),
        "google": Bytes("google"),
        "umt5": Bytes(),
    }
    for name, vocabulary in vocabularies.items():
        model = replace(tiny, per_layer_position_bias=name == "umt5")
        convert_to_hf(make_source(model, vocabulary), tmp_path / name)
        (tmp_path / name / "spanloom.json").unlink()
    return {name: tmp_path / name for name in vocabularies}


def test_tokens_that_were_added_are_named(exports):
    for name, folder in exports.items():
        read_settings(folder)
        for file, add in ADDED.items():
            path = folder / file
            before = path.read_bytes() if path.is_file() else None
            edit(path, add)
            with pytest.raises(ConversionError, match=rf"{file}: has tokens that .*: '<SEP>' \(id 250\), so"):
                read_settings(folder)
            if before is None:
                path.unlink()
            else:
                path.write_bytes(before)
        assert read_settings(folder), name


def test_a_tokenizer_of_another_model_is_refused(exports):
    """Its pieces are as many, and their ids fit the rows."""
    for name in ("unigram", "bpe"):
        path = exports[name] / "spiece.model"
        path.write_bytes(reordered(path.read_bytes()))
        with pytest.raises(ConversionError, match=r"tokenizer\.json: has tokens that spiece\.model has not: .* more"):
            read_settings(exports[name])
        (exports[name] / "tokenizer.json").unlink()
        read_settings(exports[name])


def test_files_of_no_such_form_hold_no_tokens(exports):
    folder = exports["unigram"]
    edit(folder / "tokenizer_config.json", lambda c: c.update(added_tokens_decoder=[1]))
    edit(folder / "added_tokens.json", lambda c: c.update(a="b"))
    edit(folder / "tokenizer.json", lambda c: c.update(model=3, added_tokens=7))
    read_settings(folder)
    edit(folder / "tokenizer.json", lambda c: c.update(model={"vocab": [3, [], None]}, added_tokens=[1, {}]))
    read_settings(folder)


@pytest.mark.golden
@pytest.mark.parametrize("name", ["t5", "mt5"])
def test_released_tokenizers_have_no_others(name):
    folder = shared_dir("data", "tokenizers", name)
    path = folder / "spiece.model"
    model = spiece.parse(path.read_bytes(), path)
    hf_added_tokens.refuse_others(folder, hf_added_tokens.known_pieces(model), path.name)
