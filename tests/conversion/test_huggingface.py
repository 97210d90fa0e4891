"""Folders are read back bit for bit, and damaged or foreign ones are refused by name."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from same_weights import different_weights
from torch_files import write_torch

from spanloom.conversion.convert import convert_to_hf, model_from_hf, stored_hf
from spanloom.conversion.errors import ConversionError
from spanloom.conversion.huggingface import import_hf, read_settings
from spanloom.model.params import flatten
from spanloom.model.sizes import named
from spanloom.settings.vocabulary import Bytes

WEIGHTS = "model.safetensors"


@pytest.fixture
def exported(tmp_path, tiny, make_source) -> Path:
    convert_to_hf(make_source(tiny), tmp_path / "out")
    return tmp_path / "out"


def edit_config(folder: Path, **changes) -> None:
    path = folder / "config.json"
    config = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({key: value for key, value in config.items() if value is not ...}))


def edit_tensors(folder: Path, edit) -> None:
    tensors = load_file(folder / WEIGHTS)
    edit(tensors)
    save_file(tensors, folder / WEIGHTS, metadata={"format": "pt"})


@pytest.mark.short
@pytest.mark.parametrize("shard_bytes", [None, 5_000])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"tie_embeddings": True, "activations": ("relu",)},
        {"per_layer_position_bias": True, "num_decoder_layers": 3},
    ],
)
def test_round_trip_is_equal_bit_for_bit(tmp_path, tiny, make_source, changes, shard_bytes):
    source = make_source(replace(tiny, dropout=0.1, **changes))
    first, second = tmp_path / "first", tmp_path / "second"
    report = convert_to_hf(source, first, max_shard_bytes=shard_bytes)
    assert report.largest_difference == 0
    read = import_hf(first)
    assert read.model == source.model
    assert read.vocabulary == source.vocabulary
    assert different_weights(source.params, read.params) == []
    assert all(array.dtype == np.float32 for array in flatten(read.params).values())
    convert_to_hf(model_from_hf(first), second, max_shard_bytes=shard_bytes)
    for path in first.iterdir():
        if path.name not in ("README.md", "spanloom.json"):
            assert (second / path.name).read_bytes() == path.read_bytes(), path.name
    assert bool(list(first.glob("model-0000*"))) == bool(shard_bytes)


def test_settings_are_read_without_jax_or_weights(exported, tiny):
    code = (
        "import sys; from spanloom.conversion.huggingface import read_settings; s = read_settings(sys.argv[1]); "
        "assert 'jax' not in sys.modules; print(repr(s.model), repr(s.vocabulary))"
    )
    done = subprocess.run([sys.executable, "-c", code, str(exported)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == f"{tiny!r} {Bytes()!r}"


@pytest.mark.parametrize("convention", ["google", "seqio"])
def test_an_export_keeps_its_sentinel_convention(tmp_path, tiny, make_source, convention):
    convert_to_hf(make_source(tiny, Bytes(sentinels=convention)), tmp_path / "out")
    assert read_settings(tmp_path / "out").vocabulary == Bytes(sentinels=convention)


def test_published_sizes_are_recognised(tmp_path, make_source):
    folder = tmp_path / "out"
    convert_to_hf(make_source(named("byt5_tiny")), folder)
    (folder / "spanloom.json").unlink()
    edit_config(folder, dropout_rate=0.1)
    assert import_hf(folder).model == named("byt5_tiny", dropout=0.1)


def test_half_precision_is_widened_exactly(exported):
    import ml_dtypes

    wide = load_file(exported / WEIGHTS)
    for kind in (np.float16, ml_dtypes.bfloat16):
        narrow = {name: array.astype(kind) for name, array in wide.items()}
        save_file(narrow, exported / WEIGHTS)
        read = import_hf(exported)
        expected = narrow["shared.weight"].astype(np.float32)
        assert np.array_equal(read.params.token_embedder.embedding, expected)
        assert any("widened" in note for note in read.notes)


def test_rounding_is_said_also_of_one_layer(exported, tmp_path):
    wide = "encoder.block.1.layer.0.layer_norm.weight"
    edit_tensors(exported, lambda tensors: tensors.update({wide: tensors[wide].astype(np.float64)}))
    report = convert_to_hf(stored_hf(exported), tmp_path / "again")
    assert any("1 of " in note and "stored as float64 and rounded to float32" in note for note in report.notes)


# ---- the tie of the head ----


def test_a_flag_that_says_tied_is_not_believed_against_the_tensors(exported, tiny):
    edit_config(exported, tie_word_embeddings=True)
    read = import_hf(exported)
    assert read.model == tiny
    assert any("differs from shared.weight" in note for note in read.notes)


def test_an_equal_head_with_the_flag_is_tied(exported):
    edit_config(exported, tie_word_embeddings=True, scale_decoder_outputs=True)
    edit_tensors(exported, lambda tensors: tensors.update({"lm_head.weight": tensors["shared.weight"].copy()}))
    read = import_hf(exported)
    assert read.model.tie_embeddings
    assert read.notes == ()


def test_an_untied_model_without_a_head_is_refused(exported):
    edit_tensors(exported, lambda tensors: tensors.pop("lm_head.weight"))
    with pytest.raises(ConversionError, match=r"config\.json: tie_word_embeddings is false.*lm_head\.weight"):
        import_hf(exported)


def test_an_mt5_of_transformers_5_without_a_head_is_not_scaled(exported):
    edit_tensors(exported, lambda tensors: tensors.pop("lm_head.weight"))
    edit_config(exported, model_type="mt5", tie_word_embeddings=True)
    read = import_hf(exported)
    assert not read.model.tie_embeddings
    assert np.array_equal(read.params.decoder.logits_dense.kernel, read.params.token_embedder.embedding.T)
    edit_config(exported, transformers_version="4.46.3")
    assert import_hf(exported).model.tie_embeddings


def test_copies_of_the_embedding_are_accepted_if_equal(exported):
    name = "encoder.embed_tokens.weight"
    edit_tensors(exported, lambda tensors: tensors.update({name: tensors["shared.weight"].copy()}))
    import_hf(exported)
    edit_tensors(exported, lambda tensors: tensors.update({name: tensors["shared.weight"] + 1}))
    with pytest.raises(ConversionError, match=f"{name} differs"):
        import_hf(exported)


def test_the_embedding_may_only_be_there_as_a_copy(exported):
    edit_tensors(exported, lambda t: t.update({"decoder.embed_tokens.weight": t.pop("shared.weight")}))
    import_hf(exported)


# ---- what is refused ----


@pytest.mark.short
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "bart"}, "model_type is 'bart'"),
        ({"d_model": ...}, "has no d_model"),
        ({"d_model": "16"}, "d_model is '16'"),
        ({"num_heads": 0}, "num_heads is 0"),
        ({"d_model": 10**400}, "d_model is 1000"),
        ({"d_ff": 2**31}, "a whole number from 1 to 2,147,483,647 is needed"),
        ({"feed_forward_proj": "gated-tanh"}, "feed_forward_proj 'gated-tanh'"),
        ({"feed_forward_proj": "gelu"}, "exact form"),
        ({"feed_forward_proj": []}, "feed_forward_proj"),
        ({"model_type": []}, "model_type is"),
        ({"dense_act_fn": "relu"}, "feed_forward_proj is 'gated-gelu', but dense_act_fn 'relu'"),
        ({"dense_act_fn": "gelu"}, "but dense_act_fn 'gelu'"),
        ({"is_gated_act": False}, "but is_gated_act False"),
        ({"pad_token_id": 5}, "pad_token_id is 5"),
        ({"decoder_start_token_id": 2}, "decoder_start_token_id is 2"),
        ({"layer_norm_epsilon": "small"}, "layer_norm_epsilon is 'small'"),
        ({"dropout_rate": 2}, "dropout_rate is 2"),
        ({"relative_attention_max_distance": 8}, "max_distance is 8; more than half of .*_buckets, which is 32"),
        ({"relative_attention_max_distance": 16}, "relative_attention_max_distance is 16; more than half"),
        ({"relative_attention_num_buckets": 31}, "relative_attention_num_buckets is 31; an even number from 4 on"),
        ({"relative_attention_num_buckets": 2}, "relative_attention_num_buckets is 2; an even number from 4 on"),
    ],
)
def test_a_config_that_is_not_ours_is_refused(exported, changes, message):
    edit_config(exported, **changes)
    with pytest.raises(ConversionError, match=message) as error:
        read_settings(exported)
    assert error.value.path.name == "config.json"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"d_ff": 32}, r"DenseReluDense.* has shape .* config\.json calls for"),
        ({"num_layers": 3}, r"config\.json: num_layers is 3, but the weights lack encoder\.block\.2"),
        ({"num_layers": 10**9}, r"num_layers is 1000000000, but the weights lack encoder\.block\.2"),
        ({"num_decoder_layers": 10**9}, r"num_decoder_layers is 1000000000, but the weights lack decoder\.block\.\d"),
        ({"num_layers": 1}, r"hold encoder\.block\.1, which has no place"),
        ({"vocab_size": 400}, r"has shape .* calls for"),
        ({"feed_forward_proj": "relu"}, r"lacks .*wi\.weight"),
        ({"model_type": "umt5"}, r"lacks .*relative_attention_bias"),
    ],
)
def test_shapes_that_contradict_the_config_are_refused(exported, changes, message):
    edit_config(exported, **changes)
    with pytest.raises(ConversionError, match=message):
        import_hf(exported)


@pytest.mark.short
@pytest.mark.parametrize("bad", [np.nan, -np.inf])
def test_weights_that_are_no_numbers_are_refused_by_name(exported, bad):
    name = "decoder.block.0.layer.1.EncDecAttention.v.weight"
    edit_tensors(exported, lambda tensors: tensors[name].__setitem__((0, 3), bad))
    with pytest.raises(ConversionError, match=rf"{WEIGHTS}: {name} holds 1 of 128 numbers that are NaN or infinite"):
        import_hf(exported)


@pytest.mark.parametrize("kind", ["safetensors", "pytorch"])
def test_float16_that_overflowed_is_refused_by_name(exported, kind):
    """As mT5's exports in float16 have it: numbers above 65,504 became infinite."""
    name = "encoder.block.0.layer.1.DenseReluDense.wo.weight"
    tensors = {one: array.astype(np.float32) for one, array in load_file(exported / WEIGHTS).items()}
    tensors[name][1, 2:4] = 70_000
    with np.errstate(over="ignore"):
        half = {one: array.astype(np.float16) for one, array in tensors.items()}
    if kind == "pytorch":
        (exported / WEIGHTS).unlink()
        write_torch(exported / "pytorch_model.bin", half)
    else:
        save_file(half, exported / WEIGHTS)
    with pytest.raises(ConversionError, match=rf"{name} holds 2 of .* infinite: .*float16, which overflows"):
        import_hf(exported)


