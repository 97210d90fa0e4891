"""T5X checkpoints as they lie on disk: every array to the last bit, damage named."""

import gzip
import hashlib
import json
import random
import re
import shutil
from pathlib import Path

import ml_dtypes
import msgpack
import numpy as np
import pytest
from golden_data import golden_dir
from t5x_files import extension, write_t5x

from spanloom.conversion.errors import ConversionError
from spanloom.conversion.t5x_checkpoint import T5XCheckpoint, find, is_checkpoint, open_checkpoint, steps_in

SLOT = "state/param_states/encoder/encoder_norm/scale"


def arrays() -> dict[str, np.ndarray]:
    draw = np.random.default_rng(0)
    return {
        "target/token_embedder/embedding": draw.random((6, 4), np.float32),
        "target/encoder/encoder_norm/scale": draw.random(4, np.float32),
        f"{SLOT}/v": draw.random(4, np.float32),
        f"{SLOT}/v_row": np.zeros(1, np.float32),
        "state/step": np.asarray(12, np.int32),
    }


def named(checkpoint: T5XCheckpoint) -> dict[str, np.ndarray]:
    weights = {f"target/{name}": one.read() for name, one in checkpoint.weights.items()}
    slots = {f"state/param_states/{name}": one.read() for name, one in checkpoint.slots.items()}
    return weights | slots | {"state/step": np.asarray(checkpoint.step, np.int32)}


def same(found: dict[str, np.ndarray], wanted: dict[str, np.ndarray]) -> None:
    assert found.keys() == wanted.keys()
    for name, array in wanted.items():
        assert found[name].dtype == array.dtype
        np.testing.assert_array_equal(found[name], array)


@pytest.mark.parametrize(
    "inline", [lambda name: True, lambda name: False, lambda name: name.endswith(("v_row", "step"))]
)
@pytest.mark.parametrize(
    "how", [{}, {"old_specs": True}, {"above": "/somewhere/else/checkpoint_12/"}, {"above": "../../"}, {"version": 2}]
)
def test_arrays_in_either_place(tmp_path, inline, how):
    path = write_t5x(tmp_path / "checkpoint_12", arrays(), inline=inline, **how)
    same(named(open_checkpoint(path)), arrays())


def test_nothing_outside_the_checkpoint_is_read(tmp_path):
    write_t5x(tmp_path / "other", arrays())
    path = write_t5x(tmp_path / "checkpoint_12", arrays(), above="../other/")
    shutil.rmtree(path / "target.token_embedder.embedding")
    with pytest.raises(ConversionError, match="is missing") as error:
        open_checkpoint(path)
    assert error.value.path == path / "target.token_embedder.embedding"
    tree = {"target": {"a": {"driver": "zarr", "kvstore": {"path": "x/.."}}}}
    (path / "checkpoint").write_bytes(msgpack.packb({"version": 3, "optimizer": tree}))
    with pytest.raises(ConversionError, match="no zarr folder"):
        open_checkpoint(path)


def test_bfloat16_as_version_2_kept_it(tmp_path):
    weights = arrays()["target/token_embedder/embedding"].astype(ml_dtypes.bfloat16)
    stored = {"target/token_embedder/embedding": weights.view(np.uint16)}
    found = open_checkpoint(write_t5x(tmp_path / "checkpoint_1", stored, version=2)).weights
    np.testing.assert_array_equal(found["token_embedder/embedding"].read(), weights)
    as_numbers = open_checkpoint(write_t5x(tmp_path / "checkpoint_2", stored)).weights
    assert as_numbers["token_embedder/embedding"].dtype == "uint16"


def test_a_run_of_t5x_and_which_of_its_checkpoints(tmp_path):
    for step in (3, 20):
        write_t5x(tmp_path / f"checkpoint_{step}", arrays(), inline=lambda name: True)
    write_t5x(tmp_path / "checkpoint_30.tmp-1234", arrays())
    (tmp_path / "checkpoint_40").mkdir()
    assert list(steps_in(tmp_path)) == [3, 20]
    assert find(tmp_path) == tmp_path / "checkpoint_20"
    assert find(tmp_path, "3") == tmp_path / "checkpoint_3"
    assert find(tmp_path / "checkpoint_3" / "checkpoint") == tmp_path / "checkpoint_3"
    with pytest.raises(ConversionError, match="last or one of 3, 20"):
        find(tmp_path, "4")
    with pytest.raises(ConversionError, match="is one checkpoint"):
        find(tmp_path / "checkpoint_3", "4")
    with pytest.raises(ConversionError, match="no checkpoint of T5X"):
        find(tmp_path / "checkpoint_40")


