"""lm_adaptation and mt0 from a folder as mT5 was released: its own vocabulary, whose sentinels are pieces of it."""

import json
from dataclasses import replace

import numpy as np
import pytest
from golden_data import shared_dir
from tiny_model import TINY, tiny_source

from spanloom.cli.main import main
from spanloom.conversion.huggingface import read_settings, write_folder
from spanloom.conversion.stored_model import as_stored
from spanloom.pipeline.data import open_data
from spanloom.recipes import mt0
from spanloom.settings.vocabulary import SentencePiece
from spanloom.vocabularies.build import build

# All of one part of `make check`, so that the runs, a minute and a half, are made once.
pytestmark = [pytest.mark.long, pytest.mark.parity]
ROWS, PIECES = 250_112, 250_100
"""Of its embedding, and of its vocabulary: the last twelve rows are of no token."""
LITTLE = ["--model.dtype", "float32", "--model.remat", "none", "--eval.max-batches", "1", "--eval.batch-size", "2"]
LITTLE += ["--log.tensorboard", "false", "--after.export", "false", "--after.baselines", "false", "--after.fills", "0"]
LITTLE += ["--batch-size", "2", "--inputs-length", "32", "--heldout-share", "0.2"]
SENTENCES = {
    "en": "The trout and the heron, number {}.",
    "hu": "A pisztráng és a gém, {}. szám.",
    "hi": "मछली और बगुला {}",
}


def spanloom(*words):
    assert main([str(word) for word in words]) == 0


@pytest.fixture(scope="module")
def pieces():
    return shared_dir("data", "tokenizers", "mt5") / "spiece.model"


@pytest.fixture(scope="module")
def trained(tmp_path_factory, pieces):
    """The folder of mt5, as released but narrow; lm, adapted from it and gone on with; mt0, from lm; and its export."""
    folder = tmp_path_factory.mktemp("mt5")
    (folder / "mt5").mkdir()
    source = tiny_source(model=replace(TINY, vocab_size=ROWS, d_model=8, name="mt5_x"))
    write_folder(folder / "mt5", as_stored(replace(source, vocabulary=SentencePiece(str(pieces)))), name="tiny")
    for name, text in SENTENCES.items():
        (folder / f"{name}.txt").write_text("".join(f"{text.format(n)}\n" for n in range(40)), encoding="utf-8")
        (folder / "xP3" / name).mkdir(parents=True)
        rows = ({"inputs": text.format(n), "targets": f"{n}, {name}"} for n in range(20))
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / "xP3" / name / "pairs.jsonl").write_text(lines, encoding="utf-8")
    text = ["--text", *(folder / f"{name}.txt" for name in SENTENCES)]
    for steps in ("1", "2"):
        given = [*text, "--start", folder / "mt5", *LITTLE, "--steps", steps]
        spanloom("train", "lm_adaptation", *given, "--out", folder / "lm")
    pairs = ["--data", folder / "xP3", "--targets-length", "16", "--start", folder / "lm"]
    spanloom("train", "mt0", *pairs, *LITTLE, "--steps", "2", "--out", folder / "mt0")
    spanloom("convert", folder / "mt0", folder / "hf", "--to", "hf")
    return folder


def test_both_learn_a_few_steps_and_go_on(trained):
    for run in ("lm", "mt0"):
        lines = map(json.loads, (trained / run / "metrics.jsonl").read_text().splitlines())
        losses = {line["step"]: line["loss"] for line in lines if line["kind"] == "train"}
        assert losses and all(np.isfinite(loss) for loss in losses.values())
    steps = sorted(int(path.name) for path in (trained / "lm" / "checkpoints").iterdir() if path.name.isdigit())
    assert steps[-1] == 2


def test_ids_are_those_of_the_pieces_and_never_of_the_rows_beyond(trained, pieces):
    processor = pytest.importorskip("sentencepiece").SentencePieceProcessor(model_file=str(pieces))
    run = mt0.recipe(str(trained / "xP3"), str(trained / "lm"), inputs_length=32, targets_length=16, heldout_share=0.2)
    assert run.model.vocab_size == ROWS
    data = open_data(run.resolve(), trained / "mt0")
    assert [one.task.name for one in data.tasks] == sorted(SENTENCES)
    for one in data.tasks:
        wanted = {tuple(processor.encode(SENTENCES[one.task.name].format(n))) for n in range(20)}
        for store in (one.train.store, one.heldout.store):
            found = [store.columns["inputs"].row(number) for number in range(store.num_rows)]
            assert {tuple(ids) for ids in found} <= wanted and max(map(max, found)) < PIECES
    assert data.vocabulary.eos_id == 1


def test_the_export_has_the_vocabulary_and_its_sentinels(trained, pieces):
    settings = read_settings(trained / "hf")
    assert settings.model.vocab_size == ROWS
    assert settings.vocabulary == SentencePiece(str(trained / "hf" / "spiece.model"), "pieces", 0)
    assert (trained / "hf" / "spiece.model").read_bytes() == pieces.read_bytes()
    vocabulary = build(settings.vocabulary)
    assert vocabulary.size == PIECES and vocabulary.sentinels == tuple(range(PIECES - 1, PIECES - 101, -1))


def test_transformers_reads_the_export(trained):
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    model, info = transformers.AutoModelForSeq2SeqLM.from_pretrained(trained / "hf", output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"] and model.config.model_type == "mt5"
    assert model.get_input_embeddings().weight.shape == (ROWS, 8)
    tokenizer = transformers.AutoTokenizer.from_pretrained(trained / "hf")
    text = f"{SENTENCES['hu'].format(3)} {SENTENCES['hi'].format(4)}"
    ids = tokenizer(text).input_ids
    ours = build(read_settings(trained / "hf").vocabulary)
    assert ids == [*ours.encode(text).tolist(), 1]
    assert tokenizer.convert_tokens_to_ids("<extra_id_0>") == ours.sentinels[0]
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([ids]), decoder_input_ids=torch.tensor([[0]])).logits
    assert logits.shape == (1, 1, ROWS) and bool(torch.isfinite(logits).all())
