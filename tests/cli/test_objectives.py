"""Each objective from text to an exported model, with the real loop: losses fall, resuming is exact."""

import dataclasses
import io

import jax
import numpy as np
import pytest
from tiny_training import MODEL, losses, same_arrays, tiny_run, write_text

from spanloom.cli.closing import close_run
from spanloom.cli.main import main
from spanloom.settings.objectives import UL2, FullLM, IidDenoising, PrefixLM, SpanCorruption, TextInfilling
from spanloom.settings.run import After, Checkpoints, Evaluation
from spanloom.training import loop
from spanloom.training.checkpoint_paths import latest
from spanloom.training.checkpoints import restore
from spanloom.training.progress import PlainDisplay

STEPS = 24
OBJECTIVES = {
    "rolled": SpanCorruption(32, random_roll=True),
    "iid": IidDenoising(32),
    "prefix-lm": PrefixLM(32),
    "full-lm": FullLM(targets_length=32, merge=False),
    "text-infilling": TextInfilling(32),
    "ul2": UL2(32),
}


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory):
    """A step is compiled once for each objective."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPANLOOM_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield
    jax.config.update("jax_compilation_cache_dir", None)


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    return write_text(tmp_path_factory.mktemp("text") / "lines.txt", lines=600)


@pytest.fixture(scope="module", params=OBJECTIVES)
def trained(request, text, tmp_path_factory):
    """Name, run and directory of each objective's training."""
    run = tiny_run(text, STEPS, batch_size=8, eval=Evaluation(every=12, max_batches=2), after=After(fills=2))
    run = dataclasses.replace(
        run,
        task=dataclasses.replace(run.task, objective=OBJECTIVES[request.param]),
        model=dataclasses.replace(MODEL, dropout=0.0),
        checkpoint=Checkpoints(every=12, keep=2),
    ).resolve()
    directory = tmp_path_factory.mktemp(request.param)
    assert train(run, directory)
    return request.param, run, directory


def train(run, directory) -> bool:
    return loop.train(run, directory, display=PlainDisplay(io.StringIO()))


def test_the_loss_falls(trained):
    _, _, directory = trained
    found = losses(directory)
    curve = [found["train", step] for step in range(1, STEPS + 1)]
    assert np.mean(curve[-4:]) < 0.75 * np.mean(curve[:2])
    assert found["eval", STEPS] < found["eval", STEPS // 2]


def test_a_run_that_was_stopped_goes_on_to_the_same_losses(trained, tmp_path):
    _, run, directory = trained
    assert train(dataclasses.replace(run, steps=12), tmp_path)
    assert train(run, tmp_path)
    theirs = losses(directory)
    assert losses(tmp_path) == theirs
    assert same_arrays(restore(latest(tmp_path)).params, restore(latest(directory)).params)


SAID = {
    "rolled": "span corruption, 32 input tokens",
    "iid": "i.i.d. denoising, 32 input tokens, 15% masked",
    "prefix-lm": "prefix LM, rows of 32 tokens, 50% written on average",
    "full-lm": "language modelling in the decoder, 32 tokens",
    "text-infilling": "text infilling, 32 input tokens, 30% masked",
    "ul2": "UL2's mixture of denoisers, 32 input tokens",
}


def test_results_are_said_and_the_model_is_exported(trained, capsys):
    name, run, directory = trained
    close_run(run, directory)
    said = capsys.readouterr().out
    assert "bigram model" in said and "held-out loss in nats" in said
    assert "\n1. " in said and "\n2. " in said and "[" in said.partition("\n1. ")[2]
    assert ("spanloom fill" in said) == (name in ("rolled", "iid"))
    assert "spanloom finetune --data pairs.tsv" in said
    assert f"objective: {SAID[name]}" in (directory / "huggingface" / "README.md").read_text()
    assert main(["fill", str(directory), "--text", "the <mask> of it", "--max-length", "4"]) == 0
    assert ("not to fill masked spans" in capsys.readouterr().err) == (name not in ("rolled", "iid"))
