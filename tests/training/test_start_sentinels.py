"""A run whose objective uses sentinels that its start never trained is warned; one that uses trained ones is not."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from t5x_files import write_t5x
from tiny_training import tiny_run, write_vocabulary

from spanloom.conversion.t5x_places import Layout as T5XLayout
from spanloom.conversion.t5x_places import places
from spanloom.model.params import flatten, unflatten
from spanloom.scale.mesh import make_layout
from spanloom.settings.mesh import Mesh
from spanloom.settings.model import Model
from spanloom.settings.objectives import PrefixLM, SpanCorruption, Supervised
from spanloom.settings.task import PairFiles, Task
from spanloom.settings.vocabulary import Bytes, SentencePiece
from spanloom.training.inspected import inspect
from spanloom.training.start import find_start, load_start
from spanloom.training.start_sentinels import untrained_by_rows
from spanloom.vocabularies.build import build

MODEL = Model(
    vocab_size=384, d_model=256, d_ff=8, num_heads=2, d_kv=4, num_encoder_layers=1, num_decoder_layers=1
)  # fmt: skip
BYTES = [ord(letter) + 3 for letter in " abcdefghijklmnopqrstuvwxyz"]
WORDS = "look untrained"


def trained(rows: int, ordinary: list[int], sentinels: list[int], *, tied: bool = False) -> dict[str, np.ndarray]:
    """Weights of T5X whose embedding, and head, are random but for what training moved."""
    draw = np.random.default_rng(0)
    model = dataclasses.replace(MODEL, vocab_size=rows, tie_embeddings=tied, activations=("gelu", "linear"))
    weights = {
        f"target/{one.name}": draw.normal(0, 1, one.shape).astype(np.float32) for one in places(model, T5XLayout())
    }
    for name, axis in (("token_embedder/embedding", 0), ("decoder/logits_dense/kernel", 1)):
        if (array := weights.get(f"target/{name}")) is not None:
            rows_VxE = np.moveaxis(array, axis, 0)
            rows_VxE += draw.normal(0, 3, rows_VxE.shape[1]) if axis else 0
            rows_VxE[[*ordinary, *sentinels]] += draw.normal(0, 1, rows_VxE.shape[1])
            rows_VxE[ordinary] *= 1.7
            rows_VxE[sentinels] += draw.normal(0, 1.5, rows_VxE.shape[1])
    return weights


def start_at(folder, weights) -> None:
    write_t5x(folder / "checkpoint_7", weights, inline=lambda name: True)
    (folder / "config.gin").write_text("T5Config.mlp_activations = ('gelu', 'linear')")


def run_of(folder, model, vocabulary, length=128, **changes):
    run = tiny_run(folder / "text.txt", 3)
    objective = SpanCorruption(length, 0.15, 3.0)
    task = dataclasses.replace(run.task, vocabulary=vocabulary, objective=objective)
    return dataclasses.replace(run, start=str(folder), model=model, task=task, **changes).resolve()


def said(run) -> list[str]:
    return [line for line in load_start(run, find_start(run)).warnings if WORDS in line]


GOOGLE, UPWARDS, LATE = list(range(258, 247, -1)), list(range(259, 270)), list(range(383, 372, -1))


@pytest.mark.parametrize(
    ("rows", "mine", "other"),
    [(GOOGLE, "google", "huggingface"), (UPWARDS, "huggingface", "google"), (LATE, "seqio", "huggingface")],
)
def test_sentinels_of_bytes(tmp_path, rows, mine, other):
    start_at(tmp_path, trained(384, BYTES, rows))
    assert said(run_of(tmp_path, MODEL, Bytes(mine))) == []
    (warning,) = said(run_of(tmp_path, MODEL, Bytes(other)))
    assert "the objective of this run uses 7 sentinels" in warning
    assert f"of 7 of them look untrained (ids {build(Bytes(other)).sentinels[0]}, " in warning
    assert f"--task.vocabulary.sentinels {mine} --task.vocabulary.extra-ids" in warning
    row = dict(inspect(tmp_path).rows)["trained of them"]
    assert row == ("all 11" if mine == "google" else "the first 11 of 125")


def test_only_objectives_with_sentinels_are_warned(tmp_path):
    start_at(tmp_path, trained(384, BYTES, GOOGLE))
    run = run_of(tmp_path, MODEL, Bytes())
    for task in (
        dataclasses.replace(run.task, objective=PrefixLM(64)),
        Task("pairs", PairFiles(("pairs.tsv",)), objective=Supervised()),
    ):
        assert said(dataclasses.replace(run, task=task)) == []


@pytest.mark.parametrize("tied", [False, True])
def test_sentinels_of_pieces(tmp_path, tied):
    """140 ids or so, filled up to 168 rows; 5 sentinels were used."""
    path = write_vocabulary(tmp_path / "spiece.model")
    vocabulary = SentencePiece(str(path), "appended", 100)
    size = build(vocabulary).size
    model = dataclasses.replace(MODEL, vocab_size=size + 28, tie_embeddings=tied)
    ids = list(build(vocabulary).sentinels)
    start_at(tmp_path, trained(size + 28, list(range(3, size - 100)), ids[:5], tied=tied))
    assert said(run_of(tmp_path, model, vocabulary, 90)) == []
    (warning,) = said(run_of(tmp_path, model, vocabulary, 160))
    assert "uses 9 sentinels" in warning and f"of 4 of them look untrained (ids {ids[5]}, {ids[6]}, " in warning
    assert "The first 5 were trained. To use trained ones only, mask fewer spans" in warning
    assert dict(inspect(tmp_path).rows)["trained of them"] == "the first 5 of 100"

    (warning,) = said(run_of(tmp_path, model, dataclasses.replace(vocabulary, extra_ids=50), 90))
    assert f"The weights show other sentinels, {ids[0]}, {ids[1]}, ...: " in warning
    assert "--task.vocabulary.sentinels appended --task.vocabulary.extra-ids 100" in warning


def test_a_start_that_was_trained_without_sentinels(tmp_path):
    start_at(tmp_path, trained(384, BYTES, []))
    (warning,) = said(run_of(tmp_path, MODEL, Bytes()))
    assert "Those of another convention do not look trained there either" in warning
    assert dict(inspect(tmp_path).rows)["trained of them"].startswith("none")


def test_random_weights_say_nothing(tmp_path):
    start_at(tmp_path, trained(384, [], []))
    assert said(run_of(tmp_path, MODEL, Bytes())) == []
    assert dict(inspect(tmp_path).rows)["trained of them"] == "not told by the weights"


def test_weights_on_devices_are_looked_at_too(tmp_path):
    """As a Spanloom checkpoint's are, kept in bfloat16 perhaps and divided among devices."""
    start_at(tmp_path, trained(384, BYTES, GOOGLE))
    run, google = (run_of(tmp_path, MODEL, Bytes(name)) for name in ("huggingface", "google"))
    layout = make_layout(Mesh())
    flat = flatten(load_start(run, find_start(run)).params)
    params = unflatten(MODEL, {name: leaf.astype(jnp.bfloat16) for name, leaf in flat.items()})
    assert isinstance(jax.tree.leaves(params)[0], jax.Array)
    for where in (None, layout):
        (warning,) = untrained_by_rows(tmp_path, params, where, (None, None), run)
        assert "sentinels google" in warning
        assert untrained_by_rows(tmp_path, params, where, (None, None), google) == []
