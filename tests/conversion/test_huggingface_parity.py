"""transformers, in a process of its own, gives our logits from exported folders."""

import json
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest
from conversion.conftest import random_batch, random_params
from golden_data import golden_dir
from model_hub import TOKEN, model_hub
from same_weights import different_weights

from spanloom.conversion.convert import convert_to_hf
from spanloom.conversion.huggingface import import_hf, write_folder
from spanloom.conversion.stored_model import as_stored
from spanloom.conversion.t5x_names import from_t5x, model_settings, to_t5x
from spanloom.conversion.trained_model import Lineage, TrainedModel
from spanloom.model.params import flatten, unflatten
from spanloom.model.t5 import forward
from spanloom.settings.model import Model
from spanloom.settings.vocabulary import Bytes

pytestmark = pytest.mark.parity

ATOL = 1e-4
FORWARD = jax.jit(forward, static_argnums=1)
BASE = Model(vocab_size=384, d_model=48, d_ff=96, num_heads=3, d_kv=24, num_encoder_layers=3, num_decoder_layers=2)
MODELS = {
    "t5_1_0": replace(BASE, activations=("relu",), tie_embeddings=True, name="t5_x"),
    # its LM-adapted form, T0 and FLAN-T5 are the same model
    "t5_1_1": replace(BASE, num_decoder_layers=3, name="t5_1_1_x"),
    "ul2": replace(BASE, activations=("silu", "linear"), name="ul2_x"),
    "byt5": replace(BASE, num_encoder_layers=4, num_decoder_layers=1, name="byt5_x"),
    "mt5": replace(BASE, vocab_size=512, name="mt5_x"),
    "umt5": replace(BASE, per_layer_position_bias=True, name="umt5_x"),
    "tied_gelu": replace(BASE, tie_embeddings=True, name="mt5_tied"),
    "tied_umt5": replace(BASE, tie_embeddings=True, per_layer_position_bias=True),
    "relu_untied": replace(BASE, activations=("relu",)),
    "gated_relu": replace(BASE, activations=("relu", "linear")),
    "gelu": replace(BASE, activations=("gelu",)),
    "other_buckets": replace(BASE, relative_position_buckets=16, relative_position_max_distance=64),
    "other_epsilon": replace(BASE, norm_epsilon=1e-5),
}


def our_logits(source: TrainedModel, batch: dict[str, np.ndarray]) -> np.ndarray:
    return np.asarray(FORWARD(source.params, source.model, batch))


def largest_slip(source: TrainedModel, batch: dict[str, np.ndarray], written_BxT: np.ndarray) -> float:
    """By how much the tokens that were written, start token first, fall behind the likeliest ones by our logits."""
    assert (written_BxT[:, 0] == 0).all() and (written_BxT[:, 1:] > 0).any()
    told = {
        "encoder_input_tokens": batch["encoder_input_tokens"],
        "decoder_input_tokens": written_BxT[:, :-1].astype(np.int32),
        "decoder_target_tokens": written_BxT[:, 1:].astype(np.int32),
    }
    logits_BxTxV = our_logits(source, told)
    picked_BxT = np.take_along_axis(logits_BxTxV, written_BxT[:, 1:, None], axis=-1)[..., 0]
    ended_BxT = np.cumsum(written_BxT[:, :-1] == 1, axis=1) > 0
    masked_BxT = np.cumsum(written_BxT[:, 1:] == 0, axis=1) > 0  # 0 is padding to us, which ends what can be compared
    slip_BxT = logits_BxTxV.max(-1) - picked_BxT
    return float(np.where(ended_BxT | masked_BxT, 0, slip_BxT).max())


def largest(first: np.ndarray, second: np.ndarray, batch: dict[str, np.ndarray]) -> float:
    return float(np.abs(first - second)[batch["decoder_target_tokens"] > 0].max())


