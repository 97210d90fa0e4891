"""Checkpoints for T5X: what is written is what T5X itself would write, and is known again without asking."""

import errno
import json
import shutil
from dataclasses import replace
from functools import partial

import msgpack
import numpy as np
import pytest
import sentencepiece
from golden_data import golden_dir
from t5x_files import random_weights
from t5x_files import write_t5x as make_t5x
from vocabulary_models import sentences, write_model

from spanloom.conversion import t5x_write
from spanloom.conversion.convert import Output, ParityError, convert, convert_to_hf, stored_hf
from spanloom.conversion.errors import ConversionError
from spanloom.conversion.stored_model import StoredModel, as_stored
from spanloom.conversion.t5x import open_t5x, stored_t5x
from spanloom.conversion.t5x_checkpoint import open_checkpoint
from spanloom.conversion.t5x_places import Layout
from spanloom.conversion.t5x_weights import memory_of
from spanloom.conversion.t5x_write import T5X, write_t5x
from spanloom.conversion.trained_model import Lineage
from spanloom.pipeline.durable import StorageError
from spanloom.settings.vocabulary import Bytes, SentencePiece

GOLDEN = {"legacy_float32": 65536, "legacy_bfloat16": 1 << 26, "scan_legacy": 8192}
LAYOUTS = [Layout(), Layout(heads_apart=True), Layout(scanned=True, heads_apart=True)]


def content(folder):
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.golden
@pytest.mark.parametrize(("name", "limit"), GOLDEN.items())
def test_a_golden_checkpoint_comes_out_as_it_was(tmp_path, name, limit, monkeypatch):
    """Every array to the bit, and every file of T5X's but the compressed chunks to the byte."""
    original = next(golden_dir("t5x", "checkpoints", name).glob("checkpoint_*"))
    opened = open_t5x(original)
    source = as_golden(opened, original)
    form = replace(T5X, write=partial(write_t5x, chunk_bytes=limit))
    dtype = "keep" if "bfloat16" in name else "float32"
    write(tmp_path / "out", source, form, dtype)
    written = tmp_path / "out" / original.name
    before, after = content(original), content(written)
    assert before.keys() == after.keys()
    for file, bytes_before in before.items():
        if file == "checkpoint" or file.endswith(".zarray"):
            assert after[file] == bytes_before, file
    one, other = open_checkpoint(original), open_checkpoint(written)
    assert one.step == other.step
    for mine, theirs in ((one.weights, other.weights), (one.slots, other.slots)):
        assert mine.keys() == theirs.keys()
        for key, stored in mine.items():
            assert stored.dtype == theirs[key].dtype
            np.testing.assert_array_equal(stored.read().view(np.uint8), theirs[key].read().view(np.uint8), err_msg=key)


def as_golden(opened, path):
    memory = memory_of(opened.model, opened.kept, opened.checkpoint.step)
    return StoredModel(opened.model, opened.weights(), Bytes(), Lineage(str(path)), path, memory, opened.layout)


def write(folder, source, form, dtype):
    """Without the checks: golden models have fewer rows than any vocabulary has ids."""
    folder.mkdir()
    form.write(folder, source, Output("x", dtype))


@pytest.mark.parametrize(
    "changes",
    [{}, {"tie_embeddings": True, "activations": ("relu",)}, {"per_layer_position_bias": True}, {"vocab_size": 512}],
    ids=["untied", "tied", "umt5", "padded"],
)
def test_hugging_face_to_t5x_and_back_is_equal_to_the_bit(tmp_path, tiny, make_source, changes):
    convert_to_hf(make_source(replace(tiny, num_encoder_layers=3, **changes)), tmp_path / "hf")
    report = convert(stored_hf(tmp_path / "hf"), tmp_path / "t5x", T5X)
    assert report.largest_difference == 0 and report.num_tokens > 100
    assert any("come without an optimizer's memory" in note for note in report.notes)
    read = stored_t5x(tmp_path / "t5x")
    convert_to_hf(read, tmp_path / "again")
    weights = [(tmp_path / place / "model.safetensors").read_bytes() for place in ("hf", "again")]
    assert weights[0] == weights[1]
    assert stored_hf(tmp_path / "again").model == stored_hf(tmp_path / "hf").model