@pytest.mark.parametrize("content", ["[" * 200_000, '{"d_model": ' + "1" * 5_000 + "}", "\xff"])
def test_json_that_cannot_be_read_is_named(exported, content):
    (exported / "config.json").write_text(content, encoding="latin-1")
    with pytest.raises(ConversionError, match=r"config\.json: is not valid JSON"):
        read_settings(exported)


def test_a_missing_or_broken_config_is_refused(exported):
    (exported / "config.json").write_text("{ not json")
    with pytest.raises(ConversionError, match=r"config\.json: is not valid JSON"):
        read_settings(exported)
    (exported / "config.json").unlink()
    with pytest.raises(ConversionError, match=r"config\.json: is missing"):
        read_settings(exported)


def test_weights_of_tensorflow_are_refused_with_the_way_out(exported):
    (exported / WEIGHTS).rename(exported / "tf_model.h5")
    with pytest.raises(ConversionError, match=r"tf_model\.h5.*save_pretrained"):
        import_hf(exported)


def test_a_missing_shard_is_named(tmp_path, tiny, make_source):
    convert_to_hf(make_source(tiny), tmp_path / "out", max_shard_bytes=5_000)
    shard = sorted((tmp_path / "out").glob("model-*.safetensors"))[1]
    content = shard.read_bytes()
    shard.unlink()
    with pytest.raises(ConversionError, match=f"{shard.name}: is missing"):
        import_hf(tmp_path / "out")
    shard.write_bytes(content[: len(content) // 2])
    with pytest.raises(ConversionError, match=f"{shard.name}: cut short"):
        import_hf(tmp_path / "out")


def test_an_index_cannot_point_outside_its_folder(tmp_path, tiny, make_source):
    convert_to_hf(make_source(tiny), tmp_path / "out", max_shard_bytes=5_000)
    path = tmp_path / "out" / "model.safetensors.index.json"
    index = json.loads(path.read_text())
    index["weight_map"]["shared.weight"] = "../elsewhere.safetensors"
    path.write_text(json.dumps(index))
    with pytest.raises(ConversionError, match="outside its folder"):
        import_hf(tmp_path / "out")


def test_a_folder_without_tokenizer_is_refused(exported):
    for name in ("tokenizer_config.json", "special_tokens_map.json"):
        (exported / name).unlink()
    edit_config(exported, tokenizer_class=...)
    with pytest.raises(ConversionError, match=r"no spiece\.model.*--vocabulary"):
        read_settings(exported)


def test_an_embedding_without_rows_is_refused(exported):
    edit_tensors(exported, lambda tensors: tensors.update({"shared.weight": np.asarray(3, np.float32)}))
    with pytest.raises(ConversionError, match="384 ids, but the embedding only 0"):
        import_hf(exported)


def test_a_tokenizer_larger_than_the_embedding_is_refused(exported):
    (exported / "spanloom.json").unlink()
    path = exported / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"extra_ids": 200}))
    with pytest.raises(ConversionError, match="459 ids, but the embedding only 384"):
        read_settings(exported)
