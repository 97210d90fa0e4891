"""Models from T5X: the architecture from shapes, weights and optimizer in our layout."""

import json
import re
from dataclasses import replace
from pathlib import Path

import jax
import ml_dtypes
import numpy as np
import pytest
from golden_data import golden_dir, shared_dir
from t5x_files import random_weights, write_t5x

from spanloom.conversion.errors import ConversionError
from spanloom.conversion.t5x import OpenedT5X, model_from_t5x, open_t5x
from spanloom.conversion.t5x_names import from_t5x
from spanloom.conversion.t5x_places import Layout, places
from spanloom.conversion.weights import read_whole
from spanloom.model.params import declare, flatten, stack
from spanloom.model.sizes import named as size
from spanloom.optim.adafactor import adafactor
from spanloom.settings.model import Model
from spanloom.settings.optimizer import Adafactor
from spanloom.settings.vocabulary import Bytes, SentencePiece

# more encoder than decoder layers, heads * d_kv unlike d_model, no two sizes alike
MODEL = Model(
    vocab_size=390, d_model=12, d_ff=20, num_heads=2, d_kv=5, num_encoder_layers=3, num_decoder_layers=2
)  # fmt: skip
UMT5 = replace(MODEL, per_layer_position_bias=True)
FIRST = replace(MODEL, activations=("relu",), tie_embeddings=True)
GATE = ("gelu", "linear")
LAYOUTS = [Layout(), Layout(heads_apart=True), Layout(scanned=True), Layout(scanned=True, heads_apart=True)]


def slots_of(opened: OpenedT5X) -> dict[str, dict[str, np.ndarray]]:
    """slot -> our name -> array, layers stacked on axis 0."""
    slots = opened.memory().slots
    return {slot: {name: read_whole(one.weight) for name, one in names.items()} for slot, names in slots.items()}


def inline(name: str) -> bool:
    return True


@pytest.mark.parametrize("model", [MODEL, UMT5, FIRST], ids=["t5_1_1", "umt5", "t5_1_0"])
@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_each_architecture_in_each_layout(tmp_path, model, layout):
    weights = random_weights(model, layout)
    opened = open_t5x(write_t5x(tmp_path / "checkpoint_5", weights, inline=inline))
    assert (opened.model, opened.layout, opened.kept) == (model, layout, None)
    found, wanted = flatten(opened.params()), from_t5x(weights)
    assert found.keys() == wanted.keys()
    for name, array in wanted.items():
        np.testing.assert_array_equal(found[name], array)


def test_published_models_are_known_by_name(tmp_path):
    for name in ("t5_tiny", "byt5_tiny", "t5_1_1_tiny"):
        weights = random_weights(size(name), bfloat16=True)
        opened = open_t5x(write_t5x(tmp_path / name, weights, inline=inline))
        assert opened.model == size(name)
        assert any("bfloat16 were widened" in note for note in opened.notes)
        one = flatten(opened.params())["decoder/decoder_norm/scale"]
        np.testing.assert_array_equal(one, weights["target/decoder/decoder_norm/scale"].astype(np.float32))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"target/encoder/layers_1/mlp/wo/kernel": None}, "lacks encoder/layers_1/mlp/wo/kernel"),
        ({"target/decoder/layers_2/mlp/wo/kernel": np.zeros((20, 12), np.float32)}, "lacks decoder/layers_2/"),
        ({"target/decoder/layers_3/mlp/wo/kernel": np.zeros((20, 12), np.float32)}, "lacks decoder/layers_2, though"),
        ({"target/encoder/layers_1/mlp/wo/kernel": np.zeros((12, 20), np.float32)}, r"has shape \(12, 20\), but the"),
        ({"target/decoder/logits_dense/kernel": np.zeros((12, 389), np.float32)}, r"\(12, 389\).*call for \(12, 390\)"),
        ({"target/encoder/relpos_bias/rel_embedding": np.zeros((3, 32), np.float32)}, "3 heads do not divide"),
        ({"target/encoder/relpos_bias/rel_embedding": None}, "lacks encoder/relpos_bias/rel_embedding"),
        ({"target/token_embedder/embedding": np.zeros((0, 12), np.float32)}, r"has shape \(0, 12\)"),
        ({"target/encoder/prompt/prompt": np.zeros((2, 12), np.float32)}, "holds encoder/prompt/prompt, which no T5"),
        ({"target/decoder/decoder_norm/scale": np.zeros(12, np.int32)}, "decoder_norm/scale is int32"),
        ({"target/encoder/layers_0/attention/query/kernel": np.zeros(10, np.float32)}, "2 or 3 axes"),
    ],
)
def test_a_model_that_does_not_add_up_is_refused(tmp_path, change, message):
    weights = {name: array for name, array in (random_weights(MODEL) | change).items() if array is not None}
    with pytest.raises(ConversionError, match=message):
        open_t5x(write_t5x(tmp_path / "checkpoint_5", weights, inline=inline))


