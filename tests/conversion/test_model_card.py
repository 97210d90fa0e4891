"""The card's metadata is what the Hub takes, its lineage reaches back, and its example runs."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from conversion.conftest import random_params
from golden_data import absent, shared_dir

from spanloom.conversion.huggingface import read_lineage, write_folder
from spanloom.conversion.model_card import model_card
from spanloom.conversion.stored_model import as_stored
from spanloom.conversion.trained_model import Lineage, TrainedModel
from spanloom.settings.model import Model
from spanloom.settings.objectives import FullLM, SpanCorruption, Supervised
from spanloom.settings.run import Run
from spanloom.settings.task import PairFiles, PythonDocs, Task, TextFiles
from spanloom.settings.vocabulary import Bytes, SentencePiece, Vocabulary

TINY = Model(vocab_size=384, d_model=8, d_ff=8, num_heads=1, d_kv=4, num_encoder_layers=1, num_decoder_layers=1)
CACHE = "/home/me/.cache/huggingface/hub/models--google--byt5-small/snapshots/" + "68377bdc" * 5
TEXT = Task("novels", TextFiles(("corpus/*.txt",)), objective=SpanCorruption(inputs_length=128))


def run_of(task: Task = TEXT, **more) -> Run:
    return Run(name="r", task=task, model=TINY, batch_size=4, steps=100, **more)


def card(lineage: Lineage) -> str:
    return model_card(TINY, Bytes(), lineage, folder="out", model_type="t5", num_params=1, dtype="float32")


def metadata(text: str) -> dict:
    assert text.startswith("---\n")
    return yaml.safe_load(text.split("---\n")[1])


LINEAGES = {
    "unknown": Lineage("runs/a"),
    "text": Lineage("/x/runs/a/checkpoints/100", run_of(), 100, "ab" * 16, {"held-out loss": 1.5}),
    "english": Lineage("/x/runs/a/checkpoints/100", run_of(Task("docs", PythonDocs())), 100),
    "continued": Lineage("/x/runs/a/checkpoints/100", run_of(start=CACHE), 100, started_from=CACHE),
    "converted": Lineage(CACHE),
}


@pytest.mark.parametrize("name", LINEAGES)
def test_metadata_says_what_is_certain_in_yaml_that_the_library_reads(tmp_path, name):
    text = card(LINEAGES[name])
    found = metadata(text)
    assert found.pop("library_name") == "transformers"
    assert found.pop("pipeline_tag") == "text2text-generation"
    assert found.pop("tags") == ["t5", "text2text-generation", "spanloom"]
    assert found == {
        **({"base_model": "google/byt5-small"} if name in ("continued", "converted") else {}),
        **({"language": ["en"]} if name == "english" else {}),
    }, "no licence that nobody chose"
    try:
        from huggingface_hub import ModelCard, metadata_load
    except ImportError:
        absent("the package huggingface_hub is not installed: pip install 'spanloom[hub]'")
    (tmp_path / "README.md").write_text(text)
    assert metadata_load(tmp_path / "README.md") == metadata(text)
    data = ModelCard(text).data
    assert (data.library_name, data.license) == ("transformers", None)
    assert data.to_dict() == metadata(text)


def test_the_chain_of_stages_is_told_earliest_first_and_without_paths(tmp_path):
    first = Lineage("/x/runs/two/1-en/checkpoints/100", run_of(start=CACHE), 100, "a", {"held-out loss": 2.5}, CACHE)
    second = Lineage("/x/runs/two/2-de/checkpoints/50", run_of(), 50, "b", {}, first.origin)
    moved = {"ids": 50, "copied": 40, "from_parts": 9, "from_mean": 1, "new_sentinels": 0}
    home = "/x/runs/c/checkpoints/7"
    last = Lineage(home, run_of(), 7, "c" * 8, {}, second.origin, {"jax": "1"}, moved, (first, second))
    text = card(last)
    stages = [line for line in text.splitlines() if line[:3] in ("1. ", "2. ", "3. ")]
    assert stages == [
        "1. `1-en/checkpoints/100`: data: text files `corpus/*.txt`; objective: span corruption, 128 input tokens, 15% "
        "masked in spans of 3 tokens on average; 100 steps of 4 sequences (400 sequences; 51,200 tokens read, padding "
        "included); started from `google/byt5-small@68377bdc6837`; held-out loss: 2.5000",
        "2. `2-de/checkpoints/50`: data: text files `corpus/*.txt`; objective: span corruption, 128 input tokens, 15% "
        "masked in spans of 3 tokens on average; 50 steps of 4 sequences (200 sequences; 25,600 tokens read, padding "
        "included); started from `1-en/checkpoints/100`",
    ]
    assert "started from `2-de/checkpoints/50`" in text and f"checkpoint {'c' * 8}" in text
    assert "\n- another vocabulary than before: 50 rows of the new vocabulary: 40 copied by piece, 9 the mean" in text
    assert "/x/" not in text and "/home" not in text
    assert metadata(text)["base_model"] == "google/byt5-small"
    folder = tmp_path / "out"
    folder.mkdir()
    write_folder(folder, as_stored(TrainedModel(TINY, random_params(TINY), Bytes(), last)), name="out")
    assert read_lineage(folder) == last, "the export says it as well"


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_card_says_in_what_the_weights_are_written(tmp_path, dtype):
    source = as_stored(TrainedModel(TINY, random_params(TINY), Bytes(), Lineage("runs/a")))
    write_folder(tmp_path, source, name="out", dtype=dtype)
    assert json.loads((tmp_path / "config.json").read_text())["torch_dtype"] == dtype
    assert f"Weights are {dtype}." in (tmp_path / "README.md").read_text()


KINDS: dict[str, tuple[str, str, Task]] = {
    "byt5": ("byt5_x", "", TEXT),
    "byt5_google": ("byt5_x", "google", TEXT),
    "byt5_in_umt5": ("umt5_x", "", TEXT),
    "t5_1_1": ("t5_1_1_x", "t5", TEXT),
    "t5_tied": ("t5_x", "t5", replace(TEXT, objective=FullLM())),
    "mt5": ("mt5_x", "mt5", TEXT),
    "umt5": ("umt5_x", "umt5", TEXT),
    "pairs": ("byt5_x", "", Task("p", PairFiles(("a.tsv",), inputs="say: {0}", targets="1"), objective=Supervised())),
}


def vocabulary_of(kind: str) -> Vocabulary:
    if kind in ("", "google"):
        return Bytes(sentinels="google" if kind else "huggingface")
    folder = shared_dir("data", "tokenizers", "mt5" if kind == "mt5" else "t5")
    return SentencePiece(str(folder / "spiece.model"), extra_ids=300 if kind == "umt5" else 100)


@pytest.mark.parity
def test_the_example_of_the_card_runs_as_it_stands(tmp_path, hugging_face):
    cases = {}
    for name, (model_name, kind, task) in KINDS.items():
        size = {"mt5": 250112, "t5": 32128, "umt5": 32512}.get(kind, 384)
        model = replace(
            TINY,
            vocab_size=size,
            name=model_name,
            tie_embeddings=name == "t5_tied",
            per_layer_position_bias=model_name == "umt5_x",
        )
        folder: Path = tmp_path / name
        folder.mkdir()
        lineage = Lineage("/x/runs/a/checkpoints/1", run_of(task), 1)
        source = TrainedModel(model, random_params(model), vocabulary_of(kind), lineage)
        write_folder(folder, as_stored(source), name=name)
        cases[name] = {"folder": str(folder), "example": True}
    report, _ = hugging_face(tmp_path, cases, {})
    assert {name: report[name]["example"] for name in KINDS if not report[name]["example"].strip()} == {}
