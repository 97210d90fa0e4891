"""Models from elsewhere in Spanloom's own format: the same to the bit, whole or refused, and taken by every command."""

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import orbax.checkpoint as ocp
import pytest
from same_weights import different_weights
from t5x_files import random_weights, write_t5x
from tiny_model import TINY, tiny_source
from tiny_training import same_arrays, tiny_run, write_vocabulary

import spanloom
from spanloom.cli.main import main
from spanloom.conversion.convert import HUGGING_FACE, convert, convert_to_hf, stored_hf
from spanloom.conversion.errors import ConversionError
from spanloom.conversion.t5x import stored_t5x
from spanloom.conversion.t5x_checkpoint import open_checkpoint
from spanloom.conversion.t5x_places import Layout, places
from spanloom.conversion.t5x_write import T5X
from spanloom.conversion.weights import read_whole
from spanloom.model.params import declare, flatten
from spanloom.settings.follow import Follow
from spanloom.settings.vocabulary import Bytes, SentencePiece
from spanloom.training.converted import SPANLOOM, stored_converted
from spanloom.training.read_model import open_model, read_model
from spanloom.training.start import StartError, find_start, load_start

DEEP = replace(TINY, num_encoder_layers=3, num_decoder_layers=2)


@pytest.fixture(scope="module")
def converted(tmp_path_factory):
    """A tiny byte model, and its folder."""
    folder = tmp_path_factory.mktemp("converted") / "out"
    source = replace(tiny_source(model=DEEP), vocabulary=Bytes("google"))
    convert(source, folder, SPANLOOM)
    return source, folder


def test_it_is_read_as_it_was(converted):
    source, folder = converted
    files = {path.name for path in folder.iterdir()}
    assert files == {"arrays", "manifest.json", "model.json", "spanloom.json"}
    read = read_model(folder)
    assert (read.model, read.vocabulary, read.lineage) == (source.model, source.vocabulary, source.lineage)
    assert different_weights(source.params, read.params) == []


@pytest.mark.parametrize("form", [HUGGING_FACE, T5X, SPANLOOM], ids=lambda form: form.name)
def test_no_file_of_an_export_stays_when_another_takes_its_place(form, tmp_path):
    """Its mark lists them all, whatever was written by whom."""
    out, fresh = tmp_path / "out", tmp_path / "fresh"
    convert(tiny_source(), out, form, beside={"kept_pieces.tsv": b"pieces"})
    own = {path.name for path in out.iterdir()}
    assert own == {*json.loads((out / "spanloom.json").read_text())["files"], "spanloom.json"}
    (out / "notes").touch()
    for other in (HUGGING_FACE, T5X, SPANLOOM):
        place = shutil.copytree(out, tmp_path / other.name.split()[-1])
        shutil.rmtree(fresh, ignore_errors=True)
        for one in (place, fresh):
            convert(tiny_source(), one, other)
        assert {path.name for path in place.iterdir()} == {path.name for path in fresh.iterdir()} | {"notes"}
        shutil.rmtree(place)


def test_orbax_reads_its_arrays(converted):
    """What is written without Orbax is what Orbax writes, so that any program with Orbax can read it."""
    source, folder = converted
    with ocp.Checkpointer(ocp.PyTreeCheckpointHandler()) as reader:
        place = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
        names = flatten(source.params)
        wanted: dict = {}
        for name in names:
            *parents, last = name.split("/")
            at = wanted
            for parent in parents:
                at = at.setdefault(parent, {})
            at[last] = ocp.ArrayRestoreArgs(sharding=place, dtype=jnp.float32)
        found = reader.restore(folder / "arrays" / "params", ocp.args.PyTreeRestore(restore_args=wanted))
    assert flatten(found).keys() == names.keys()
    assert all(same_arrays(leaf, names[name]) for name, leaf in flatten(found).items())