def test_a_decoder_alone_and_weights_that_are_no_numbers(tmp_path):
    weights = random_weights(MODEL)
    alone = {name: array for name, array in weights.items() if "encoder/" not in name.removeprefix("target/")[:8]}
    with pytest.raises(ConversionError, match="a decoder alone"):
        open_t5x(write_t5x(tmp_path / "a", alone, inline=inline))
    weights["target/encoder/encoder_norm/scale"][3] = np.inf
    opened = open_t5x(write_t5x(tmp_path / "b", weights, inline=inline))
    with pytest.raises(ConversionError, match="encoder_norm/scale holds 1 of 12 numbers that are NaN or infinite"):
        opened.params()


# ---- The vocabulary --------------------------------------------------------------------------------------------------


def test_bytes_are_known_by_their_rows_and_sentinels_by_training(tmp_path):
    weights = random_weights(size("byt5_tiny"))
    weights["target/token_embedder/embedding"][258] += 30
    found = model_from_t5x(write_t5x(tmp_path / "checkpoint_5", weights, inline=inline))
    assert found.vocabulary == Bytes(sentinels="google")
    assert found.lineage.step == 5


def test_a_vocabulary_is_named_or_found_or_asked_for(tmp_path):
    path = write_t5x(tmp_path / "checkpoint_5", random_weights(MODEL), inline=inline)
    with pytest.raises(ConversionError, match="give --vocabulary FILE"):
        model_from_t5x(path, activations=GATE)
    assert model_from_t5x(path, vocabulary="bytes", activations=GATE).vocabulary == Bytes()
    with pytest.raises(ConversionError, match="is no file"):
        model_from_t5x(path, vocabulary="nowhere.model", activations=GATE)
    (tmp_path / "my.model").write_bytes(b"no model")
    with pytest.raises(ConversionError, match="is not a SentencePiece model"):
        model_from_t5x(path, activations=GATE)


@pytest.mark.golden
def test_t5s_vocabulary_beside_a_checkpoint(tmp_path):
    spiece = next(shared_dir("data", "tokenizers", "t5").glob("*.model"))
    (tmp_path / "spiece.model").write_bytes(spiece.read_bytes())
    path = write_t5x(tmp_path / "checkpoint_5", random_weights(size("t5_1_1_tiny")), inline=inline)
    found = model_from_t5x(path).vocabulary
    assert found == SentencePiece(str(tmp_path / "spiece.model"), "appended", 100)
    small = write_t5x(tmp_path / "checkpoint_6", random_weights(MODEL), inline=inline)
    with pytest.raises(ConversionError, match="32,100 ids with its sentinels, but the embedding only 390"):
        model_from_t5x(small, activations=GATE)


# ---- The optimizer ---------------------------------------------------------------------------------------------------


