import functools
import re

import jax
import jax.numpy as jnp
import pytest

from spanloom.model import decoding, decoding_beams
from spanloom.model.params import declare, initialize
from spanloom.model.placement import ANYWHERE
from spanloom.settings.model import Model

TINY = Model(vocab_size=24, d_model=16, d_ff=16, num_heads=2, d_kv=8, num_encoder_layers=1, num_decoder_layers=1)
BATCH, ROOM, INPUTS = 3, 32, 5


def weights_and_inputs():
    return decoding.get_ready(initialize(declare(TINY), jax.random.key(0)), TINY), jnp.ones((BATCH, INPUTS), jnp.int32)


def begin(module, beams):
    return functools.partial(module._begin, config=TINY, count=beams, room=ROOM, place=ANYWHERE)


def compiled_loop(beams: int) -> str:
    """The loop over tokens as XLA has compiled it."""
    module = decoding if beams == 1 else decoding_beams
    settings, rest = ({}, None) if beams == 1 else ({"rule": "t5x"}, jax.ShapeDtypeStruct((BATCH,), jnp.float32))

    def arguments():
        weights, inputs = weights_and_inputs()
        rules = decoding.Rules(jnp.zeros((BATCH, ROOM), jnp.int32))
        return weights, begin(module, beams)(weights, inputs), rules, jnp.full(BATCH, ROOM)

    run = functools.partial(module._run.lower, config=TINY, eos_id=1, place=ANYWHERE, **settings)
    text: str = run(*jax.eval_shape(arguments), rest).compile().as_text()
    return text


@pytest.mark.parametrize("beams", [1, 4])
def test_the_encoders_output_is_read_once(beams):
    """Keys and values of cross-attention come from it before the first token; no token has it to make them again."""
    encoded = f"f32[{BATCH},{INPUTS},{TINY.d_model}]"
    module = decoding if beams == 1 else decoding_beams
    before = jax.jit(begin(module, beams)).lower(*jax.eval_shape(weights_and_inputs)).compile().as_text()
    assert encoded in before
    assert encoded not in compiled_loop(beams)


@pytest.mark.parametrize("beams", [1, 4])
def test_a_token_copies_no_cache(beams):
    """Keys and values, the only arrays whose copies would count, are donated, and written to in place."""
    text = compiled_loop(beams)
    assert text.split("\n")[0].count("may-alias") > 4  # keys and values of both attentions, and what is written
    for inner in (f"{TINY.d_kv},{ROOM * beams}", f"{ROOM * beams},{TINY.d_kv}"):
        cache = re.escape(f"f32[{BATCH},{TINY.num_heads},{inner}]")
        makers = set(re.findall(rf" = {cache}\S* ([\w-]+)\(", text))
        assert "dynamic-update-slice" in makers
        assert makers <= {"parameter", "get-tuple-element", "dynamic-update-slice", "fusion", "bitcast"}