@pytest.mark.parametrize(
    "changes",
    [{}, {"tie_embeddings": True, "activations": ("relu",)}, {"per_layer_position_bias": True}, {"vocab_size": 512}],
    ids=["untied", "tied", "umt5", "padded"],
)
def test_hugging_face_to_spanloom_and_back_is_equal_to_the_bit(tmp_path, changes):
    convert_to_hf(tiny_source(model=replace(DEEP, **changes)), tmp_path / "hf")
    convert(stored_hf(tmp_path / "hf"), tmp_path / "ours", SPANLOOM)
    convert_to_hf(open_model(tmp_path / "ours"), tmp_path / "again")
    assert stored_hf(tmp_path / "again").model == stored_hf(tmp_path / "hf").model
    first, second = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("hf", "again"))
    assert first == second


@pytest.mark.parametrize("layout", [Layout(), Layout(heads_apart=True), Layout(True, True)], ids=str)
def test_t5x_to_spanloom_and_back_is_equal_to_the_bit(tmp_path, layout):
    """In its layout, with an optimizer's memory, bfloat16 as bfloat16."""
    weights = random_weights(DEEP, layout, bfloat16=True)
    draw = np.random.default_rng(3)
    slots = {}
    for place in places(DEEP, layout):
        name = f"state/param_states/{place.name}"
        unused = dict.fromkeys(("m", "v_row", "v_col"), np.zeros(1, np.float32))
        slots |= {f"{name}/{slot}": array for slot, array in unused.items()}
        slots[f"{name}/v"] = draw.random(place.shape, np.float32)
    arrays = weights | slots | {"state/step": np.asarray(1_000_000, np.int32)}
    original = write_t5x(tmp_path / "checkpoint_1000000", arrays)
    source = stored_t5x(original, vocabulary="bytes", activations=DEEP.activations)
    convert(source, tmp_path / "ours", SPANLOOM, dtype="keep")
    assert {weight.dtype for weight in open_model(tmp_path / "ours").weights.values()} == {"bfloat16"}
    convert(open_model(tmp_path / "ours"), tmp_path / "out", T5X, dtype="keep")
    before, after = open_checkpoint(original), open_checkpoint(tmp_path / "out" / "checkpoint_1000000")
    assert before.step == after.step
    for one, other in ((before.weights, after.weights), (before.slots, after.slots)):
        assert one.keys() == other.keys()
        for name, array in one.items():
            assert array.dtype == other[name].dtype
            assert array.read().tobytes() == other[name].read().tobytes(), name


def test_bfloat16_is_what_was_rounded(tmp_path):
    source = tiny_source()
    report = convert(source, tmp_path / "out", SPANLOOM, dtype="bfloat16")
    assert report.rounded and "rounded to bfloat16" in report.describe()
    for name, weight in open_model(tmp_path / "out").weights.items():
        wanted = np.asarray(flatten(source.params)[name]).astype(ml_dtypes.bfloat16).astype(np.float32)
        np.testing.assert_array_equal(read_whole(weight), wanted)


def test_a_sentencepiece_model_comes_along(tmp_path):
    vocabulary = SentencePiece(str(write_vocabulary(tmp_path / "a.model")))
    convert(replace(tiny_source(), vocabulary=vocabulary), tmp_path / "out", SPANLOOM)
    shutil.move(tmp_path / "out", tmp_path / "moved")
    (tmp_path / "a.model").unlink()
    read = read_model(tmp_path / "moved")
    assert read.vocabulary.path == str(tmp_path / "moved" / "spiece.model")