@pytest.mark.parametrize(("layout", "bfloat16"), list(zip(LAYOUTS, (True, False, True), strict=True)), ids=str)
def test_t5x_to_t5x_keeps_every_array(tmp_path, tiny, layout, bfloat16):
    weights = random_weights(tiny, layout, bfloat16=bfloat16)
    path = write_t5x_file(tmp_path / "base" / "checkpoint_70", weights)
    source = stored_t5x(path, vocabulary="bytes", activations=tiny.activations)
    assert convert(source, tmp_path / "kept", T5X, dtype="keep").largest_difference == 0
    found = open_checkpoint(tmp_path / "kept" / "checkpoint_70").weights
    assert {f"target/{name}" for name in found} == weights.keys()
    for name, stored in found.items():
        assert stored.read().tobytes() == weights[f"target/{name}"].tobytes(), name
    if layout != LAYOUTS[0]:
        return
    wide = convert(source, tmp_path / "wide", T5X, dtype="float32")
    narrow = convert(stored_t5x(tmp_path / "wide"), tmp_path / "narrow", T5X, dtype="bfloat16")
    assert not wide.rounded and narrow.rounded
    assert ("rounded to bfloat16" in narrow.describe()) and ("rounded" not in wide.describe().split("note")[0])
    # bfloat16 -> float32 -> bfloat16 loses nothing
    assert content(tmp_path / "narrow" / "checkpoint_70") == content(tmp_path / "kept" / "checkpoint_70")


def write_t5x_file(path, weights):
    return make_t5x(path, weights | {"state/step": np.asarray(70, np.int32)})


@pytest.mark.parametrize("convention", ["google", "huggingface"])
def test_sentinels_and_lineage_are_known_again(tmp_path, tiny, make_source, convention):
    lineage = Lineage("runs/a/checkpoints/9", step=9, losses={"held-out loss": 1.5})
    source = replace(make_source(tiny, Bytes(convention)), lineage=lineage)
    convert(source, tmp_path / "out", T5X)
    read = stored_t5x(tmp_path / "out")
    assert (read.vocabulary, read.lineage) == (Bytes(convention), lineage)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["checkpoint_9", "config.gin", "spanloom.json"]
    later = replace(source, lineage=replace(lineage, origin="runs/a/checkpoints/10", step=10))
    convert(later, tmp_path / "out", T5X)
    assert sorted(path.name for path in (tmp_path / "out").iterdir())[0] == "checkpoint_10"
    with pytest.raises(ConversionError, match="exported from"):
        convert(replace(source, lineage=Lineage("runs/b")), tmp_path / "out", T5X)
    with pytest.raises(ConversionError, match="is the source itself"):
        convert(stored_t5x(tmp_path / "out"), tmp_path / "out", T5X)


def test_a_sentencepiece_model_comes_along_and_is_not_looked_for_elsewhere(tmp_path, tiny, make_source):
    (tmp_path / "text.txt").write_text("a small text of a few words\n" * 20)
    sentencepiece.SentencePieceTrainer.train(
        input=str(tmp_path / "text.txt"), model_prefix=str(tmp_path / "m"), minloglevel=2, vocab_size=40,
        hard_vocab_limit=False, pad_id=0, eos_id=1, unk_id=2, bos_id=-1,
    )  # fmt: skip
    convert(make_source(tiny, SentencePiece(str(tmp_path / "m.model"))), tmp_path / "out", T5X)
    (tmp_path / "out" / "other.model").write_bytes(b"none")
    shutil.move(tmp_path / "out", tmp_path / "moved")
    assert stored_t5x(tmp_path / "moved").vocabulary.path == str(tmp_path / "moved" / "spiece.model")
    mark = tmp_path / "moved" / "spanloom.json"
    whole = json.loads(mark.read_text())
    mark.write_text(json.dumps(whole | {"vocabulary": whole["vocabulary"] | {"path": "../../m.model"}}))
    with pytest.raises(ConversionError, match=r"moved/m\.model: is missing"):
        stored_t5x(tmp_path / "moved")
    mark.write_text(json.dumps(whole | {"vocabulary": {"class": "Bytes", "sentinels": "mine"}}))
    with pytest.raises(ConversionError, match="names no vocabulary"):
        stored_t5x(tmp_path / "moved")


