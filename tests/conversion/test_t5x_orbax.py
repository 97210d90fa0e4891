"""Checkpoints as Orbax writes them for T5X; the golden ones are in test_t5x_checkpoint and test_t5x."""

import contextlib
import json
import random
import shutil

import ml_dtypes
import numpy as np
import orbax.checkpoint as ocp
import pytest

from spanloom.conversion.errors import ConversionError
from spanloom.conversion.t5x_checkpoint import is_checkpoint, open_checkpoint
from spanloom.conversion.t5x_orbax import read_arrays

TREE = {
    "state": {"step": np.asarray(9, np.int32), "param_states": {"encoder": {"v": np.arange(6, dtype=np.float32)}}},
    "target": {
        "encoder": {"kernel": np.random.default_rng(0).random((70, 30), np.float32)},
        "decoder": {"kernel": np.ones((2, 3, 4), ml_dtypes.bfloat16)},
    },
}


@pytest.fixture(scope="module", params=[True, False], ids=["database", "folders"])
def written(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("orbax") / "checkpoint_9"
    with ocp.Checkpointer(ocp.PyTreeCheckpointHandler(use_ocdbt=request.param)) as writer:
        writer.save(path / "state", ocp.args.PyTreeSave(TREE))
    return path


def test_every_array(written):
    assert is_checkpoint(written)
    found = open_checkpoint(written)
    assert (found.step, found.written_as) == (9, "T5X, written by Orbax")
    for name, stored in found.weights.items():
        stack, _ = name.split("/")
        wanted = TREE["target"][stack]["kernel"]
        assert (stored.dtype, stored.shape) == (str(wanted.dtype), wanted.shape)
        np.testing.assert_array_equal(stored.read(), wanted)
    assert found.weights.keys() == {"encoder/kernel", "decoder/kernel"}
    np.testing.assert_array_equal(found.slots["encoder/v"].read(), TREE["state"]["param_states"]["encoder"]["v"])
    alone = read_arrays(written / "state")  # the item without the folder around it
    assert alone.keys() == {
        "state/step",
        "state/param_states/encoder/v",
        "target/encoder/kernel",
        "target/decoder/kernel",
    }


def test_a_lost_file_or_an_array_that_is_only_listed_is_an_error(written, tmp_path):
    listing = written / "state" / "_METADATA"
    for number, path in enumerate(sorted((written / "state").rglob("*"))):
        if not path.is_file() or path.name in ("_METADATA", "_sharding") or "metadatas" in str(path):
            continue
        copy = shutil.copytree(written, tmp_path / str(number))
        (copy / path.relative_to(written)).unlink()
        try:
            found = open_checkpoint(copy)
            arrays = {name: one.read() for name, one in (found.weights | found.slots).items()}
        except ConversionError:
            continue
        np.testing.assert_array_equal(arrays["encoder/kernel"], TREE["target"]["encoder"]["kernel"])
    copy = shutil.copytree(written, tmp_path / "listed")
    data = json.loads(listing.read_text())
    entry = next(iter(data["tree_metadata"].values()))
    other = {**entry, "key_metadata": [*entry["key_metadata"], {"key": "more", "key_type": 2}]}
    (copy / "state" / "_METADATA").write_text(
        json.dumps(data | {"tree_metadata": data["tree_metadata"] | {"x": other}})
    )
    with pytest.raises(ConversionError, match="is missing"):
        open_checkpoint(copy)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "lists no arrays"),
        ("[1]", "lists no arrays"),
        ('{"tree_metadata": {"a": {}}}', "lists no arrays"),
        ('{"tree_metadata": {}, "use_zarr3": true}', "zarr version 3"),
        (
            '{"tree_metadata": {"a": {"key_metadata": [{"key": ".."}, {"key": "b"}], "value_metadata": {}}}}',
            "which no parameter is called",
        ),
    ],
)
def test_a_listing_that_is_none(tmp_path, content, message):
    (tmp_path / "_METADATA").write_text(content)
    with pytest.raises(ConversionError, match=message):
        read_arrays(tmp_path)


def test_any_damage_is_an_error_or_an_array_of_its_size(written, tmp_path):
    files = [path for path in sorted((written / "state").rglob("*")) if path.is_file() and path.name != "_sharding"]
    draw = random.Random(0)
    for number in range(25):
        copy = shutil.copytree(written, tmp_path / str(number))
        damaged = copy / draw.choice(files).relative_to(written)
        content = bytearray(damaged.read_bytes())
        if not content:
            continue
        if number % 2:
            content = content[: draw.randrange(len(content))]
        else:
            content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
        damaged.write_bytes(content)
        with contextlib.suppress(ConversionError):
            for one in open_checkpoint(copy).weights.values():
                assert one.read().shape == one.shape


@pytest.mark.parametrize("database", [True, False])
def test_an_index_with_placeholders_as_the_first_releases_wrote_it(tmp_path, database):
    """Before they had a listing: a msgpack file of the tree, whose leaves are numbers, arrays or names."""
    import msgpack
    from t5x_files import extension

    item = tmp_path / "checkpoint_9" / "state"
    with ocp.Checkpointer(ocp.PyTreeCheckpointHandler(use_ocdbt=database)) as writer:
        writer.save(item, ocp.args.PyTreeSave(TREE))
    (item / "_METADATA").unlink()
    tree = {
        "state": {
            "step": 9,
            "param_states": {"encoder": {"v": extension(np.arange(6, dtype=np.float32))}, "none": None, "empty": {}},
        },
        "target": {part: {"kernel": f"PLACEHOLDER://target.{part}.kernel"} for part in ("encoder", "decoder")},
    }
    (item / "checkpoint").write_bytes(msgpack.packb(tree))
    assert is_checkpoint(tmp_path / "checkpoint_9")
    found = open_checkpoint(tmp_path / "checkpoint_9")
    assert (found.step, found.written_as) == (9, "T5X, written by an early Orbax")
    for stack in ("encoder", "decoder"):
        np.testing.assert_array_equal(found.weights[f"{stack}/kernel"].read(), TREE["target"][stack]["kernel"])
    np.testing.assert_array_equal(found.slots["encoder/v"].read(), TREE["state"]["param_states"]["encoder"]["v"])
    for place, message in (("../../secret", "no folder beside it"), ("target.lost.kernel", "is missing")):
        tree["target"]["encoder"]["kernel"] = f"PLACEHOLDER://{place}"
        (item / "checkpoint").write_bytes(msgpack.packb(tree))
        with pytest.raises(ConversionError, match=message):
            open_checkpoint(tmp_path / "checkpoint_9")


def test_what_is_no_array_is_passed_over(tmp_path):
    tree = {"target": TREE["target"], "state": {"step": 9, "none": None, "empty": {}, "list": [], "kind": "adafactor"}}
    with ocp.Checkpointer(ocp.PyTreeCheckpointHandler()) as writer:
        writer.save(tmp_path / "state", ocp.args.PyTreeSave(tree))
    found = read_arrays(tmp_path)
    assert found.keys() == {"state/step", "target/encoder/kernel", "target/decoder/kernel"}
    assert found["state/step"].read() == 9
