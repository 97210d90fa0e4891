"""Each family of released models by a small stand-in, as Hugging Face has it and as T5X laid it out.

Fields of config.json and names of tensors are those of the releases; sizes are small, no two alike, and heads times
their width are not the model's.
"""

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from conversion.conftest import random_batch, random_params
from safetensors.numpy import load_file, save_file
from same_weights import different_weights
from t5x_files import write_t5x
from tiny_training import write_vocabulary
from torch_files import write_torch

from spanloom.conversion.hf_weights import write_weights
from spanloom.conversion.huggingface import import_hf, write_folder
from spanloom.conversion.stored_model import as_stored
from spanloom.conversion.t5x import model_from_t5x
from spanloom.conversion.t5x_places import Layout, places
from spanloom.conversion.trained_model import Lineage, TrainedModel
from spanloom.conversion.weights import in_memory
from spanloom.model.params import T5, flatten
from spanloom.model.t5 import forward
from spanloom.settings.model import Model
from spanloom.settings.vocabulary import Bytes, SentencePiece
from spanloom.vocabularies.build import build

PADDING = 17  # rows beyond the vocabulary, as releases have 28, 12, 84
BASE = Model(
    vocab_size=384, d_model=24, d_ff=40, num_heads=3, d_kv=10, num_encoder_layers=2, num_decoder_layers=2, dropout=0.1
)  # fmt: skip
JOINED = Layout()
NEVER_USED = "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"
COPIES = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight")
T5_1_1 = {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False, "model_type": "t5"}
MT5 = T5_1_1 | {"model_type": "mt5", "tokenizer_class": "T5Tokenizer"}


@dataclass(frozen=True)
class Family:
    """How a family was released."""

    config: dict[str, Any]
    model: dict[str, Any] = field(default_factory=dict)
    extra_ids: int | None = 100
    also: tuple[str, ...] = ()
    pytorch: bool = False
    layout: Layout = JOINED
    gin: str = "T5Config.mlp_activations = ('gelu', 'linear')"


