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
BATCH, ROOM = 3, 32


def compiled_loop(module, beams: int, settings: dict, *rest) -> str:
    """The loop over tokens as XLA has compiled it."""

    def arguments():
        weights = decoding.get_ready(initialize(declare(TINY), jax.random.key(0)), TINY)
        inputs = jnp.ones((BATCH, 4), jnp.int32)
        begun = module._begin(weights, inputs, config=TINY, count=beams, room=ROOM, place=ANYWHERE)
        rules = decoding.Rules(jnp.zeros((BATCH, ROOM), jnp.int32))
        return weights, begun, rules, jnp.full(BATCH, ROOM)

    run = functools.partial(module._run.lower, config=TINY, eos_id=1, place=ANYWHERE, **settings)
    text: str = run(*jax.eval_shape(arguments), *rest).compile().as_text()
    return text


@pytest.mark.parametrize("beams", [1, 4])
def test_a_token_copies_no_cache(beams):
    """Keys and values, the only arrays whose copies would count, are donated, and written to in place."""
    if beams == 1:
        text = compiled_loop(decoding, 1, {}, None)
    else:
        text = compiled_loop(decoding_beams, beams, {"rule": "t5x"}, jax.ShapeDtypeStruct((BATCH,), jnp.float32))
    cache = re.escape(f"f32[{BATCH},{TINY.num_heads},{ROOM * beams},{TINY.d_kv}]")
    assert text.split("\n")[0].count("may-alias") > 4  # keys and values of both attentions, and what is written
    makers = set(re.findall(rf" = {cache}\S* ([\w-]+)\(", text))
    assert "dynamic-update-slice" in makers
    assert makers <= {"parameter", "get-tuple-element", "dynamic-update-slice", "fusion", "bitcast"}
