"""Heads: shared with the embedding or not, their logits scaled or not, as transformers has them."""

import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from conversion.conftest import random_batch, random_params
from safetensors.numpy import load_file, save_file

from spanloom.conversion.convert import convert_to_hf
from spanloom.conversion.errors import ConversionError
from spanloom.conversion.huggingface import import_hf, write_folder
from spanloom.conversion.stored_model import as_stored
from spanloom.conversion.trained_model import Lineage, TrainedModel
from spanloom.model.t5 import forward
from spanloom.settings.model import Model
from spanloom.settings.vocabulary import Bytes

# a width whose root is no power of two, so that scaling rounds
MODEL = Model(vocab_size=384, d_model=24, d_ff=16, num_heads=2, d_kv=8, num_encoder_layers=1, num_decoder_layers=1)
KINDS = ("t5", "mt5", "umt5")
FLAGS = (True, False, None)
HEADS = ("absent", "equal", "own")
CASES = list(itertools.product(KINDS, FLAGS, FLAGS, HEADS))


def name_of(kind: str, tied: bool | None, scaled: bool | None, head: str) -> str:
    return f"{kind}-{tied}-{scaled}-{head}"


def make(folder: Path, kind: str, tied: bool | None, scaled: bool | None, head: str, **more: Any) -> None:
    """A folder of this kind whose config has these flags (None: left out) and whose weights this head."""
    model = replace(MODEL, per_layer_position_bias=kind == "umt5")
    source = TrainedModel(model, random_params(model, len(kind)), Bytes(), Lineage("x"))
    folder.mkdir(parents=True)
    write_folder(folder, as_stored(source), name="x")
    (folder / "spanloom.json").unlink()
    config = json.loads((folder / "config.json").read_text())
    flags = {"tie_word_embeddings": tied, "scale_decoder_outputs": scaled}
    config |= {"model_type": kind, "architectures": [f"{kind.upper()}ForConditionalGeneration"]} | flags | more
    config = {key: value for key, value in config.items() if value is not None}
    (folder / "config.json").write_text(json.dumps(config))
    tensors = load_file(folder / "model.safetensors")
    if head == "absent":
        del tensors["lm_head.weight"]
    elif head == "equal":
        tensors["lm_head.weight"] = tensors["shared.weight"].copy()
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def expected(kind: str, tied: bool | None, scaled: bool | None, head: str) -> str:
    """What a folder is to be read as: tied, untied, untied and scaled, or refused."""
    scales = (tied is not False if scaled is None else scaled) and kind != "mt5"
    if head == "absent" and tied is False:
        return "refused"
    if not scales:
        return "untied"
    if head != "own":
        return "tied"
    return "untied, scaled" if scaled else "refused"


@pytest.mark.parametrize(("kind", "tied", "scaled", "head"), CASES)
def test_flags_and_tensors_decide_together(tmp_path, kind, tied, scaled, head):
    make(tmp_path / "in", kind, tied, scaled, head)
    wanted = expected(kind, tied, scaled, head)
    if wanted == "refused":
        with pytest.raises(ConversionError, match=r"config\.json: .*lm_head\.weight.*(to true|to false)"):
            import_hf(tmp_path / "in")
        return
    read = import_hf(tmp_path / "in")
    assert read.model.tie_embeddings == (wanted == "tied")
    if wanted == "tied":
        assert read.notes[:-1] == (), "all is as it should be but for what tells the sentinels"
        return
    tensors = load_file(tmp_path / "in" / "model.safetensors")
    factor = np.float32(24**-0.5 if wanted == "untied, scaled" else 1)
    head_VxE = tensors["lm_head.weight" if head == "own" else "shared.weight"] * factor
    np.testing.assert_array_equal(read.params.decoder.logits_dense.kernel, head_VxE.T)
    assert (tied is False and wanted == "untied") or any("read as" in note for note in read.notes)


