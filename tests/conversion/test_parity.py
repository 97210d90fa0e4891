"""The comparison sees small mistakes and takes no comfort from NaN."""

import weakref
from dataclasses import replace

import numpy as np
import pytest
from same_weights import log_probabilities

from spanloom.conversion import parity
from spanloom.conversion.weights import in_memory, parts, same_bits
from spanloom.settings.vocabulary import Bytes
from spanloom.vocabularies.build import build


def test_log_probabilities_are_per_real_token_and_sum_to_one(tiny, make_source):
    source = make_source(tiny)
    batch = parity.examples(build(Bytes()))
    found = log_probabilities(tiny, source.params, batch)
    assert found.shape == ((batch["decoder_target_tokens"] > 0).sum(),)
    assert (found < 0).all()
    assert (batch["decoder_input_tokens"][:, 0] == 0).all()
    assert 259 in batch["encoder_input_tokens"]


def test_small_mistakes_show(tiny, make_source):
    source = make_source(tiny)
    batch = parity.examples(build(Bytes()))
    expected = log_probabilities(tiny, source.params, batch)
    assert parity.largest_difference(expected, log_probabilities(tiny, source.params, batch)) == 0
    for changes in (
        {"norm_epsilon": 1e-3},
        {"activations": ("silu", "linear")},
        {"relative_position_max_distance": 20},
    ):
        changed = log_probabilities(replace(tiny, **changes), source.params, batch)
        assert parity.largest_difference(expected, changed) > parity.TOLERANCE, changes


def test_nan_is_no_agreement():
    ones = np.ones(3, np.float32)
    with_nan = np.array([1, np.nan, 1], np.float32)
    assert parity.largest_difference(ones, with_nan) == float("inf")
    assert parity.largest_difference(with_nan, with_nan) == 0


def test_a_vocabulary_without_sentinels_has_examples_too():
    batch = parity.examples(build(Bytes("huggingface", 0)))
    assert batch["encoder_input_tokens"].max() < 259


def test_every_part_is_compared_once_whoever_reads_it(tiny, make_source):
    source = in_memory(make_source(tiny).params, "source")
    compared, read = [], []

    def written(name, one):
        def reading(layer):
            read.append((name, layer))
            return one.read(layer)

        return replace(one, read=reading)

    comparison = parity.Comparison(
        source, {name: written(name, one) for name, one in source.items()}, done=compared.append
    )
    name, layer = parts(source)[0]
    comparison.weights[name].read(layer)
    assert compared == [source[name].read(layer).size]
    assert comparison.finish() == [] and sum(compared) == sum(one.size for one in source.values())
    assert sorted(map(str, read)) == sorted(map(str, parts(source)))


def test_a_layer_that_is_kept_keeps_no_more_than_itself(tiny, make_source):
    """A file's chunk may hold all layers, of which each is a view."""
    source = in_memory(make_source(tiny).params, "source")
    chunks = []

    def piece(one):
        def reading(layer):
            chunk = np.stack([one.read(number) for number in one.parts])
            if chunk.nbytes > 1_000 and one.layers > 1:
                chunks.append(weakref.ref(chunk))
            return chunk[layer]

        return replace(one, read=reading) if one.layers else one

    pieces = {name: piece(one) for name, one in source.items()}
    comparison = parity.Comparison(pieces, source)
    for name, layer in parts(source):
        assert same_bits(comparison.source[name].read(layer), source[name].read(layer))
    assert len(chunks) > 10 and not [chunk for chunk in chunks if chunk() is not None]
    assert comparison.finish() == []


def test_one_bit_anywhere_a_missing_and_a_longer_parameter_are_found(tiny, make_source):
    source = in_memory(make_source(tiny).params, "source")
    for name, layer in parts(source):
        array = source[name].read(layer).copy()
        array.view(np.uint32).reshape(-1)[-1] ^= 1
        other = {
            **source,
            name: replace(
                source[name],
                read=lambda number, of=source[name], array=array, layer=layer: (
                    array if number == layer else of.read(number)
                ),
            ),
        }
        assert parity.Comparison(source, other).finish() == [name]
    name = next(iter(source))
    assert parity.Comparison(source, {key: one for key, one in source.items() if key != name}).finish() == [name]
    longer = replace(source[name], shape=(source[name].shape[0] + 1, *source[name].shape[1:]))
    assert parity.Comparison(source, {**source, name: longer}).finish() == [name]


@pytest.mark.parametrize("source_turned", [False, True])
@pytest.mark.parametrize("written_turned", [False, True])
def test_read_in_step_a_layer_is_put_in_order_once_and_a_difference_is_found(
    tiny, make_source, source_turned, written_turned
):
    def lying(weights, turned, changed=None):
        def reading(name, one):
            def read(layer):
                array = one.read(layer).copy()
                if (name, layer) == changed:
                    array.view(np.uint32).reshape(-1)[0] ^= 1
                return np.asfortranarray(array) if turned else array

            return replace(one, read=read)

        return {name: reading(name, one) for name, one in weights.items()}

    whole = in_memory(make_source(tiny).params, "source")
    source = lying(whole, source_turned)
    comparison = parity.Comparison(source, lying(whole, written_turned))
    for name, layer in parts(whole):
        first, second = comparison.source[name].read(layer), comparison.weights[name].read(layer)
        assert same_bits(first, second) and (layer is None or (second is first and first.flags.c_contiguous))
    assert comparison.finish() == []
    changed = next((name, layer) for name, layer in parts(whole) if layer == 1 and whole[name].read(1).ndim == 2)
    comparison = parity.Comparison(source, lying(whole, written_turned, changed))
    first, second = comparison.source[changed[0]].read(1), comparison.weights[changed[0]].read(1)
    assert comparison.different == [changed[0]] and not same_bits(first, second), "what was written is what is run"