def test_one_file_is_a_checkpoint_and_tensorflows_is_none(tmp_path):
    path = write_t5x(tmp_path / "a", arrays(), inline=lambda name: True)
    (path / "checkpoint").rename(tmp_path / "tiny.checkpoint_0")
    same(named(open_checkpoint(find(tmp_path / "tiny.checkpoint_0"))), arrays())
    (path / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-1000"\n')
    assert not is_checkpoint(path)


def test_weights_alone_have_the_step_of_their_name(tmp_path):
    only = {name: array for name, array in arrays().items() if name.startswith("target/")}
    assert open_checkpoint(write_t5x(tmp_path / "checkpoint_77", only)).step == 77


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ({"version": 1, "optimizer": {"target": {}}}, "is in version 1"),
        ({"version": 3, "params": {}}, "holds no optimizer/target"),
        ({"version": 3, "optimizer": {"target": {"a": "PLACEHOLDER://a"}}}, "is missing, though"),
        ({"version": 3, "optimizer": {"target": {"a": [1, 2]}}}, "no array for target/a"),
        ({"version": 3, "optimizer": {"target": {}, "state": {"step": extension(np.zeros(3))}}}, "not one number"),
        ({"version": 3, "optimizer": {"target": {"a": {"driver": "n5", "path": "a"}}}}, "driver 'n5'"),
    ],
)
def test_what_is_no_checkpoint_of_these_versions(tmp_path, tree, message):
    (tmp_path / "checkpoint").write_bytes(msgpack.packb(tree))
    with pytest.raises(ConversionError, match=message):
        open_checkpoint(tmp_path)


def test_any_damage_is_an_error_or_changes_no_number(tmp_path):
    whole = write_t5x(tmp_path / "whole", arrays(), inline=lambda name: name.endswith("step"))
    zarr = [path for path in sorted(whole.rglob("*")) if path.is_file() and path.parent != whole]
    draw = random.Random(0)
    for number in range(40):
        path = tmp_path / f"checkpoint_{number}"
        shutil.copytree(whole, path)
        damaged = path / draw.choice(zarr).relative_to(whole)
        content = bytearray(damaged.read_bytes())
        if number % 2:
            content = content[: draw.randrange(len(content))]
        else:
            content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
        damaged.write_bytes(content)
        try:
            found = named(open_checkpoint(path))
        except ConversionError:
            continue
        assert damaged.name == ".zarray" or gzip.decompress(content)  # a header's free bits
        for name, array in found.items():
            assert array.size == arrays()[name].size
        shutil.rmtree(path)


# ---- What T5X itself wrote -------------------------------------------------------------------------------------------


def written_by_t5x() -> list[tuple[Path, dict]]:
    folder = golden_dir("t5x", "checkpoints")
    facts = json.loads((folder / "checkpoints.json").read_text())
    return [
        (folder / name, fact) for name, fact in facts.items() if fact.get("format", "").startswith(("T5X", "Orbax"))
    ]


def its_checkpoint(folder: Path) -> Path:
    return next(path for path in sorted(folder.iterdir()) if "checkpoint_" in path.name)


def expected(folder: Path, fact: dict) -> dict[str, np.ndarray]:
    own = folder / "expected.npz"
    elsewhere = re.search(r"(?<!\S)(\w+/expected\.npz)", fact.get("expected", ""))
    with_slots = np.load(folder.parent / elsewhere[1]) if elsewhere else {}
    arrays = {name: with_slots[name] for name in with_slots}
    return arrays | ({name: np.load(own)[name] for name in np.load(own)} if own.exists() else {})


@pytest.mark.golden
def test_every_array_of_t5x_to_the_last_bit():
    whole = written_by_t5x()
    assert len(whole) >= 5
    for folder, fact in whole:
        checkpoint = open_checkpoint(find(its_checkpoint(folder)))
        assert checkpoint.step == fact["step"]
        found = named(checkpoint)
        if (folder / "expected_sha256.json").exists():
            hashes = json.loads((folder / "expected_sha256.json").read_text())
            assert found.keys() == hashes.keys()
            for name, one in hashes.items():
                assert (str(found[name].dtype), list(found[name].shape)) == (one["dtype"], one["shape"])
                assert hashlib.sha256(found[name].tobytes()).hexdigest() == one["sha256"], name
            continue
        wanted = expected(folder, fact)
        assert found.keys() == wanted.keys()
        for name, array in wanted.items():
            ours = found[name].astype(array.dtype)  # bfloat16 is kept there as the equal float32
            assert ours.shape == array.shape and ours.tobytes() == array.tobytes(), f"{folder.name}: {name}"


@pytest.mark.golden
def test_damaged_copies_are_refused_and_the_file_is_named():
    damaged = sorted(golden_dir("t5x", "checkpoints").glob("*-corrupt"))
    assert damaged
    for folder in damaged:
        with pytest.raises(ConversionError) as error:
            named(open_checkpoint(find(folder)))
        assert error.value.path.is_relative_to(folder)
        assert error.value.path.name not in ("", folder.name)
