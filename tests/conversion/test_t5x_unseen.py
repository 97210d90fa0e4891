"""What weights do not show: said by a gin file or the user, or known of a released model, and never guessed."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from t5x_files import random_weights, write_t5x

from spanloom.cli.main import main
from spanloom.conversion.errors import ConversionError
from spanloom.conversion.t5x import model_from_t5x, open_t5x
from spanloom.conversion.t5x_architecture import architecture
from spanloom.conversion.t5x_places import Layout, places
from spanloom.conversion.t5x_unseen import complete, parse_activations
from spanloom.model.sizes import SIZES
from spanloom.model.sizes import named as size
from spanloom.recipes._start import model_and_vocabulary
from spanloom.settings.model import Model
from spanloom.settings.serialize import SettingsError

MODEL = Model(
    vocab_size=390, d_model=12, d_ff=20, num_heads=2, d_kv=5, num_encoder_layers=3, num_decoder_layers=2
)  # fmt: skip
PLAIN = replace(MODEL, activations=("relu",))
GIN = """
# Parameters for network.T5Config:
WIDTH = 12
network.T5Config:
network.T5Config.emb_dim = %WIDTH
t5x.examples.t5.network.T5Config.mlp_activations = \\
    ('silu',
     'linear')  # the gate
T5Config.num_heads = 2  # "two"
T5Config.dtype = %ACTIVATION_DTYPE
seqio.SentencePieceVocabulary.sentencepiece_model_file = "gs://bucket/spiece.model"
"""


@pytest.fixture
def gated(tmp_path):
    return write_t5x(tmp_path / "checkpoint_5", random_weights(MODEL), inline=lambda name: True)


def test_activations_are_those_of_the_gin_file(tmp_path, gated):
    (tmp_path / "config.gin").write_text(GIN)
    opened = open_t5x(gated)
    assert (opened.model, opened.activations_known) == (replace(MODEL, activations=("silu", "linear")), True)
    assert opened.notes == ()
    assert opened.gin.vocabulary_files == ("gs://bucket/spiece.model",)


def test_a_mark_of_the_byte_order_hides_no_line(tmp_path, gated):
    (tmp_path / "config.gin").write_text("T5Config.mlp_activations = ('silu', 'linear')\n", encoding="utf-8-sig")
    assert open_t5x(gated).model.activations == ("silu", "linear")


@pytest.mark.parametrize("kind", [MODEL, PLAIN], ids=["gate", "none"])
def test_activations_that_nothing_shows_are_an_error_that_names_the_ways_out(tmp_path, kind):
    path = write_t5x(tmp_path / "checkpoint_5", random_weights(kind), inline=lambda name: True)
    with pytest.raises(ConversionError, match=r"--activations .*or put a file config\.gin beside it, with the line"):
        model_from_t5x(path, vocabulary="bytes")
    with pytest.raises(SettingsError, match=r"--start: .*not known.*config\.gin"):
        model_and_vocabulary(str(path))
    for given in kind.activations, ("silu", "linear")[: len(kind.activations)]:
        assert model_from_t5x(path, vocabulary="bytes", activations=given).model.activations == given
    (tmp_path / "config.gin").write_text(f"T5Config.mlp_activations = {kind.activations}")  # the line of the error
    assert model_from_t5x(path, vocabulary="bytes").model.activations == kind.activations


def test_the_flag_of_convert_and_inspect(gated, tmp_path, capsys):
    arguments = [str(gated), str(tmp_path / "hf"), "--to", "hf", "--vocabulary", "bytes"]
    assert main(["convert", *arguments]) == 1
    assert "--activations gelu,linear" in capsys.readouterr().err
    assert main(["inspect", str(gated), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["activations"].startswith("not known")
    assert main(["inspect", str(gated), "--activations", "swish,linear"]) == 0
    assert "silu x linear" in capsys.readouterr().out
    assert main(["convert", *arguments, "--activations", "silu,linear"]) == 0
    assert json.loads((tmp_path / "hf" / "config.json").read_text())["feed_forward_proj"] == "gated-silu"
    capsys.readouterr()
    assert main(["inspect", str(tmp_path / "hf"), "--activations", "relu"]) == 1
    assert "has activations of its own: leave out --activations" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "message"),
    [("gelu", "a gate .*give two"), ("gelu,", "one or two of gelu"), ("tanh,linear", "one or two of gelu")],
)
def test_activations_that_cannot_be(gated, given, message):
    with pytest.raises(ConversionError, match=message):
        open_t5x(gated, activations=parse_activations(given))


def test_a_released_model_is_known_by_its_sizes():
    """UL2's gate is another than T5's, which nothing but its sizes shows."""
    for name, known in SIZES.items():
        shapes = {place.name: place.shape for place in places(known, Layout())}
        model, _ = architecture(shapes, Path(name))
        completed = complete(model, None, Path(name))
        assert completed.activations_known
        assert completed.model == replace(known, name="custom"), name
        other = complete(replace(model, d_ff=16_001), None, Path(name))
        assert not other.activations_known
    assert complete(architecture(_shapes(size("ul2_20b")), Path())[0], None, Path()).model.activations[0] == "silu"


def _shapes(model: Model) -> dict[str, tuple[int, ...]]:
    return {place.name: place.shape for place in places(model, Layout())}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("T5Config.num_heads = 4", "says num_heads = 4, but the weights beside it show 2"),
        ("T5Config.logits_via_embedding = True", "logits_via_embedding = True"),
        ("T5Config.mlp_activations = ('relu',)", "the weights have 2"),
        ("T5Config.mlp_activations = ('tanh', 'linear')", "silu"),
        ("RelativePositionBiases.num_buckets = 64", "says num_buckets = 64, but the weights beside it show 32"),
        ("RelativePositionBiases.max_distance = 16", "max_distance = 16; more than half of the 32 buckets"),
        ("relative_position_biases.RelativePositionBiases.max_distance = 0", "max_distance = 0; a positive"),
        ("layers.LayerNorm.epsilon = 2.5", r"epsilon = 2\.5; a number from 0 to 1"),
        ("encoder/LayerNorm.epsilon = 1e-5\ndecoder/LayerNorm.epsilon = 1e-6", "one value for both is read"),
    ],
)
def test_a_gin_file_of_another_model_is_an_error(tmp_path, gated, line, message):
    (tmp_path / "config.gin").write_text(line)
    with pytest.raises(ConversionError, match=message) as error:
        open_t5x(gated)
    assert error.value.path == tmp_path / "config.gin"


def test_distance_and_epsilon_of_a_gin_file(tmp_path, gated):
    text = (
        "relative_position_biases.RelativePositionBiases.num_buckets = 32\n"
        "relative_position_biases.RelativePositionBiases.max_distance = 256\n"
        "encoder/sublayer_rms_norm.epsilon = 1e-05\ndecoder/sublayer_rms_norm.epsilon = 1e-05\n"
        "DenseReluDense.activation = ['swish', 'linear']\n"
    )
    (tmp_path / "operative_config.gin").write_text(text)
    wanted = replace(MODEL, activations=("silu", "linear"), relative_position_max_distance=256, norm_epsilon=1e-5)
    assert open_t5x(gated).model == wanted
    (tmp_path / "operative_config.gin").write_text(GIN)
    with pytest.raises(ConversionError, match="silu,linear, and --activations gelu,linear"):
        open_t5x(gated, activations=("gelu", "linear"))
