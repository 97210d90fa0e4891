from dataclasses import replace

import jax
import pytest
from pipeline_data import pair_task, sentences, text_task, tiny_run

from spanloom.evaluation.measure import measure
from spanloom.model.params import declare, initialize
from spanloom.pipeline.data import open_data
from spanloom.settings.run import After

pytestmark = pytest.mark.short


def measured(run, directory, logged=None):
    run = run.resolve()
    params = initialize(declare(run.model), jax.random.key(0))
    data = open_data(run, directory)
    return measure(run, data, data.tasks[0], run.model, params, logged)


@pytest.fixture
def text_run(tmp_path):
    (tmp_path / "a.txt").write_text("\n".join(text.replace("\n", " ") for text in sentences(300)))
    return replace(tiny_run(text_task(str(tmp_path / "a.txt"), heldout_share=0.1)), batch_size=8)


def test_text_is_measured_beside_baselines_and_filled(text_run, tmp_path):
    made = measured(replace(text_run, after=After(fills=2)), tmp_path)
    assert made.kind == "baselines"
    assert set(made.values) == {"unigram_loss", "unigram_text_loss", "bigram_loss", "bigram_text_loss"}
    for said in ("this model", "bigram model", f"{made.values['unigram_loss']:.4f}", "a text byte alone"):
        assert said in made.text
    assert len(made.fills) == 2
    assert any(piece.guess is not None for piece in made.fills[0])


def test_only_what_is_asked_for_is_measured(text_run, tmp_path):
    made = measured(replace(text_run, after=After(fills=0, baselines=False)), tmp_path)
    assert (made.text, made.kind, made.values, made.fills) == ("", "", {}, ())


def test_logged_losses_serve_where_they_are_of_the_same_batches(text_run, tmp_path):
    run = replace(text_run, after=After(fills=0))
    tokens = float(measured(run, tmp_path).text.split(" target tokens")[0].split()[-1].replace(",", ""))
    logged = {"heldout_loss": 1.25, "heldout_text_loss": 1.5, "heldout_tokens": tokens}
    assert "1.2500" in measured(run, tmp_path, logged).text
    assert "1.2500" not in measured(run, tmp_path, {**logged, "heldout_tokens": tokens - 1}).text


def pairs(tmp_path, **objective):
    (tmp_path / "a.tsv").write_text("inputs\ttargets\n" + "".join(f"in{i}\t{'long' * (i % 3)}{i}\n" for i in range(60)))
    task = pair_task(str(tmp_path / "a.tsv"), heldout_share=0.5, **objective)
    return replace(tiny_run(task), batch_size=8, after=After(fills=3))


def test_pairs_are_compared(tmp_path):
    made = measured(pairs(tmp_path), tmp_path)
    assert made.kind == "exact_match"
    assert made.text.startswith(f"exact match on {made.values['examples']:.0f} held-out examples: 0.0% (0 right)")
    assert made.text.count("(wrong, not ") == 3
    assert "were cut" not in made.text
    assert "cannot write" not in made.text


def test_targets_that_the_vocabulary_cannot_write_are_said(tmp_path, monkeypatch):
    """A letter stands in for the unknown piece, which bytes do not have."""
    run = pairs(tmp_path).resolve()
    data = open_data(run, tmp_path)
    monkeypatch.setattr(data.vocabulary, "unk_id", int(data.vocabulary.encode("l")[0]), raising=False)
    heldout = data.tasks[0].heldout
    with_l = sum("l" in data.vocabulary.decode(heldout.raw(i)) for i in range(heldout.num_examples))
    assert 0 < with_l < heldout.num_examples
    params = initialize(declare(run.model), jax.random.key(0))
    said = measure(run, data, data.tasks[0], run.model, params).text
    assert f"  {with_l} of their targets hold what the vocabulary cannot write" in said


@pytest.mark.parametrize("known", [True, False])
def test_heldout_batches_are_made_once_where_the_loop_measured_them(text_run, tmp_path, monkeypatch, known):
    run = replace(text_run, after=After(fills=0)).resolve()
    data = open_data(run, tmp_path)
    heldout = data.tasks[0].heldout
    tokens = float(sum(batch["decoder_loss_weights"].sum() for batch in heldout.eval_batches(run.batch_size)))
    made = []
    whole = type(heldout).eval_batches
    monkeypatch.setattr(type(heldout), "eval_batches", lambda *args: made.append(1) or whole(*args))
    logged = {"heldout_loss": 1.25, "heldout_text_loss": 1.5, "heldout_tokens": tokens}
    measure(
        run,
        data,
        data.tasks[0],
        run.model,
        initialize(declare(run.model), jax.random.key(0)),
        logged if known else None,
    )
    assert len(made) == (1 if known else 2)


def test_targets_that_training_cuts_are_said_and_compared_whole(tmp_path):
    made = measured(pairs(tmp_path, targets_length=5, too_long="trim"), tmp_path)
    heldout = open_data(pairs(tmp_path, targets_length=5, too_long="trim").resolve(), tmp_path).tasks[0].heldout
    long = sum(len(heldout.raw(i)) + 1 > 5 for i in range(heldout.num_examples))
    assert 0 < long < heldout.num_examples
    assert f"  {long} of their targets were cut to 5 tokens for training; compared is with the whole ones" in made.text
    assert "longlong" in made.text