def test_a_model_file_that_was_exchanged_is_found_out(tmp_path, tiny, make_source):
    first, second = (write_model(tmp_path / f"{name}.model", sentences(400, seed)) for seed, name in enumerate("ab"))
    convert(make_source(replace(tiny, vocab_size=256), SentencePiece(first)), tmp_path / "out", T5X)
    for named in (None, first):
        assert stored_t5x(tmp_path / "out", vocabulary=named).model.vocab_size == 256
    with pytest.raises(ConversionError, match=r"b\.model: is not the SentencePiece model that was exported"):
        stored_t5x(tmp_path / "out", vocabulary=second)
    shutil.copy(second, tmp_path / "out" / "spiece.model")
    with pytest.raises(ConversionError, match=r"spiece\.model: is not the SentencePiece model that was exported"):
        stored_t5x(tmp_path / "out")
    with pytest.raises(ConversionError, match=r"spiece\.model: is not the SentencePiece model that was exported"):
        open_t5x(tmp_path / "out").vocabulary()


def test_what_t5x_has_no_setting_for_is_refused(tmp_path, tiny, make_source):
    for field, value in (("norm_epsilon", 1e-5), ("relative_position_max_distance", 64)):
        with pytest.raises(ValueError, match=f"T5X has {field}"):
            convert(make_source(replace(tiny, **{field: value})), tmp_path / "out", T5X)
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_leaves_nothing(tmp_path, tiny, make_source, monkeypatch):
    def full(*args):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(t5x_write.gzip, "compress", lambda *args, **kwargs: full())
    with pytest.raises(StorageError, match="no room to write"):
        convert(make_source(tiny), tmp_path / "out", T5X)
    assert list(tmp_path.iterdir()) == []


def test_an_optimizer_that_is_not_what_it_was_is_noticed(tmp_path, tiny, monkeypatch):
    weights = random_weights(tiny)
    slots = {
        f"state/param_states/{name.removeprefix('target/')}/{slot}": np.ones(
            array.shape if slot == "v" else (1,), np.float32
        )
        for name, array in weights.items()
        for slot in ("m", "v", "v_row", "v_col")
    }
    arrays = weights | slots | {"state/step": np.asarray(5, np.int32)}
    source = stored_t5x(make_t5x(tmp_path / "checkpoint_5", arrays), vocabulary="bytes", activations=tiny.activations)
    report = convert(source, tmp_path / "good", T5X)
    assert report.num_slots == sum(array.size for array in weights.values())
    assert "so is the optimizer's memory" in report.describe()
    index = msgpack.unpackb((tmp_path / "good" / "checkpoint_5" / "checkpoint").read_bytes())
    assert list(index["optimizer"]) == ["state", "target"]
    keep = t5x_write._slots
    monkeypatch.setattr(
        t5x_write, "_slots", lambda *args: [(slot, None if a is None else a * 2) for slot, a in keep(*args)]
    )
    with pytest.raises(ParityError, match="v/decoder/decoder_norm/scale"):
        convert(source, tmp_path / "bad", T5X)
    assert not (tmp_path / "bad").exists()


def test_one_part_is_read_at_a_time(tmp_path, tiny, make_source):
    source = as_stored(make_source(tiny))
    alive, most = 0, 0

    def counted(weight):
        def read(layer):
            nonlocal alive, most
            alive += 1
            most = max(most, alive)
            array = np.array(weight.read(layer))
            alive -= 1
            return array

        return replace(weight, read=read)

    weights = {name: counted(weight) for name, weight in source.weights.items()}
    convert(replace(source, weights=weights), tmp_path / "out", T5X)
    assert most == 1
