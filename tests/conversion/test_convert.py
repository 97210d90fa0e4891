"""An export appears whole, checked, or not at all."""

import contextlib
import errno
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import jax
import pytest
import sentencepiece
from golden_data import shared_dir
from same_weights import different_weights

from spanloom.conversion import hf_weights, huggingface
from spanloom.conversion.convert import ParityError, convert_to_hf, model_from_hf
from spanloom.conversion.errors import ConversionError
from spanloom.conversion.huggingface import import_hf
from spanloom.conversion.stored_model import as_stored
from spanloom.conversion.trained_model import Lineage
from spanloom.pipeline.durable import StorageError
from spanloom.settings.objectives import SpanCorruption, Supervised
from spanloom.settings.run import Run
from spanloom.settings.task import PairFiles, PythonDocs, Task, TextFiles
from spanloom.settings.vocabulary import Bytes, SentencePiece


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.short
def test_report_and_files(tmp_path, tiny, make_source):
    report = convert_to_hf(make_source(tiny), tmp_path / "new" / "out")
    assert report.largest_difference == 0
    assert set(report.files) == {
        "README.md",
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "spanloom.json",
        "special_tokens_map.json",
        "tokenizer_config.json",
    }
    assert "differ by at most 0.0e+00 (allowed 1e-04)" in report.describe()
    assert names(tmp_path / "new") == ["out"]
    config = json.loads((tmp_path / "new" / "out" / "config.json").read_text())
    assert config["tie_word_embeddings"] is False
    assert (config["decoder_start_token_id"], config["pad_token_id"], config["eos_token_id"]) == (0, 0, 1)
    assert (config["vocab_size"], config["num_decoder_layers"]) == (384, 1)


def test_jax_arrays_are_converted_too(tmp_path, tiny, make_source):
    source = make_source(tiny)
    on_device = replace(source, params=jax.tree.map(jax.numpy.asarray, source.params))
    convert_to_hf(on_device, tmp_path / "out")
    assert different_weights(source.params, import_hf(tmp_path / "out").params) == []


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_folder_that_is_no_export_is_never_written_into(tmp_path, tiny, make_source, overwrite):
    out = tmp_path / "out"
    out.mkdir()
    (out / "notes.txt").write_text("mine")
    with pytest.raises(ConversionError, match="not an earlier export, so it stays as it is"):
        convert_to_hf(make_source(tiny), out, overwrite=overwrite)
    assert names(out) == ["notes.txt"]
    assert names(tmp_path) == ["out"]


def test_an_export_of_another_run_is_only_replaced_when_told(tmp_path, tiny, make_source):
    """Other checkpoints of one run, and what was exported from them, are one lineage."""
    first, later, other = (
        replace(make_source(tiny, seed=seed), lineage=Lineage(str(tmp_path / place)))
        for seed, place in enumerate(("a/checkpoints/1", "a/checkpoints/2", "b/checkpoints/2"))
    )
    out = tmp_path / "out"
    convert_to_hf(first, out)
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    with pytest.raises(ConversionError, match=r"exported from \S+/a, not from \S+/b: .*--overwrite"):
        convert_to_hf(other, out)
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before
    convert_to_hf(later, out)
    convert_to_hf(model_from_hf(out), tmp_path / "copy")
    convert_to_hf(first, tmp_path / "copy")
    convert_to_hf(other, out, overwrite=True)
    assert different_weights(other.params, import_hf(out).params) == []


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("what", ["notes", "another model", "another model that a kill left aside"])
def test_what_comes_to_the_destination_meanwhile_is_asked_about_as_well(tmp_path, tiny, make_source, what, overwrite):
    one, other = (replace(make_source(tiny), lineage=Lineage(str(tmp_path / name))) for name in "ab")
    out, dead = tmp_path / "out", subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    convert_to_hf(other, tmp_path / "other")
    if aside := what.endswith("aside"):
        (tmp_path / "other").rename(tmp_path / f".out.replaced-{dead.pid}")

    def meanwhile(line):
        if "reading it back" in line and what == "notes":
            out.mkdir()
            (out / "README.md").write_text("notes")
        elif "reading it back" in line and not aside:
            (tmp_path / "other").rename(out)

    refused = what == "notes" or not overwrite
    with pytest.raises(ConversionError) if refused else contextlib.nullcontext() as caught:
        convert_to_hf(one, out, overwrite=overwrite, progress=meanwhile)
    if what == "notes":
        assert names(out) == ["README.md"] and (out / "README.md").read_text() == "notes"
    else:
        kept = json.loads((out / "spanloom.json").read_text())["origin"]
        assert kept == (other if refused else one).lineage.origin
    assert not refused or ("not an earlier export" if what == "notes" else "--overwrite") in str(caught.value)
    assert not [name for name in names(tmp_path) if name.startswith(".")]


