"""A model read layer by layer says what it says whole."""

from dataclasses import replace

import jax
import ml_dtypes
import numpy as np
import pytest

from spanloom.conversion import parity, streamed
from spanloom.conversion.stored_model import as_stored
from spanloom.conversion.weights import Weight, Weights
from spanloom.model.t5 import forward
from spanloom.settings.vocabulary import Bytes
from spanloom.vocabularies.build import build

CASES = {
    "untied": {},
    "tied": {"tie_embeddings": True, "activations": ("relu",)},
    "umt5": {"per_layer_position_bias": True},
}


@pytest.mark.parametrize("changes", CASES.values(), ids=list(CASES))
def test_log_probabilities_are_those_of_the_whole_model(tiny, make_source, changes, monkeypatch):
    monkeypatch.setattr(streamed, "_HEAD_BYTES", 4 * tiny.d_model * 100)  # 384 rows in four blocks
    source = make_source(replace(tiny, **changes))
    batch = parity.examples(build(Bytes()), 2)
    found = streamed.log_probabilities(source.model, as_stored(source).weights, batch)
    logits_BxTxV = forward(source.params, source.model, batch)
    targets_BxT = batch["decoder_target_tokens"]
    wanted = np.take_along_axis(np.asarray(jax.nn.log_softmax(logits_BxTxV)), targets_BxT[..., None], -1)[..., 0]
    np.testing.assert_allclose(found, wanted[targets_BxT > 0], atol=1e-5)


def test_one_layer_is_read_at_a_time_and_rounded_as_it_is_written(tiny, make_source):
    source = make_source(tiny)
    read: list[tuple[str, int | None]] = []

    def seen(name: str, weight: Weight) -> Weight:
        def look(layer: int | None) -> np.ndarray:
            read.append((name, layer))
            return weight.read(layer)

        return replace(weight, read=look)

    weights = {name: seen(name, weight) for name, weight in as_stored(source).weights.items()}
    batch = parity.examples(build(Bytes()), 1)
    found = streamed.log_probabilities(tiny, weights, batch, "bfloat16")
    layers = [layer for name, layer in read if name.startswith("encoder/layers/")]
    assert layers == sorted(layers) and set(layers) == {0, 1}
    halves = jax.tree.map(lambda leaf: leaf.astype(ml_dtypes.bfloat16), source.params)
    wanted = streamed.log_probabilities(tiny, as_stored(replace(source, params=halves)).weights, batch)
    np.testing.assert_array_equal(found, wanted)


def test_models_in_lockstep_read_a_layer_each_before_the_next(tiny, make_source):
    """So what a comparison keeps of one of them, it keeps until the other one's same layer, and no longer."""
    source = as_stored(make_source(tiny)).weights
    comparison = parity.Comparison(source, source)
    read: list[tuple[str, str, int]] = []

    def seen(who: str, weights: Weights) -> Weights:
        def one(name: str, weight: Weight) -> Weight:
            def look(layer: int | None) -> np.ndarray:
                if layer is not None:
                    read.append((who, name.split("/")[0], layer))
                return weight.read(layer)

            return replace(weight, read=look)

        return {name: one(name, weight) for name, weight in weights.items()}

    batch = parity.examples(build(Bytes()), 1)
    models = (seen("source", comparison.source), seen("written", comparison.weights))
    first, second = streamed.in_lockstep(
        *(streamed.log_probabilities_by_layer(tiny, weights, batch) for weights in models)
    )
    np.testing.assert_array_equal(first, second)
    assert list(dict.fromkeys(read)) == [
        (who, stack, layer)
        for stack, layer in (("encoder", 0), ("encoder", 1), ("decoder", 0))
        for who in ("source", "written")
    ]
    assert comparison.finish() == []