def state_of(settings: Adafactor, model: Model, opened: OpenedT5X) -> None:
    """The slots that were read are those, in names and shapes, that our optimizer has with these settings."""
    specs = declare(model)
    params = jax.tree.map(lambda spec: jax.ShapeDtypeStruct(spec.shape, np.float32), specs)
    state = jax.eval_shape(adafactor(settings, lambda step: 1.0, specs).init, params)
    assert opened.kept is not None
    for slot, found in slots_of(opened).items():
        wanted = {name: leaf.shape for name, leaf in getattr(state, slot).items()}
        assert {name: array.shape for name, array in found.items()} == wanted, slot


def slots_for(model: Model, layout: Layout, *, momentum: bool = False) -> dict[str, np.ndarray]:
    draw = np.random.default_rng(1)
    found = {}
    for place in places(model, layout):
        name = f"state/param_states/{place.name}"
        found |= {f"{name}/{slot}": np.zeros(1, np.float32) for slot in ("v_row", "v_col", "m")}
        found[f"{name}/v"] = draw.random(place.shape, np.float32)
        if momentum:
            found[f"{name}/m"] = draw.random(place.shape, np.float32)
    return found


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_slots_lie_as_the_weights_do(tmp_path, layout):
    arrays = random_weights(UMT5, layout) | slots_for(UMT5, layout, momentum=True)
    opened = open_t5x(write_t5x(tmp_path / "checkpoint_5", arrays, inline=inline))
    assert opened.kept.momentum and not opened.kept.factored
    state_of(Adafactor(factored=False, beta1=0.9), UMT5, opened)
    for slot in ("v", "m"):
        theirs = {name.removesuffix(f"/{slot}"): array for name, array in arrays.items() if name.endswith(f"/{slot}")}
        wanted = from_t5x({name.removeprefix("state/param_states/"): array for name, array in theirs.items()})
        found = slots_of(opened)[slot]
        assert found.keys() == wanted.keys()
        for name, array in wanted.items():
            np.testing.assert_array_equal(found[name], array)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"encoder/encoder_norm/scale/v": None}, "has no second moments of encoder/encoder_norm/scale"),
        ({"encoder/encoder_norm/scale/v": np.zeros(13, np.float32)}, r"has shape \(13,\)"),
        ({"encoder/other_norm/scale/v": np.zeros(12, np.float32)}, "other_norm/scale/v, which is no slot of Adafactor"),
        ({"decoder/decoder_norm/scale/m": np.zeros(12, np.float32)}, "momentum for some of its parameters"),
        ({"encoder/encoder_norm/scale/v_row": np.zeros(12, np.float32)}, r"scale/v_row has shape \(12,\)"),
    ],
)
def test_slots_that_do_not_add_up_are_refused(tmp_path, change, message):
    changed = {f"state/param_states/{name}": array for name, array in change.items()}
    arrays = random_weights(MODEL) | slots_for(MODEL, Layout()) | changed
    arrays = {name: array for name, array in arrays.items() if array is not None}
    with pytest.raises(ConversionError, match=message):
        open_t5x(write_t5x(tmp_path / "checkpoint_5", arrays, inline=inline))


def test_of_another_optimizer_the_weights_alone_are_taken(tmp_path):
    arrays = random_weights(MODEL) | {"state/param_states/0/mu/encoder/encoder_norm/scale/nu": np.zeros(12, np.float32)}
    opened = open_t5x(write_t5x(tmp_path / "checkpoint_5", arrays, inline=inline))
    assert opened.kept is None
    assert any("its optimizer is no Adafactor (0/mu/encoder/" in note for note in opened.notes)


# ---- What T5X itself wrote -------------------------------------------------------------------------------------------


def written_by_t5x() -> list[tuple[Path, dict]]:
    folder = golden_dir("t5x", "checkpoints")
    facts = json.loads((folder / "checkpoints.json").read_text())
    return [
        (folder / name, fact) for name, fact in facts.items() if fact.get("format", "").startswith(("T5X", "Orbax"))
    ]


def arrays_of(folder: Path, fact: dict) -> dict[str, np.ndarray]:
    elsewhere = re.search(r"(?<!\S)(\w+/expected\.npz)", fact.get("expected", ""))
    files = [folder.parent / elsewhere[1]] if elsewhere else []
    files += [path for path in [folder / "expected.npz"] if path.exists()]
    return {name: array for file in files for name, array in np.load(file).items()}