@pytest.mark.parametrize("head", ["absent", "equal"])
def test_a_tied_mt5_of_transformers_4_is_scaled_and_said(tmp_path, head):
    make(tmp_path / "in", "mt5", True, None, head, transformers_version="4.46.3")
    read = import_hf(tmp_path / "in")
    assert read.model.tie_embeddings
    assert any("transformers 5 does not scale" in note for note in read.notes)


@pytest.mark.parametrize("head", ["absent", "equal", "own"])
def test_an_mt5_of_transformers_4_without_the_flag_is_not_tied(tmp_path, head):
    make(tmp_path / "in", "mt5", None, None, head, transformers_version="4.46.3")
    assert not import_hf(tmp_path / "in").model.tie_embeddings


@pytest.mark.parametrize("field", ["tie_word_embeddings", "scale_decoder_outputs"])
@pytest.mark.parametrize("value", ["false", 0, 1.0])
def test_a_flag_that_is_neither_true_nor_false_is_refused(tmp_path, field, value):
    make(tmp_path / "in", "t5", True, True, "equal", **{field: value})
    with pytest.raises(ConversionError, match=rf"config\.json: {field} is {value!r}; true or false is needed"):
        import_hf(tmp_path / "in")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_a_scaled_head_keeps_the_bits_that_its_product_has(tmp_path, dtype):
    import ml_dtypes

    make(tmp_path / "in", "t5", True, True, "own")
    tensors = load_file(tmp_path / "in" / "model.safetensors")
    kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else np.dtype(dtype)
    tensors = {name: array.astype(kind) for name, array in tensors.items()}
    save_file(tensors, tmp_path / "in" / "model.safetensors", metadata={"format": "pt"})
    wide = np.float64 if dtype == "float64" else np.float32
    head_VxE = tensors["lm_head.weight"].astype(wide) * wide(24**-0.5)
    read = import_hf(tmp_path / "in")
    np.testing.assert_array_equal(read.params.decoder.logits_dense.kernel, head_VxE.T.astype(np.float32))
    convert_to_hf(TrainedModel(read.model, read.params, read.vocabulary, Lineage("x")), tmp_path / "out")
    written = load_file(tmp_path / "out" / "model.safetensors")
    np.testing.assert_array_equal(written["lm_head.weight"], head_VxE.astype(np.float32))


@pytest.mark.parametrize("tied", [True, False])
def test_both_flags_are_written(tmp_path, tied):
    model = replace(MODEL, tie_embeddings=tied)
    (tmp_path / "out").mkdir()
    source = TrainedModel(model, random_params(model), Bytes(), Lineage("x"))
    write_folder(tmp_path / "out", as_stored(source), name="x")
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["tie_word_embeddings"] is config["scale_decoder_outputs"] is tied


@pytest.mark.parity
def test_every_combination_gives_transformers_logits_as_read_and_as_written(tmp_path, hugging_face):
    batch = random_batch(MODEL, 1, inputs=30, targets=12)
    cases, ours, logits = {}, {}, jax.jit(forward, static_argnums=1)
    for case in CASES:
        if expected(*case) == "refused":
            continue
        name = name_of(*case)
        make(tmp_path / name, *case)
        read = import_hf(tmp_path / name)
        ours[name] = np.asarray(logits(read.params, replace(read.model, dropout=0.0, name="custom"), batch))
        (tmp_path / f"{name}-out").mkdir()
        source = TrainedModel(read.model, read.params, read.vocabulary, Lineage("x"))
        write_folder(tmp_path / f"{name}-out", as_stored(source), name="x")
        cases |= {one: {"folder": str(tmp_path / one)} for one in (name, f"{name}-out")}
    report, theirs = hugging_face(tmp_path, cases, dict.fromkeys(cases, batch))
    shown = batch["decoder_target_tokens"] > 0
    differences = {
        one: float(np.abs(ours[one.removesuffix("-out")] - theirs[one]["logits"])[shown].max()) for one in cases
    }
    print(f"transformers {report['transformers']}: largest difference of logits {differences}")
    if report["transformers"].startswith("4."):  # knows one of the flags only
        differences = {one: value for one, value in differences.items() if one.endswith("-out")}
    assert {one: value for one, value in differences.items() if not value <= 1e-4} == {}
