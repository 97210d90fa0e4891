"""Checkpoints of Mesh TensorFlow: names, weights, slots and step."""

import json
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest
from golden_data import golden_dir
from t5x_files import random_weights
from tensor_bundles import write_bundle

from spanloom.cli.main import main
from spanloom.conversion.errors import ConversionError
from spanloom.conversion.mesh_tensorflow import read_arrays
from spanloom.conversion.t5x import open_t5x
from spanloom.conversion.t5x_checkpoint import find, open_checkpoint, steps_in
from spanloom.conversion.t5x_names import from_t5x
from spanloom.model.params import flatten
from spanloom.settings.model import Model

FIRST = Model(
    vocab_size=384, d_model=12, d_ff=20, num_heads=2, d_kv=5, num_encoder_layers=2, num_decoder_layers=1,
    activations=("relu",), tie_embeddings=True,
)  # fmt: skip
NEXT = replace(FIRST, activations=("gelu", "linear"), tie_embeddings=False)
PARTS = {
    "attention/": "layer_000/SelfAttention/",
    "self_attention/": "layer_000/SelfAttention/",
    "encoder_decoder_attention/": "layer_001/EncDecAttention/",
    "pre_attention_layer_norm/": "layer_000/{norm}/",
    "pre_self_attention_layer_norm/": "layer_000/{norm}/",
    "pre_cross_attention_layer_norm/": "layer_001/{norm}/",
}
LETTERS = {"query/kernel": "q", "key/kernel": "k", "value/kernel": "v", "out/kernel": "o"}


def their_name(name: str, norm: str) -> str:
    """Mesh TensorFlow's name, by hand."""
    whole = {
        "token_embedder/embedding": "shared/embedding",
        "decoder/logits_dense/kernel": "decoder/logits/kernel",
        "encoder/relpos_bias/rel_embedding": "encoder/block_000/layer_000/SelfAttention/relative_attention_bias",
        "decoder/relpos_bias/rel_embedding": "decoder/block_000/layer_000/SelfAttention/relative_attention_bias",
    }
    if name in whole:
        return whole[name]
    stack, layer, *rest = name.split("/")
    if layer == f"{stack}_norm":
        return f"{stack}/{'final_layer_norm' if norm == 'layer_norm' else norm}/scale"
    block = f"{stack}/block_{int(layer.removeprefix('layers_')):03d}"
    tail = "/".join(rest)
    last = "layer_001" if stack == "encoder" else "layer_002"
    if tail.startswith(("mlp/", "pre_mlp")):
        kind = tail.replace("mlp/", "DenseReluDense/") if tail.startswith("mlp/") else f"{norm}/scale"
        return f"{block}/{last}/{kind}"
    part = next(part for part in PARTS if tail.startswith(part))
    end = tail.removeprefix(part)
    return f"{block}/{PARTS[part].format(norm=norm)}{LETTERS.get(end, end)}"


@pytest.mark.parametrize(("model", "norm"), [(FIRST, "layer_norm"), (NEXT, "rms_norm")])
@pytest.mark.parametrize("bfloat16", [True, False])
def test_weights_slots_and_step(tmp_path, model, norm, bfloat16):
    weights = random_weights(model, bfloat16=bfloat16)
    variables = {their_name(name.removeprefix("target/"), norm): array for name, array in weights.items()}
    slots = {f"{name}_slot_v": np.ones(array.shape, np.float32) for name, array in variables.items()}
    step = {"global_step": np.asarray(999_900, np.int64)}
    write_bundle(tmp_path / "model.ckpt-999900", variables | slots | step, shards=2)
    for path in (tmp_path, tmp_path / "model.ckpt-999900", tmp_path / "model.ckpt-999900.index"):
        opened = open_t5x(path)
        assert (opened.model, opened.checkpoint.step) == (model, 999_900)
    found = flatten(opened.params())
    for name, array in from_t5x(weights).items():
        np.testing.assert_array_equal(found[name], array.astype(np.float32))
    assert opened.memory().slots["v"].keys() == found.keys()
    assert list(steps_in(tmp_path)) == [999_900]


def test_a_table_in_each_block_is_a_table_a_layer(tmp_path):
    model = replace(NEXT, per_layer_position_bias=True)
    variables = {}
    for name, array in random_weights(model).items():
        name = name.removeprefix("target/")
        if "relpos_bias" in name:
            stack, layer, *_ = name.split("/")
            number = int(layer.removeprefix("layers_"))
            variables[f"{stack}/block_{number:03d}/layer_000/SelfAttention/relative_attention_bias"] = array
        else:
            variables[their_name(name, "rms_norm")] = array
    assert open_t5x(write_bundle(tmp_path / "model.ckpt-1", variables)).model == model


def test_what_no_t5_has_is_named(tmp_path):
    for name in ("transformer/block_000/layer_000/SelfAttention/q", "encoder/block_000/layer_000/Switch/q", "x_slot_q"):
        with pytest.raises(ConversionError, match=f"holds {name}, which is no variable"):
            read_arrays(write_bundle(tmp_path / "model.ckpt-1", {name: np.zeros(3, np.float32)}))


def test_it_is_converted_and_its_gin_file_read(tmp_path, capsys):
    weights = random_weights(FIRST, bfloat16=True)
    variables = {their_name(name.removeprefix("target/"), "layer_norm"): array for name, array in weights.items()}
    write_bundle(tmp_path / "m" / "model.ckpt-5", variables)
    (tmp_path / "m" / "operative_config.gin").write_text("DenseReluDense.activation = 'silu'\n")
    assert open_t5x(tmp_path / "m").model.activations == ("silu",)
    assert main(["convert", str(tmp_path / "m" / "model.ckpt-5"), str(tmp_path / "hf"), "--to", "hf"]) == 0
    assert "weights equal to the last bit" in capsys.readouterr().out
    assert json.loads((tmp_path / "hf" / "config.json").read_text())["feed_forward_proj"] == "silu"


@pytest.mark.golden
def test_golden_checkpoints_to_the_last_bit():
    folder = golden_dir("t5x", "checkpoints")
    facts = json.loads((folder / "checkpoints.json").read_text())
    names = [name for name, fact in facts.items() if fact.get("format", "").startswith("Mesh")]
    assert len(names) >= 2
    for name in names:
        checkpoint = open_checkpoint(find(folder / name))
        assert checkpoint.step == facts[name]["step"]
        found = {f"target/{one}": array for one, array in checkpoint.weights.items()}
        found |= {f"state/param_states/{one}": array for one, array in checkpoint.slots.items()}
        wanted = dict(np.load(folder / name / "expected.npz"))
        del wanted["state/step"]
        assert found.keys() <= wanted.keys()
        for one, array in wanted.items():
            if one not in found:  # a slot that the checkpoint lacks
                np.testing.assert_array_equal(array, np.zeros(1, np.float32))
                continue
            ours = found[one].read()
            assert ours.dtype in (np.float32, ml_dtypes.bfloat16)
            assert ours.shape == array.shape and ours.astype(np.float32).tobytes() == array.tobytes(), f"{name}: {one}"
        config, model = facts[name]["T5Config"], open_t5x(folder / name).model
        assert (model.vocab_size, model.d_model, model.d_ff, model.num_heads, model.d_kv) == tuple(
            config[field] for field in ("vocab_size", "emb_dim", "mlp_dim", "num_heads", "head_dim")
        )
        assert model.activations == tuple(config["mlp_activations"])
        assert model.tie_embeddings == config["logits_via_embedding"]