@pytest.mark.golden
def test_models_of_t5x_to_the_last_bit():
    for folder, fact in written_by_t5x():
        path = next(path for path in sorted(folder.iterdir()) if "checkpoint_" in path.name)
        opened = open_t5x(path)
        if config := fact["T5Config"]:
            model = opened.model
            assert (model.vocab_size, model.d_model, model.d_ff) == (
                config["vocab_size"], config["emb_dim"], config["mlp_dim"],
            )  # fmt: skip
            assert (model.num_heads, model.d_kv) == (config["num_heads"], config["head_dim"])
            assert model.num_encoder_layers == config["num_encoder_layers"]
            assert model.num_decoder_layers == config["num_decoder_layers"]
            assert model.activations == tuple(config["mlp_activations"])
            assert model.tie_embeddings == config["logits_via_embedding"]
        wanted = arrays_of(folder, fact)
        weights = from_t5x({name: array for name, array in wanted.items() if name.startswith("target/")})
        found = flatten(opened.params())
        for name, array in weights.items():
            assert found[name].tobytes() == array.astype(np.float32).tobytes(), f"{folder.name}: {name}"


@pytest.mark.golden
def test_slots_of_t5x_are_those_of_our_adafactor():
    for folder, fact in written_by_t5x():
        path = next(path for path in sorted(folder.iterdir()) if "checkpoint_" in path.name)
        opened = open_t5x(path)
        known = {"beta1", "factored"}
        settings = Adafactor(**{name: value for name, value in fact["optimizer"].items() if name in known})
        state_of(replace(settings, factor_rules=opened.kept.rules), opened.model, opened)
        ours = slots_of(opened)
        for slot, names in by_slot(arrays_of(folder, fact)).items():
            assert ours[slot].keys() == names.keys()
            for name, array in names.items():
                assert ours[slot][name].tobytes() == array.tobytes(), f"{folder.name}: {slot} of {name}"


def by_slot(arrays: dict[str, np.ndarray]) -> dict[str, dict[str, np.ndarray]]:
    """T5X's slots in use in our layout, made by hand."""
    found: dict[str, dict[str, np.ndarray]] = {"v_row": {}, "v_col": {}, "v": {}, "m": {}}
    for name, array in arrays.items():
        if not name.startswith("state/param_states/") or array.shape == (1,):
            continue
        param, _, slot = name.removeprefix("state/param_states/").rpartition("/")
        if "encoder/encoder/" in param or "decoder/decoder/" in param:
            kind = param.split("/")[-2]
            if slot == "v_row":
                first = 0 if kind in ("out", "wo") else 1
            elif slot == "v_col":
                first = 1 if kind in ("out", "wo") else 0
            else:
                first = 1
            array = np.moveaxis(array, first, 0)
            if kind in ("query", "key", "value", "out") and slot != "v_row":
                inner = (array.shape[1], -1) if kind != "out" and slot != "v_col" else (-1, array.shape[-1])
                array = array.reshape(array.shape[0], *(inner if slot != "v_col" else (-1,)))
            param = param.replace("encoder/encoder/", "encoder/layers/").replace("decoder/decoder/", "decoder/layers/")
        found[slot][param] = array
    return {slot: stack(names) for slot, names in found.items()} if any(found.values()) else {}


def test_bfloat16_slots_are_widened(tmp_path):
    arrays = random_weights(MODEL) | slots_for(MODEL, Layout())
    name = "state/param_states/encoder/encoder_norm/scale/v"
    arrays[name] = arrays[name].astype(ml_dtypes.bfloat16)
    opened = open_t5x(write_t5x(tmp_path / "checkpoint_5", arrays, inline=inline))
    found = slots_of(opened)["v"]["encoder/encoder_norm/scale"]
    np.testing.assert_array_equal(found, arrays[name].astype(np.float32))