def test_an_export_whose_mark_is_damaged_is_of_nobody(tmp_path, tiny, make_source):
    out = tmp_path / "out"
    convert_to_hf(make_source(tiny), out)
    (out / "spanloom.json").write_text("{}")
    with pytest.raises(ConversionError, match="--overwrite"):
        convert_to_hf(make_source(tiny), out)
    convert_to_hf(make_source(tiny), out, overwrite=True)


def test_an_earlier_export_is_replaced_and_other_files_stay(tmp_path, tiny, make_source):
    out = tmp_path / "out"
    convert_to_hf(make_source(tiny), out, max_shard_bytes=5000)
    (out / ".git").mkdir()
    (out / ".git" / "HEAD").write_text("ref")
    second = make_source(tiny, seed=1)
    convert_to_hf(second, out)
    assert (out / ".git" / "HEAD").read_text() == "ref"
    assert not list(out.glob("model-*")), "shards of the earlier export are gone"
    assert different_weights(second.params, import_hf(out).params) == []
    assert names(tmp_path) == ["out"]


@pytest.mark.parametrize("name", ["run.json", "checkpoint.json", "checkpoints"])
def test_a_run_is_never_overwritten(tmp_path, tiny, make_source, name):
    (tmp_path / "out" / name).mkdir(parents=True)
    with pytest.raises(ConversionError, match="never replaces"):
        convert_to_hf(make_source(tiny), tmp_path / "out", overwrite=True)


def test_a_file_as_destination_is_refused(tmp_path, tiny, make_source):
    (tmp_path / "out").write_text("")
    with pytest.raises(ConversionError, match="is a file"):
        convert_to_hf(make_source(tiny), tmp_path / "out", overwrite=True)


def test_a_full_disk_leaves_nothing(tmp_path, tiny, make_source, monkeypatch):
    def full(*args, **kwargs):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(hf_weights, "write_file", full)
    with pytest.raises(StorageError, match="no room to write"):
        convert_to_hf(make_source(tiny), tmp_path / "out")
    assert names(tmp_path) == []


def test_a_failed_comparison_leaves_nothing(tmp_path, tiny, make_source, monkeypatch):
    def wrong_epsilon(config, path, name="custom"):
        return replace(original(config, path, name), norm_epsilon=1e-2)

    original = huggingface.hf_config.from_config
    monkeypatch.setattr(huggingface.hf_config, "from_config", wrong_epsilon)
    with pytest.raises(ParityError, match=r"log-probabilities .* differ by"):
        convert_to_hf(make_source(tiny), tmp_path / "out")
    assert names(tmp_path) == []


def test_wrong_weights_are_noticed(tmp_path, tiny, make_source, monkeypatch):
    other = as_stored(make_source(tiny, seed=9)).weights
    write = hf_weights.write_weights
    monkeypatch.setattr(hf_weights, "write_weights", lambda folder, model, weights, *rest: write(folder, model, other))
    with pytest.raises(ParityError, match="weights read back differ"):
        convert_to_hf(make_source(tiny), tmp_path / "out")


def test_a_vocabulary_too_large_is_refused_before_anything_is_written(tmp_path, tiny, make_source):
    with pytest.raises(ValueError, match="384 ids, but the embedding only 300 rows"):
        convert_to_hf(make_source(replace(tiny, vocab_size=300)), tmp_path / "out")
    assert names(tmp_path) == []


def test_settings_that_do_not_fit_the_weights_are_refused(tmp_path, tiny, make_source):
    with pytest.raises(ValueError, match="call for"):
        convert_to_hf(replace(make_source(tiny), model=replace(tiny, d_ff=32)), tmp_path / "out")