def test_every_shape_of_model_gives_our_logits(tmp_path, hugging_face):
    sources = {
        f"{name}-{seed}": TrainedModel(model, random_params(model, seed), Bytes(), Lineage("x"))
        for name, model in MODELS.items()
        for seed in (0, 1)
    }
    batches = {name: random_batch(source.model, number) for number, (name, source) in enumerate(sources.items())}
    for name, source in sources.items():
        convert_to_hf(source, tmp_path / name, max_shard_bytes=100_000 if name.endswith("-1") else None)
    cases = {name: {"folder": str(tmp_path / name), "write": name.endswith("-0")} for name in sources}
    report, theirs = hugging_face(tmp_path, cases, batches)
    differences = {
        name: largest(our_logits(source, batches[name]), theirs[name]["logits"], batches[name])
        for name, source in sources.items()
    }
    slips = {
        name: largest_slip(sources[name], batches[name], found["written"])
        for name, found in theirs.items()
        if "written" in found
    }
    print(f"transformers {report['transformers']}: largest difference of logits {differences}")
    assert {name: d for name, d in differences.items() if not d <= ATOL} == {}
    assert len(slips) == len(MODELS)
    assert {name: d for name, d in slips.items() if not d <= ATOL} == {}, "generate writes the likeliest tokens"
    assert {name: report[name]["loading"] for name in sources if report[name]["loading"]} == {}


def test_what_transformers_saves_again_is_read_as_the_same_model(tmp_path, hugging_face):
    """transformers 5 writes tie_word_embeddings: true into the config of an untied model; we do not fall for it."""
    names = ("t5_1_0", "t5_1_1", "mt5", "umt5", "tied_umt5")
    sources = {
        name: TrainedModel(MODELS[name], random_params(MODELS[name], 7), Bytes(), Lineage("x")) for name in names
    }
    batches = {name: random_batch(source.model, 7) for name, source in sources.items()}
    for name, source in sources.items():
        convert_to_hf(source, tmp_path / name)
    cases = {name: {"folder": str(tmp_path / name), "resave": str(tmp_path / f"{name}-again")} for name in names}
    report, _ = hugging_face(tmp_path, cases, batches)
    for name, source in sources.items():
        config = json.loads((tmp_path / f"{name}-again" / "config.json").read_text())
        said = config.get("tie_word_embeddings", True)  # transformers 4 leaves out what is as usual
        of_five = report["transformers"].startswith("5.")
        assert said is (of_five or source.model.tie_embeddings), "as the card says"
        read = import_hf(tmp_path / f"{name}-again")
        assert different_weights(source.params, read.params) == [], name
        assert read.model.tie_embeddings == source.model.tie_embeddings
        again = TrainedModel(read.model, read.params, read.vocabulary, Lineage("x"))
        assert largest(our_logits(source, batches[name]), our_logits(again, batches[name]), batches[name]) == 0


def test_sharded_bfloat16_weights_give_the_logits_of_these_weights(tmp_path, hugging_face):
    names = ("t5_1_0", "t5_1_1", "mt5", "byt5", "umt5", "ul2")
    read, batches = {}, {}
    for name in names:
        source = TrainedModel(MODELS[name], random_params(MODELS[name], 3), Bytes(), Lineage("x"))
        convert_to_hf(source, tmp_path / name, max_shard_bytes=50_000, dtype="bfloat16")
        assert len(list((tmp_path / name).glob("model-*-of-*.safetensors"))) > 1
        found = import_hf(tmp_path / name)
        assert any("BF16" in note for note in found.notes)
        read[name] = TrainedModel(found.model, found.params, found.vocabulary, Lineage("x"))
        batches[name] = random_batch(source.model, 3)
    report, theirs = hugging_face(tmp_path, {name: {"folder": str(tmp_path / name)} for name in names}, batches)
    for name in names:
        assert report[name]["loading"] == {}
        assert largest(our_logits(read[name], batches[name]), theirs[name]["logits"], batches[name]) <= ATOL, name


def test_what_was_pushed_is_loaded_by_its_name(tmp_path, hugging_face):
    source = TrainedModel(MODELS["byt5"], random_params(MODELS["byt5"], 4), Bytes(sentinels="google"), Lineage("x"))
    convert_to_hf(source, tmp_path / "out", max_shard_bytes=100_000)
    batch = random_batch(source.model, 4)
    with model_hub() as hub:
        files = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
        hub.put("me/byt5", files, private=True)
        cases = {"byt5": {"folder": "me/byt5", "texts": ["Thank you <extra_id_0> me"]}}
        where = {"HF_ENDPOINT": hub.address, "HF_TOKEN": TOKEN, "HF_HUB_OFFLINE": "0", "HF_HUB_DISABLE_XET": "1"}
        report, theirs = hugging_face(tmp_path, cases, {"byt5": batch}, HF_HOME=str(tmp_path / "home"), **where)
        assert hub.count("GET /me/byt5/resolve/.*safetensors") > 1
    assert largest(our_logits(source, batch), theirs["byt5"]["logits"], batch) <= ATOL
    assert report["byt5"]["sentinel"] == 258 and 258 in report["byt5"]["ids"][0]


