"""Logical axis rules against T5X's, and cases of our own."""

import itertools
import json
from collections.abc import Mapping

import jax
import pytest
from golden_data import golden_dir
from jax.sharding import PartitionSpec as P

from spanloom.model.params import declare, flatten
from spanloom.model.sizes import named
from spanloom.scale.mesh import make_layout
from spanloom.scale.rules import partition_spec, rules_of, standard_rules, update_spec, without
from spanloom.settings.mesh import BATCH_AXES, Mesh
from spanloom.settings.model import Model

SPECS = declare(named("byt5_nano"))
OURS: Mapping = {"data": "fsdp", "model": "tensor", None: None}
SETS = list(itertools.product((1, 2), (1, 2)))


def golden():
    return json.loads((golden_dir("t5x") / "partition.json").read_text())


def as_ours(axis, target):
    return BATCH_AXES if axis == "batch" and target == "data" else OURS[target]


@pytest.mark.golden
def test_standard_rules_are_t5x_s():
    for key, rules in golden()["rules"].items():
        (activation, parameter), *more = [part.split("=") for part in key.split(",", 2)[:2]], *key.split(",", 2)[2:]
        dims = int(activation[1]), int(parameter[1])
        added = json.loads(more[0].partition("=")[2]) if more else []
        found = standard_rules(*dims, [(axis, OURS[target]) for axis, target in added])
        if not added:
            assert found == rules_of(Mesh(rules=f"t5x_a{dims[0]}_p{dims[1]}"))
        theirs = [(axis, as_ours(axis, target)) for axis, target in rules]
        # T5X's order differs between axes that share no axis of the mesh; what counts is that each axis has its rules,
        # in their order, and that those before "embed" come before it.
        assert sorted(map(str, found)) == sorted(map(str, theirs)), key
        for name in {axis for axis, _ in theirs}:
            assert [t for axis, t in found if axis == name] == [t for axis, t in theirs if axis == name], (key, name)


@pytest.mark.golden
def test_every_parameter_is_divided_as_in_t5x():
    seen = 0
    for model in golden()["models"].values():
        for key, specs in model["specs"].items():
            dims = [int(part.split("=")[1]) for part in key.split(",")[:2]]
            rules = standard_rules(*dims)
            for name, theirs in specs.items():
                axes = model["logical_axes"][name]
                expected = P(*(OURS[target] for target in theirs))
                found = partition_spec(rules, axes)
                assert tuple(found) + (None,) * (len(axes) - len(found)) == tuple(expected), (key, name)
                seen += 1
    assert seen > 100


@pytest.mark.golden
def test_our_parameters_have_t5x_s_axes():
    known = golden()["models"]["t5_1_1"]
    config = known["T5Config"]
    ours = flatten(
        declare(
            Model(
                config["vocab_size"],
                d_model=config["emb_dim"],
                d_ff=config["mlp_dim"],
                num_heads=config["num_heads"],
                d_kv=config["head_dim"],
                num_encoder_layers=config["num_encoder_layers"],
                num_decoder_layers=config["num_decoder_layers"],
            )
        )
    )
    for name, axes in known["logical_axes"].items():
        if not name.startswith("target/"):
            continue
        path = name.removeprefix("target/")
        stacked = path.replace("layers_0/", "layers/").replace("layers_1/", "layers/")
        expected = (["layers"] if stacked != path else []) + axes
        assert list(ours[stacked].axes) == expected, name


@pytest.mark.parametrize(("activations", "parameters"), SETS)
def test_no_axis_of_the_mesh_divides_twice(activations, parameters):
    rules = standard_rules(activations, parameters)
    for spec in flatten(declare(named("mt5_small"))).values():
        divided = [axis for target in partition_spec(rules, spec.axes) for axis in ((target,) if target else ())]
        assert len(divided) == len(set(divided))
    both = partition_spec(rules, ("batch", "length", "embed"))
    assert both[0] == BATCH_AXES
    assert (both[2] if len(both) > 2 else None) == ("tensor" if activations == 2 else None)


def test_what_cannot_be_divided_evenly_is_whole():
    rules, sizes = standard_rules(1, 2), {"replica": 1, "data": 1, "fsdp": 4, "tensor": 4}
    assert partition_spec(rules, ("heads", "relpos_buckets"), (6, 32), sizes) == P(None, None)
    assert partition_spec(rules, ("embed", "mlp"), (512, 1024), sizes) == P("fsdp", "tensor")
    assert without(P("fsdp", ("data", "fsdp"), "tensor"), "fsdp") == P(None, ("data",), "tensor")


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ("vocab", "is no rule"),
        ("vocabb=tensor", "did you mean vocab"),
        ("vocab=model", "names no axis of the mesh"),
        ("batch=", "'batch=' cannot be chosen: every device reads"),
        ("batch=data", "cannot be chosen"),
        ("batch=tensor", "cannot be chosen"),
    ],
)
def test_rules_that_are_none_are_refused(rule, message):
    with pytest.raises(ValueError, match=message):
        rules_of(Mesh(more_rules=(rule,)))


def test_rules_of_one_s_own_come_first():
    rules = rules_of(Mesh(more_rules=("vocab=", "kv=tensor")))
    assert partition_spec(rules, ("vocab", "kv")) == P(None, "tensor")
    assert partition_spec(rules_of(Mesh()), ("vocab", "kv")) == P("tensor", None)


SIZES = {"replica": 1, "data": 2, "fsdp": 4, "tensor": 2}


@pytest.mark.parametrize(
    ("axes", "shape", "expected"),
    [
        (("layers", "embed", "mlp"), (2, 64, 96), P(None, ("fsdp", "data"), "tensor")),
        (("layers", "joined_kv", "embed"), (2, 32, 64), P(None, ("tensor", "data"), "fsdp")),
        (("vocab", "embed"), (302, 64), P("tensor", ("fsdp", "data"))),  # 4 do not divide 302
        (("vocab", "embed"), (302, 12), P("tensor", "fsdp")),
        (("layers", "embed"), (2, 64), P(None, "fsdp")),
        (("heads", "relpos_buckets"), (8, 32), P(("tensor", "data"), None)),
    ],
)
def test_gradients_of_matrices_are_divided_along_data_too(axes, shape, expected):
    assert update_spec(partition_spec(rules_of(Mesh()), axes, shape, SIZES), axes, shape, SIZES) == expected


def test_gradients_are_divided_whatever_the_rules_say_of_weights():
    stored = partition_spec(rules_of(Mesh(rules="t5x_a1_p1")), ("embed", "mlp"), (64, 96), SIZES)
    assert stored == P(None, "tensor")
    assert update_spec(stored, ("embed", "mlp"), (64, 96), SIZES) == P(("data",), "tensor")


@pytest.mark.parametrize("name", ["embed", "vocab", "mlp", "joined_kv", "layers", "heads", "relpos_buckets"])
@pytest.mark.parametrize("axis", ["data", "replica"])
def test_rules_of_ones_own_may_name_any_axis(name, axis):
    layout = make_layout(Mesh(more_rules=(f"{name}={axis}",)), jax.devices()[:1])
    for spec, sharding in zip(*map(jax.tree.leaves, (SPECS, layout.updates(SPECS))), strict=True):
        used = [target for part in sharding.spec for target in ((part,) if isinstance(part, str) else part or ())]
        assert len(used) == len(set(used)), spec
        assert axis != "data" or name not in spec.axes or "data" in used