def test_a_missing_sentencepiece_model_is_named(tmp_path, tiny, make_source):
    with pytest.raises(ValueError, match=r"gone\.model"):
        convert_to_hf(make_source(tiny, SentencePiece(str(tmp_path / "gone.model"))), tmp_path / "out")


def test_activations_without_a_name_there_are_refused(tmp_path, tiny, make_source):
    with pytest.raises(ValueError, match="cannot be written for Hugging Face"):
        convert_to_hf(make_source(replace(tiny, activations=("gelu", "gelu"))), tmp_path / "out")
    assert names(tmp_path) == []


KILLED = """
import sys, time
from pathlib import Path
from spanloom.conversion.staging import staged
with staged(Path(sys.argv[1])) as folder:
    (folder / "spanloom.json").write_text("{}")
    print("writing", flush=True)
    time.sleep(60)
"""


def test_a_kill_leaves_nothing_that_passes_for_an_export(tmp_path, tiny, make_source):
    out = tmp_path / "out"
    convert_to_hf(make_source(tiny), out)
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    process = subprocess.Popen([sys.executable, "-c", KILLED, str(out)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before
    assert len(names(tmp_path)) == 2
    convert_to_hf(make_source(tiny, seed=2), out)
    assert names(tmp_path) == ["out"], "the next export removes what the killed one left"


def test_an_export_killed_between_two_renames_is_put_back(tmp_path, tiny, make_source):
    out = tmp_path / "out"
    convert_to_hf(make_source(tiny), out)
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    time.sleep(0.01)
    out.rename(tmp_path / f".out.replaced-{dead.pid}")
    (tmp_path / "out2").mkdir()
    convert_to_hf(make_source(tiny, seed=2), out)
    assert names(tmp_path) == ["out", "out2"]


def test_a_running_export_of_another_process_is_left_alone(tmp_path, tiny, make_source):
    running = tmp_path / f".out.partial-{os.getppid()}"
    running.mkdir()
    convert_to_hf(make_source(tiny), tmp_path / "out")
    assert running.is_dir()


def test_a_folder_is_not_converted_onto_itself(tmp_path, tiny, make_source):
    convert_to_hf(make_source(tiny), tmp_path / "out")
    with pytest.raises(ConversionError, match="is the source itself"):
        convert_to_hf(model_from_hf(tmp_path / "out"), tmp_path / "out")


# ---- the model card ----


def card(tmp_path: Path, source) -> str:
    convert_to_hf(source, tmp_path / "out")
    return (tmp_path / "out" / "README.md").read_text("utf-8")


def test_the_card_tells_data_steps_losses_lineage_and_sentinels(tmp_path, tiny, make_source):
    task = Task("novels", TextFiles(files=("corpus/*.txt",)), objective=SpanCorruption(mean_span_length=20))
    run = Run(name="hist", task=task, model=tiny, batch_size=32, steps=1000)
    lineage = Lineage(
        "runs/a", run, step=700, losses={"held-out loss": 1.25, "training loss": float("nan")}, started_from="base/hf"
    )
    text = card(tmp_path, replace(make_source(tiny), lineage=lineage))
    for part in (
        "# a\n",
        "`corpus/*.txt`",
        "15% masked in spans of 20 tokens",
        "700 steps of 32 sequences (22,400 sequences; 11,468,800 tokens read, padding included)",
        "held-out loss: 1.2500",
        "started from `base/hf`",
        "ids 259, 260, ... 383",
        "chooses its licence",
        'from_pretrained("out")',
        "Thank you <extra_id_0>",
        "read from `runs/a`, step 700",
    ):
        assert part in text, part
    mark = json.loads((tmp_path / "out" / "spanloom.json").read_text())
    assert mark["step"] == 700
    assert mark["losses"]["training loss"] == "nan"
    assert mark["run"]["name"] == "hist"
    assert replace(model_from_hf(tmp_path / "out").lineage, losses={}) == replace(lineage, losses={})


def test_the_card_of_a_model_of_pairs_shows_inputs_and_targets(tmp_path, tiny, make_source):
    pairs = PairFiles(files=("a.tsv",), inputs="translate: {en}", targets="fr")
    run = Run(name="finetune", task=Task("x", pairs, objective=Supervised(targets_length=33)), model=tiny)
    text = card(tmp_path, replace(make_source(tiny), lineage=Lineage("/x/runs/b/checkpoints/3", run)))
    assert 'inputs = tokenizer("translate: {en}", return_tensors="pt")  # an input as in training' in text
    assert "the answer is a target (fr)" in text and "max_new_tokens=33" in text
    assert "# b\n" in text and "party" not in text


def test_the_card_holds_no_absolute_path(tmp_path, tiny, make_source):
    task = Task("x", TextFiles(files=("/home/me/corpus/*.txt",), heldout_files=("/home/me/h.txt",)))
    run = Run(name="pretrain", task=task, model=tiny, start="/home/me/runs/a/checkpoints/5")
    lineage = Lineage("/home/me/runs/b/checkpoints/7", run, 7, started_from=run.start)
    text = card(tmp_path, replace(make_source(tiny), lineage=lineage))
    assert "/home" not in text
    for part in ("# b\n", "read from `b`, step 7", "text files `*.txt`", "started from `a/checkpoints/5`"):
        assert part in text, part


@pytest.mark.parametrize("tied", [True, False])
def test_the_card_speaks_of_the_warning_that_untied_models_get(tmp_path, tiny, make_source, tied):
    text = card(tmp_path, make_source(replace(tiny, tie_embeddings=tied)))
    assert ("so that it does not tie them. That is right" in text) is not tied


def test_the_card_says_where_sentencepiece_sentinels_are(tmp_path, tiny, make_source):
    path = shared_dir("data", "tokenizers", "t5") / "spiece.model"
    source = make_source(replace(tiny, vocab_size=32128, d_model=4), SentencePiece(str(path)))
    assert "appended after the pieces" in card(tmp_path, source)


def test_the_card_warns_of_sentinels_the_tokenizer_class_does_not_know(tmp_path, tiny, make_source):
    text = card(tmp_path, make_source(tiny, Bytes(sentinels="google")))
    assert "ids 258, 257, ... 248" in text
    assert "not what ByT5Tokenizer does by itself" in text


@pytest.mark.parametrize(
    ("source", "objective", "expected"),
    [
        (PythonDocs(), SpanCorruption(), "ships inside CPython"),
        (PairFiles(files=("a.tsv",), inputs="0", targets="1"), Supervised(), "pairs (0 to 1) of `a.tsv`"),
    ],
)
def test_the_card_knows_every_source(tmp_path, tiny, make_source, source, objective, expected):
    run = Run(name="x", task=Task("x", source, objective=objective), model=tiny)
    assert expected in card(tmp_path, replace(make_source(tiny), lineage=Lineage("runs/a", run)))


def test_special_ids_are_those_of_the_vocabulary(tmp_path, tiny, make_source):
    (tmp_path / "text.txt").write_text("a small text of a few words\n" * 20)
    sentencepiece.SentencePieceTrainer.train(
        input=str(tmp_path / "text.txt"),
        model_prefix=str(tmp_path / "other"),
        minloglevel=2,
        vocab_size=40,
        hard_vocab_limit=False,
        pad_id=0,
        unk_id=1,
        bos_id=2,
        eos_id=3,
    )
    out = tmp_path / "out"
    convert_to_hf(make_source(tiny, SentencePiece(str(tmp_path / "other.model"))), out)
    for name in ("config.json", "generation_config.json"):
        assert json.loads((out / name).read_text())["eos_token_id"] == 3
    tokenizer = json.loads((out / "tokenizer.json").read_text())
    assert tokenizer["model"]["unk_id"] == 1
    assert tokenizer["post_processor"]["special_tokens"]["</s>"]["ids"] == [3]
    assert model_from_hf(out).vocabulary.path == str(out / "spiece.model")

    config = json.loads((out / "config.json").read_text())
    (out / "config.json").write_text(json.dumps(config | {"eos_token_id": 1}))
    with pytest.raises(ConversionError, match="eos_token_id is 1; this model has 3"):
        model_from_hf(out)