def golden_cases() -> dict[str, Path]:
    folders = sorted(golden_dir("t5x", "models").iterdir())
    return {folder.name: folder for folder in folders if (folder / "forward.npz").is_file()}


def golden_source(folder: Path) -> tuple[TrainedModel, dict]:
    config = json.loads((folder / "config.json").read_text())
    fixed = {
        ours: config[theirs]
        for ours, theirs in (
            ("relative_position_buckets", "relative_attention_num_buckets"),
            ("relative_position_max_distance", "relative_attention_max_distance"),
            ("norm_epsilon", "layer_norm_epsilon"),
        )
        if theirs in config
    }
    model = model_settings(config["T5Config"], network=config["network"], name=f"{folder.name}_x", **fixed)
    with np.load(folder / "params.npz") as params:
        flat = from_t5x(dict(params))
    return TrainedModel(model, unflatten(model, flat), Bytes(), Lineage("golden")), config


def check_golden(tmp_path: Path, hugging_face, folders: dict[str, Path]) -> None:
    sources = {name: golden_source(folder) for name, folder in folders.items()}
    batches, expected = {}, {}
    for name, folder in folders.items():
        with np.load(folder / "forward.npz") as arrays:
            fields = ("encoder_input_tokens", "decoder_target_tokens", "decoder_input_tokens")
            batches[name] = {field: arrays[f"padded/{field}"] for field in fields}
            expected[name] = arrays["padded/logits"]
        (tmp_path / name).mkdir()
        # not through convert_to_hf: golden models may have fewer rows than any vocabulary has ids
        write_folder(tmp_path / name, as_stored(sources[name][0]), name="golden")
    _, theirs = hugging_face(tmp_path, {name: {"folder": str(tmp_path / name)} for name in folders}, batches)
    for name, (source, config) in sources.items():
        to_golden = largest(expected[name], theirs[name]["logits"], batches[name])
        to_ours = largest(our_logits(source, batches[name]), theirs[name]["logits"], batches[name])
        print(f"{name}: transformers differs from T5X by {to_golden:.1e}, from us by {to_ours:.1e}")
        assert to_golden <= config["tolerances"]["logits_atol"], name
        assert to_ours <= ATOL, name


@pytest.mark.golden
def test_golden_models_give_t5xs_logits_in_transformers(tmp_path, hugging_face):
    folders = golden_cases()
    assert folders
    check_golden(tmp_path, hugging_face, folders)


def test_a_case_of_its_own_goes_through_the_golden_code(tmp_path, hugging_face):
    model = replace(BASE, name="own", num_encoder_layers=1)
    source = TrainedModel(model, random_params(model, 5), Bytes(), Lineage("own"))
    batch = random_batch(model, 5)
    folder = tmp_path / "golden" / "own"
    folder.mkdir(parents=True)
    np.savez(folder / "params.npz", **to_t5x(model, flatten(source.params), scanned=False))
    logits = our_logits(source, batch)
    np.savez(folder / "forward.npz", **{f"padded/{k}": v for k, v in {**batch, "logits": logits}.items()})
    t5_config = {
        "vocab_size": 384,
        "emb_dim": 48,
        "num_heads": 3,
        "head_dim": 24,
        "num_encoder_layers": 1,
        "num_decoder_layers": 2,
        "mlp_dim": 96,
        "mlp_activations": ["gelu", "linear"],
        "logits_via_embedding": False,
        "dtype": "float32",
        "dropout_rate": 0.0,
    }
    (folder / "config.json").write_text(
        json.dumps({"network": "t5", "T5Config": t5_config, "tolerances": {"logits_atol": 1e-4}})
    )
    work = tmp_path / "work"
    work.mkdir()
    check_golden(work, hugging_face, {"own": folder})
