"""The kernel for TPUs: run step by step here, and compiled for TPUs that are not."""

import re
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spanloom.model.attention import Mask, attention, make_mask, position_bias
from spanloom.model.loss import loss_and_metrics
from spanloom.model.pallas_attention import pallas_attention, takes_pallas
from spanloom.model.params import declare, initialize
from spanloom.model.placement import ANYWHERE, Placement
from spanloom.scale.hlo import Program
from spanloom.scale.libtpu import prepare_libtpu
from spanloom.scale.mesh import Layout, make_layout
from spanloom.settings.mesh import Mesh
from spanloom.settings.model import Model
from spanloom.settings.run import Loss
from tests.libtpu_here import needs_libtpu

SMALL = Model(vocab_size=50, d_model=16, d_ff=24, num_heads=2, d_kv=8, num_encoder_layers=2, num_decoder_layers=1)


def value_and_gradients(f: Any, operands: tuple[jax.Array, ...], weight: jax.Array) -> tuple[jax.Array, ...]:
    whole = jax.value_and_grad(lambda *a: (jnp.sum(f(*a) * weight), f(*a)), argnums=(0, 1, 2, 3), has_aux=True)
    (_, mixed), gradients = jax.jit(whole)(*operands)
    return mixed, *gradients


@pytest.mark.parametrize(
    ("heads", "width", "length", "keys", "causal"),
    [(2, 8, 13, 13, False), (4, 64, 16, 16, True), (3, 128, 5, 18, False), (4, 64, 9, 7, False)],
)
@pytest.mark.parametrize("packed", [False, True])
def test_value_and_gradients_are_those_of_the_reference(
    heads: int, width: int, length: int, keys: int, causal: bool, packed: bool
) -> None:
    """With padding, dropped weights, a row without any text, and packed rows; the bias table's gradient, too."""
    shapes = ((3, length, heads, width), *[(3, keys, heads, width)] * 2, (heads, 32))
    q, *others = (jax.random.normal(jax.random.key(i), shape) for i, shape in enumerate(shapes))
    operands = (q * width**-0.5, *others)
    real = np.arange(keys) < np.array([[keys], [keys - 4], [0]])
    segments = (np.arange(length) // 4 + 1)[None] * np.ones((3, 1), int), (np.arange(keys) // 4 + 1) * real
    mask = make_mask(jnp.asarray(real), *(segments if packed else (None, None)), causal=causal)
    keep = 2.0 * jax.random.bernoulli(jax.random.key(7), 0.5, (3, keys, heads, 1))
    weight = jax.random.normal(jax.random.key(8), shapes[0])
    weight = weight * (real.any(axis=1) | (not packed))[:, None, None, None]  # nothing uses what padding asks

    def bias(table: jax.Array) -> jax.Array:
        return position_bias(table, length, keys, bidirectional=not causal, max_distance=20)

    ours = value_and_gradients(
        lambda q, k, v, table: pallas_attention(q, k, v * keep, bias(table), mask), operands, weight
    )
    reference = value_and_gradients(
        lambda q, k, v, table: attention(q, k, v * keep, bias(table), mask.added_Bx1xTxS), operands, weight
    )
    for mine, other in zip(ours[1:], reference[1:], strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-4, atol=2e-5)
    used = weight != 0
    np.testing.assert_allclose(ours[0][used], reference[0][used], rtol=1e-4, atol=2e-5)


def batch(packed: bool) -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    inputs, targets = (random.integers(2, 50, (3, length), dtype=np.int32) for length in (13, 7))
    inputs[0, 11:], targets[1, 5:] = 0, 0
    found = {
        "encoder_input_tokens": inputs,
        "decoder_target_tokens": targets,
        "decoder_input_tokens": np.pad(targets[:, :-1], [(0, 0), (1, 0)]),
    }
    if packed:
        found["encoder_segment_ids"] = ((np.arange(13) // 5 + 1) * (inputs > 0)).astype(np.int32)
        found["decoder_segment_ids"] = ((np.arange(7) // 3 + 1) * (targets > 0)).astype(np.int32)
    return found


@pytest.mark.parametrize("packed", [False, True])
def test_a_model_with_it_has_the_reference_s_loss_and_gradient(packed: bool) -> None:
    """Divided among devices: tests/scale/test_mesh.py."""
    params = jax.jit(lambda key: initialize(declare(SMALL), key))(jax.random.key(0))

    def run(how: Literal["einsum", "pallas"]) -> Any:
        config, data = replace(SMALL, attention=how), batch(packed)
        return jax.jit(jax.value_and_grad(lambda p: loss_and_metrics(p, config, Loss(), data)[0]))(params)

    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6), run("pallas"), run("einsum"))


class Devices(Placement):
    """Of one kind, some of which divide heads."""

    def __init__(self, kind: str, platform: str = "tpu", dividing: int = 1) -> None:
        self._device, self._dividing = SimpleNamespace(platform=platform, device_kind=kind), dividing

    @property
    def device(self) -> Any:
        return self._device

    def part(self, axis: str, size: int) -> int:
        return size // self._dividing


def test_what_is_taken_where() -> None:
    half = replace(SMALL, dtype="bfloat16", num_heads=12, d_kv=64)
    assert takes_pallas(half, Devices("TPU v4"), 512, 512)
    assert not takes_pallas(half, Devices("TPU v4"), 1024, 1024)
    assert takes_pallas(half, Devices("TPU v5 lite"), 1024, 1024)
    assert not takes_pallas(half, Devices("TPU v4", dividing=4), 512, 512), "three heads at a time fill no registers"
    for config, place in [
        (replace(half, dtype="float32"), Devices("TPU v4")),
        (replace(half, attention="einsum"), Devices("TPU v4")),
        (half, Devices("TPU v3")),
        (half, Devices("some later one")),
        (half, Devices("a CPU", "cpu")),
        (half, ANYWHERE),
    ]:
        assert not takes_pallas(config, place, 16, 16)
    asked = replace(half, attention="pallas")
    assert takes_pallas(asked, Devices("TPU v4"), 512, 512) and takes_pallas(asked, Devices("a CPU", "cpu"), 9999, 9999)
    for config, kind, length in [
        (asked, "TPU v4", 1024),
        (asked, "TPU v3", 16),
        (replace(asked, dtype="float32"), "TPU v4", 16),
    ]:
        with pytest.raises(ValueError, match=rf"pallas.*{length} keys need .* a {kind} has .*take auto or einsum"):
            takes_pallas(config, Devices(kind), length, length)


def compiled_for(topology: str, length: int, keys: int, heads: int, width: int, causal: bool, biased: bool) -> str:
    """The program of three layers' attention, one after the other, and its gradient."""
    from jax.experimental import topologies

    prepare_libtpu()
    layout: Layout = make_layout(Mesh(), topologies.get_topology_desc(platform="tpu", topology_name=topology).devices)
    rows = 2 * layout.mesh.size

    def shape(*sizes: int, dtype: Any = jnp.bfloat16, sharding: Any = layout.batch) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(sizes, dtype, sharding=sharding)

    def run(query: jax.Array, key: jax.Array, value: jax.Array, bias: Any, real: jax.Array) -> Any:
        mask: Mask = make_mask(real, causal=causal, place=layout)
        mixed = lambda x, *others: (x + pallas_attention(x, *others, mask), None)  # noqa: E731
        layers = lambda x, *others: jax.lax.scan(lambda x, _: mixed(x, *others), x, length=3)[0]  # noqa: E731
        return jax.grad(lambda *a: jnp.sum(layers(*a).astype(jnp.float32)), (0, 1, 2, *[3] * biased))(
            query, key, value, bias
        )

    bias = shape(1, heads, length, keys, dtype=jnp.float32, sharding=layout.replicated) if biased else None
    both = (shape(rows, keys, heads, width),) * 2
    lowered = jax.jit(run).lower(shape(rows, length, heads, width), *both, bias, shape(rows, keys, dtype=jnp.bool_))
    return str(lowered.compile().as_text())


@needs_libtpu
@pytest.mark.parametrize("topology", ["v4:2x2x1", "v5e:2x2"])
@pytest.mark.parametrize(
    ("length", "keys", "heads", "width", "causal", "biased"),
    [(512, 512, 12, 64, False, True), (114, 512, 12, 64, False, False), (100, 100, 5, 24, True, True)],
)
def test_it_compiles_for_tpus_and_its_work_is_counted(
    topology: str, length: int, keys: int, heads: int, width: int, causal: bool, biased: bool
) -> None:
    text = compiled_for(topology, length, keys, heads, width, causal, biased)
    assert text.count('custom_call_target="tpu_custom_call"') == 2
    assert not re.search(rf"\[2,{heads},{length},{keys}\]", text), "logits or weights of a device's two rows in memory"
    product = 2 * 2 * heads * width * length * keys
    assert Program(text).cost().flops == pytest.approx(3 * (2 + 5) * product, rel=0.05)