FAMILIES = {
    "t5_1_0": Family(
        {"model_type": "t5", "n_positions": 512, "output_past": True, "task_specific_params": {}},
        {"activations": ("relu",), "tie_embeddings": True},
        also=(NEVER_USED, *COPIES, "lm_head.weight"),
        pytorch=True,
        gin="encoder/DenseReluDense.activation = 'relu'\ndecoder/DenseReluDense.activation = 'relu'",
    ),
    "t5_1_0, safetensors": Family(
        {"model_type": "t5"}, {"activations": ("relu",), "tie_embeddings": True}, also=(NEVER_USED,),
        gin="T5Config.mlp_activations = ('relu',)",
    ),
    "t5_1_1": Family(T5_1_1, also=COPIES, pytorch=True),
    "lm_adapted": Family(T5_1_1 | {"gradient_checkpointing": False}, also=COPIES, pytorch=True),
    "flan_t5": Family(T5_1_1 | {"n_positions": 512, "output_past": True}, also=COPIES),
    "t0": Family(T5_1_1 | {"gradient_checkpointing": False, "use_cache": True}, also=COPIES, pytorch=True),
    "mt5": Family(MT5 | {"tokenizer_class": "T5Tokenizer"}, also=COPIES, pytorch=True),
    "mt0": Family(MT5 | {"dense_act_fn": "gelu_new", "is_gated_act": True, "torch_dtype": "float32"}, also=COPIES),
    "umt5": Family(
        T5_1_1 | {"model_type": "umt5", "scalable_attention": True, "dense_act_fn": "gelu_new", "is_gated_act": True},
        {"per_layer_position_bias": True},
        extra_ids=300,
        layout=Layout(scanned=True, heads_apart=True),
    ),
    "ul2": Family(
        T5_1_1 | {"feed_forward_proj": "gated-silu", "dense_act_fn": "silu", "is_gated_act": True},
        {"activations": ("silu", "linear")},
        pytorch=True,
        gin="T5Config.mlp_activations = ('swish', 'linear')",
    ),
    "byt5": Family(
        T5_1_1 | {"tokenizer_class": "ByT5Tokenizer", "gradient_checkpointing": False},
        {"num_encoder_layers": 4, "num_decoder_layers": 1, "vocab_size": 384},
        extra_ids=None,
        also=COPIES,
        pytorch=True,
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def spiece(tmp_path_factory) -> Path:
    return write_vocabulary(tmp_path_factory.mktemp("vocabulary") / "spiece.model")


def make(folder: Path, name: str, spiece: Path) -> tuple[Model, T5]:
    """A folder as the family was released, with the model and the weights that are in it."""
    family = FAMILIES[name]
    model = replace(BASE, **family.model)
    tokenizer: dict[str, Any] = {"tokenizer_class": "ByT5Tokenizer", "extra_ids": 125}
    folder.mkdir()
    if family.extra_ids is not None:
        (folder / "spiece.model").write_bytes(spiece.read_bytes())
        tokenizer = {"tokenizer_class": "T5Tokenizer", "extra_ids": family.extra_ids}
        size = build(SentencePiece(str(spiece), "appended", family.extra_ids)).size
        model = replace(model, vocab_size=size + PADDING)
    sizes = {
        "vocab_size": model.vocab_size, "d_model": model.d_model, "d_ff": model.d_ff, "d_kv": model.d_kv,
        "num_heads": model.num_heads, "num_layers": model.num_encoder_layers, "relative_attention_num_buckets": 32,
        "dropout_rate": 0.1, "layer_norm_epsilon": 1e-06, "is_encoder_decoder": True, "initializer_factor": 1.0,
        "pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 0, "architectures": ["X"],
    }  # fmt: skip
    if model.num_decoder_layers != model.num_encoder_layers:
        sizes["num_decoder_layers"] = model.num_decoder_layers
    (folder / "config.json").write_text(json.dumps(sizes | family.config))
    (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer))
    params = random_params(model, sum(map(ord, name)))
    write_weights(folder, model, in_memory(params, "params"))
    tensors = load_file(folder / "model.safetensors")
    for also in family.also:
        tensors[also] = np.ones((32, 3), np.float32) if also == NEVER_USED else tensors["shared.weight"].copy()
    (folder / "model.safetensors").unlink()
    if family.pytorch:
        write_torch(folder / "pytorch_model.bin", tensors)
    else:
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return model, params


def in_t5xs_layout(array: np.ndarray, axes: tuple[str, ...], model: Model, layout: Layout) -> np.ndarray:
    """Of a stacked array of ours, or of a layer of it."""
    if layout.heads_apart and "kv" in axes:
        at = (
            axes.index("heads") if "layers" not in axes else [one for one in axes if one != "layers"].index("heads") + 1
        )
        array = array.reshape(*array.shape[:at], model.num_heads, model.d_kv, *array.shape[at + 1 :])
    return np.moveaxis(array, 0, axes.index("layers")) if "layers" in axes else array


@pytest.mark.parametrize("name", FAMILIES)
def test_each_family_is_read_as_what_it_is_and_keeps_every_row(tmp_path, spiece, name):
    family = FAMILIES[name]
    model, params = make(tmp_path / "hf", name, spiece)
    read = import_hf(tmp_path / "hf")
    assert replace(read.model, name="custom") == model
    assert different_weights(read.params, params) == []
    if family.extra_ids is None:
        assert isinstance(read.vocabulary, Bytes)
    else:
        assert read.vocabulary == SentencePiece(str(tmp_path / "hf" / "spiece.model"), "appended", family.extra_ids)
        assert build(read.vocabulary).size + PADDING == model.vocab_size

    (tmp_path / "again").mkdir()
    source = TrainedModel(read.model, read.params, read.vocabulary, Lineage("x"))
    write_folder(tmp_path / "again", as_stored(source), name="x")
    again = import_hf(tmp_path / "again")
    assert again.model == read.model
    assert different_weights(again.params, params) == []

    flat = flatten(params)
    arrays = {}
    for place in places(model, family.layout):
        array = flat[place.ours] if place.layer is None else flat[place.ours][place.layer]
        arrays[f"target/{place.name}"] = in_t5xs_layout(array, place.axes, model, family.layout)
    write_t5x(tmp_path / "t5x" / "checkpoint_9", arrays, inline=lambda name: True)
    (tmp_path / "t5x" / "operative_config.gin").write_text(family.gin)
    named = "bytes" if family.extra_ids is None else str(spiece)
    theirs = model_from_t5x(tmp_path / "t5x", vocabulary=named)
    assert replace(theirs.model, name="custom", dropout=0.1) == model
    assert different_weights(theirs.params, params) == []


@pytest.mark.parity
def test_each_family_gives_transformers_logits(tmp_path, spiece, hugging_face):
    models = {name: make(tmp_path / name, name, spiece)[0] for name in FAMILIES}
    batches = {name: random_batch(model, 3, inputs=40, targets=12) for name, model in models.items()}
    report, theirs = hugging_face(tmp_path, {name: {"folder": str(tmp_path / name)} for name in models}, batches)
    logits = jax.jit(forward, static_argnums=1)  # most differ in their files alone, and are compiled once
    differences = {}
    for name, batch in batches.items():
        read = import_hf(tmp_path / name)
        ours = np.asarray(logits(read.params, replace(read.model, dropout=0.0, name="custom"), batch))
        differences[name] = float(np.abs(ours - theirs[name]["logits"])[batch["decoder_target_tokens"] > 0].max())
        assert ours.shape[-1] == models[name].vocab_size
    print(f"transformers {report['transformers']}: largest difference of logits {differences}")
    assert {name: one for name, one in differences.items() if not one <= 1e-4} == {}
