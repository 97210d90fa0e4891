import json
from dataclasses import replace

import jax
import numpy as np
import pytest
from same_weights import different_weights
from t5x_files import random_weights, write_t5x
from tiny_training import tiny_run

from spanloom.cli.main import main
from spanloom.conversion.convert import model_from_hf
from spanloom.conversion.t5x import open_t5x
from spanloom.conversion.t5x_places import Layout
from spanloom.model.params import declare, initialize
from spanloom.model.sizes import named
from spanloom.optim.build import build
from spanloom.settings.run import Checkpoints
from spanloom.training.checkpoints import CheckpointWriter
from spanloom.training.facts import Facts
from spanloom.training.inspected import inspect
from spanloom.training.state import fresh_state

BYTES = replace(named("byt5_tiny"), d_model=12, num_decoder_layers=3, name="custom")


def table(capsys) -> dict[str, str]:
    lines = capsys.readouterr().out.splitlines()
    return dict(line.split("  ", 1) for line in lines if "  " in line and not line.startswith("note"))


@pytest.fixture
def google(tmp_path):
    """A scanned T5X checkpoint of a byte model whose first sentinel was 258."""
    weights = random_weights(BYTES, Layout(scanned=True, heads_apart=True))
    weights["target/token_embedder/embedding"][258] += 30
    weights["state/step"] = np.asarray(1_000_000, np.int32)
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.gin").write_text("T5Config.mlp_activations = ('gelu', 'linear')")
    return write_t5x(tmp_path / "model" / "checkpoint_1000000", weights, inline=lambda name: name == "state/step")


def test_a_checkpoint_of_t5x(google, capsys):
    assert main(["inspect", str(google.parent)]) == 0
    found = {name: value.strip() for name, value in table(capsys).items()}
    assert found["format"] == "T5X, msgpack and zarr, scanned layers"
    assert found["layers"] == "2 encoder, 3 decoder"
    assert found["step"] == "1,000,000"
    assert found["optimizer"] == "none"
    assert found["sentinels"].startswith("google: 11 ids, 258, 257, 256, ...")
    assert main(["inspect", str(google), "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["embedding rows"] == "384"
    assert (data["weights"], data["trained of them"]) == ("float32", "not told by the weights")
    assert data["size on disk"].endswith(" MiB") and float(data["size on disk"].split()[0]) > 0
    assert any("258 downwards" in note for note in data["notes"])


def test_converted_from_t5x_it_is_the_same_model(google, tmp_path, capsys):
    """Weights to the last bit, sentinels as they were trained; then inspected as a Hugging Face folder."""
    assert main(["convert", str(google), str(tmp_path / "hf"), "--to", "hf"]) == 0
    assert "weights equal to the last bit" in capsys.readouterr().out
    opened = open_t5x(google)
    assert not different_weights(opened.params(), model_from_hf(tmp_path / "hf").params)
    rows = dict(inspect(tmp_path / "hf").rows)
    assert rows["format"] == "Hugging Face"
    assert rows["step"] == "1,000,000"
    assert (rows["weights"], rows["size on disk"]) == ("float32", "0.1 MiB")
    assert rows["sentinels"].startswith("google: 11 ids")


def test_one_of_our_own(tmp_path, capsys):
    run = tiny_run(tmp_path / "text.txt", 100).resolve()
    writer = CheckpointWriter(tmp_path / "run" / "checkpoints", Checkpoints(), {})
    params = initialize(declare(run.model), jax.random.key(3))
    state = fresh_state(params, build(run.optimizer, run.schedule, declare(run.model)))
    writer.save(state, Facts(5, {"examples": 20}, run, {"spanloom": "0"}))
    writer.close()
    assert main(["inspect", str(tmp_path / "run")]) == 0
    found = {name: value.strip() for name, value in table(capsys).items()}
    assert (found["format"], found["step"]) == ("Spanloom 0", "5")
    count = len(jax.tree.leaves(params))
    assert found["optimizer"] == f"AdamW: mu of {count}, nu of {count} parameters"
    assert found["sentinels"] == "huggingface: 125 ids, 259, 260, 261, ..."
    assert found["run"] == "tiny, learnt lines"
    assert found["trained of them"] == "the first 2, which is what this run used of them"
    assert found["size on disk"].endswith(" MiB")


def test_nothing_is_written_of_a_damaged_checkpoint(google, tmp_path, capsys):
    chunk = google / "target.token_embedder.embedding" / "1.1"
    content = bytearray(chunk.read_bytes())
    content[len(content) // 2] ^= 1
    chunk.write_bytes(content)
    for command in (["inspect"], ["convert", "--to", "hf"]):
        destination = [str(tmp_path / "hf")] if command[0] == "convert" else []
        assert main([command[0], str(google), *destination, *command[1:]]) == 1
        assert str(chunk) in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model"]


def test_a_vocabulary_for_what_has_one(google, tmp_path, capsys):
    assert main(["convert", str(google), str(tmp_path / "hf"), "--to", "hf"]) == 0
    assert main(["inspect", str(tmp_path / "hf"), "--vocabulary", "bytes"]) == 1
    assert "has a vocabulary of its own" in capsys.readouterr().err
