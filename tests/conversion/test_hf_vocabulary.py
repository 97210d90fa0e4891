"""Which sentinels a ByT5 was trained with, told from its weights."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from vocabulary_models import sentences, write_model

from spanloom.conversion.convert import convert_to_hf
from spanloom.conversion.errors import ConversionError
from spanloom.conversion.huggingface import read_settings
from spanloom.settings.vocabulary import Bytes, SentencePiece
from spanloom.training.inspected import inspect
from spanloom.training.read_model import open_model


def foreign(folder, model, make_source, trained_rows, drift=0.3, embedding=True) -> None:
    """An export without our mark; as after training: used rows went their own ways, the others drifted together."""
    convert_to_hf(make_source(model), folder)
    (folder / "spanloom.json").unlink()
    tensors = load_file(folder / "model.safetensors")
    rng = np.random.default_rng(3)
    rows = [*range(248), *trained_rows]
    for name in ("shared.weight", "lm_head.weight") if embedding else ("lm_head.weight",):
        width = model.d_model
        tensors[name] += rng.normal(0, 1, width).astype(np.float32)
        tensors[name][rows] += rng.normal(0, drift * np.sqrt(width), (len(rows), width)).astype(np.float32)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


@pytest.mark.parametrize(
    ("convention", "rows"),
    [
        ("google", range(258, 247, -1)),
        ("huggingface", range(259, 269)),
        ("huggingface", range(259, 300)),
        ("seqio", range(383, 373, -1)),
    ],
)
def test_the_convention_is_read_off_the_weights(tmp_path, tiny, make_source, convention, rows):
    for number, d_model in enumerate((16, 128)):
        folder = tmp_path / str(number)
        foreign(folder, replace(tiny, d_model=d_model), make_source, rows, embedding=number == 0)
        found = read_settings(folder)
        assert found.vocabulary == Bytes(sentinels=convention), found.notes
        assert "as the weights show" in found.notes[0]


@pytest.mark.parametrize("rows", [(), (*range(248, 259), *range(373, 384))])
def test_no_clear_answer_is_said(tmp_path, tiny, make_source, rows):
    foreign(tmp_path / "out", replace(tiny, d_model=128), make_source, rows)
    found = read_settings(tmp_path / "out")
    assert found.vocabulary == Bytes()
    assert "stands out" in found.notes[0]
    assert "sentinels google" in found.notes[0]


def test_rows_equal_to_the_last_bit_are_untrained_too(tmp_path, tiny, make_source):
    foreign(tmp_path / "out", tiny, make_source, range(258, 247, -1))
    tensors = load_file(tmp_path / "out" / "model.safetensors")
    for name in ("shared.weight", "lm_head.weight"):
        tensors[name][259:] = 0
    save_file(tensors, tmp_path / "out" / "model.safetensors", metadata={"format": "pt"})
    assert read_settings(tmp_path / "out").vocabulary == Bytes(sentinels="google")


def test_a_mark_says_how_many_google_sentinels_were_accepted(tmp_path, tiny, make_source):
    for vocabulary in (Bytes("google"), Bytes("google", google_sentinels=51)):
        convert_to_hf(make_source(tiny, vocabulary=vocabulary), tmp_path / "out")
        assert read_settings(tmp_path / "out").vocabulary == vocabulary


def test_a_mark_of_before_they_could_be_accepted_is_read(tmp_path, tiny, make_source):
    convert_to_hf(make_source(tiny, vocabulary=Bytes("google")), tmp_path / "out")
    mark = json.loads((tmp_path / "out" / "spanloom.json").read_text())
    del mark["vocabulary"]["google_sentinels"]
    (tmp_path / "out" / "spanloom.json").write_text(json.dumps(mark))
    assert read_settings(tmp_path / "out").vocabulary == Bytes("google")


def test_a_damaged_mark_is_refused(tmp_path, tiny, make_source):
    convert_to_hf(make_source(tiny), tmp_path / "out")
    (tmp_path / "out" / "spanloom.json").write_text(json.dumps({"vocabulary": {"sentinels": "mine"}}))
    with pytest.raises(ConversionError, match=r"spanloom\.json.*names no vocabulary"):
        read_settings(tmp_path / "out")


@pytest.mark.parametrize(("name", "kind", "extra_ids"), [("t5", "appended", 100), ("mt5", "pieces", 0)])
def test_sentencepiece_models_are_found_with_their_sentinels(tmp_path, tiny, make_source, name, kind, extra_ids):
    from golden_data import shared_dir

    path = shared_dir("data", "tokenizers", name) / "spiece.model"
    size = 32128 if name == "t5" else 250112
    source = make_source(replace(tiny, vocab_size=size, d_model=4), SentencePiece(str(path)))
    convert_to_hf(source, tmp_path / "out")
    found = read_settings(tmp_path / "out").vocabulary
    assert found == SentencePiece(str(tmp_path / "out" / "spiece.model"), kind, extra_ids)
    assert (tmp_path / "out" / "spiece.model").read_bytes() == path.read_bytes()


def test_a_model_file_that_was_exchanged_is_found_out(tmp_path, tiny, make_source):
    first, second = (write_model(tmp_path / f"{name}.model", sentences(400, seed)) for seed, name in enumerate("ab"))
    convert_to_hf(make_source(replace(tiny, vocab_size=256), SentencePiece(first)), tmp_path / "out")
    assert read_settings(tmp_path / "out").model.vocab_size == 256
    shutil.copy(second, tmp_path / "out" / "spiece.model")
    with pytest.raises(ConversionError, match=r"spiece\.model: is not the SentencePiece model that was exported"):
        read_settings(tmp_path / "out")
    (tmp_path / "out" / "spanloom.json").unlink()
    with pytest.raises(ConversionError, match=r"tokenizer\.json: has tokens that spiece\.model has not"):
        read_settings(tmp_path / "out")
    (tmp_path / "out" / "tokenizer.json").unlink()  # of a folder that says nothing the size is all there is to compare
    assert read_settings(tmp_path / "out").vocabulary.path == str(tmp_path / "out" / "spiece.model")


def test_a_vocabulary_is_named_where_the_folder_has_none(tmp_path, tiny, make_source):
    first, second = (write_model(tmp_path / f"{name}.model", sentences(400, seed)) for seed, name in enumerate("ab"))
    folder = tmp_path / "out"
    convert_to_hf(make_source(replace(tiny, vocab_size=256), SentencePiece(first)), folder)
    with pytest.raises(ConversionError, match="has a vocabulary of its own: leave out --vocabulary"):
        read_settings(folder, first)
    own = read_settings(folder).vocabulary
    (folder / "spiece.model").unlink()
    with pytest.raises(ConversionError, match=r"holds no spiece\.model .* --vocabulary FILE\.model"):
        read_settings(folder)
    assert read_settings(folder, first).vocabulary == replace(own, path=first)
    assert open_model(folder, vocabulary=first).vocabulary == replace(own, path=first)
    assert any(first in value for _, value in inspect(folder, vocabulary=first).rows)
    with pytest.raises(ConversionError, match=r"b\.model: is not the SentencePiece model that was exported"):
        read_settings(folder, second)
    with pytest.raises(ConversionError, match="nowhere: is no file"):
        read_settings(folder, "nowhere")


def test_bytes_are_named_where_the_folder_does_not_say_so(tmp_path, tiny, make_source):
    convert_to_hf(make_source(tiny, Bytes("google")), tmp_path / "out")
    for name in ("tokenizer_config.json", "spanloom.json"):
        (tmp_path / "out" / name).unlink()
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    del config["tokenizer_class"]
    (tmp_path / "out" / "config.json").write_text(json.dumps(config))
    with pytest.raises(ConversionError, match=r"holds no spiece\.model"):
        read_settings(tmp_path / "out")
    assert read_settings(tmp_path / "out", "bytes").vocabulary == Bytes()


def test_a_damaged_sentencepiece_model_is_refused(tmp_path, tiny, make_source):
    convert_to_hf(make_source(tiny), tmp_path / "out")
    folder = tmp_path / "out"
    (folder / "spiece.model").write_bytes(b"\x0a\xff\xff\xff")
    config = json.loads((folder / "tokenizer_config.json").read_text()) | {"tokenizer_class": "T5Tokenizer"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    with pytest.raises(ConversionError, match=r"spiece\.model: is not a SentencePiece model"):
        read_settings(folder)