@pytest.mark.parametrize("damage", ["cut", "flip", "lose"])
def test_a_damaged_file_is_refused_whichever_it_is(converted, tmp_path, damage):
    _, folder = converted
    files = sorted(path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    assert len(files) > 5
    for number, name in enumerate(files):
        copy = tmp_path / str(number)
        shutil.copytree(folder, copy)
        content = (copy / name).read_bytes()
        if damage == "cut":
            (copy / name).write_bytes(content[:-1])
        elif damage == "flip":
            (copy / name).write_bytes(content[:5] + bytes([content[5] ^ 1]) + content[6:])
        else:
            (copy / name).unlink()
        with pytest.raises(ConversionError):
            read_model(copy)
        shutil.rmtree(copy)


@pytest.mark.parametrize(
    "change",
    [
        {"format": 2},
        {"model": None},
        {"model": {"class": "Model", "vocab_size": 10**9}},
        {"step": "x"},
        {"optimizer": {"rules": "mine", "axes": {}}},
        {"optimizer": {"rules": "logical", "axes": {"v_row": {"x": ["embed"]}}}},
        {"optimizer": 3},
        {"t5x_layout": {"scanned": True, "more": 1}},
        {"t5x_layout": [1]},
    ],
    ids=str,
)
def test_a_description_that_nobody_wrote_is_refused(converted, tmp_path, change):
    from spanloom.conversion.converted import open_converted

    _, folder = converted
    shutil.copytree(folder, tmp_path / "copy")
    path = tmp_path / "copy" / "model.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(ConversionError, match=r"model\.json|params"):
        open_converted(tmp_path / "copy")


def test_a_run_starts_from_it(converted, tmp_path):
    source, folder = converted
    run = replace(tiny_run(tmp_path / "text.txt", 3), model=source.model, start=str(folder)).resolve()
    start = load_start(run, find_start(run))
    assert same_arrays(start.params, source.params)
    assert start.opt_state is None and "optimizer fresh" in start.description
    assert any("--task.vocabulary.sentinels google" in line for line in start.warnings)
    with pytest.raises(StartError, match="holds no state of Adafactor"):
        find_start(replace(run, follow=Follow(optimizer="continue")))
    with pytest.raises(StartError, match="has weights alone"):
        find_start(replace(run, follow=Follow(schedule="continue")))
    with pytest.raises(StartError, match="holds another model"):
        find_start(replace(run, model=replace(run.model, d_ff=20)))


def test_every_command_takes_it(converted, tmp_path, capsys):
    _, folder = converted
    assert main(["inspect", str(folder)]) == 0
    said = capsys.readouterr().out
    assert "Spanloom, converted" in said and "google: 11 ids" in said and "3 encoder, 2 decoder" in said
    assert main(["convert", str(folder), str(tmp_path / "hf")]) == 0
    assert "a Hugging Face folder" in capsys.readouterr().out
    assert main(["convert", str(tmp_path / "hf"), str(tmp_path / "back")]) == 0
    assert "a Spanloom model" in capsys.readouterr().out
    model = spanloom.load(folder)
    assert (
        model.generate(["a"], max_length=3)[0].text
        == spanloom.load(tmp_path / "back").generate(["a"], max_length=3)[0].text
    )
    assert main(["convert", str(folder), str(folder / "inside")]) == 1
    assert main(["inspect", str(folder), "--which", "best"]) == 1
    assert main(["convert", str(folder), str(tmp_path / "x"), "--vocabulary", "bytes"]) == 1
    assert not (tmp_path / "x").exists()


def test_recipes_find_model_and_vocabulary(converted):
    from spanloom.recipes._start import model_and_vocabulary

    source, folder = converted
    assert model_and_vocabulary(str(folder)) == (source.model, source.vocabulary)

    assert list(stored_converted(folder).weights) == list(flatten(declare(source.model)))


FULL = """
import resource, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from tiny_model import tiny_source
from spanloom.conversion.convert import HUGGING_FACE, convert
from spanloom.conversion.t5x_write import T5X
from spanloom.pipeline.durable import StorageError
from spanloom.training.converted import SPANLOOM
source, work = tiny_source(), Path(sys.argv[2])
resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))
for form in (HUGGING_FACE, T5X, SPANLOOM):
    try:
        convert(source, work / "out", form)
        print("written")
    except StorageError as error:
        print("no room to write" in str(error), [path.name for path in work.iterdir()])
"""


def test_a_full_disk_is_said_and_leaves_nothing(tmp_path):
    """In every format: files may not grow beyond 8 KiB, which the system calls the same kind of error."""
    (tmp_path / "work").mkdir()
    tests = str(Path(__file__).resolve().parent.parent)
    run = [sys.executable, "-c", FULL, tests, str(tmp_path / "work")]
    ended = subprocess.run(run, capture_output=True, text=True)
    assert ended.stdout.splitlines() == ["True []"] * 3, ended.stderr[-2000:]
