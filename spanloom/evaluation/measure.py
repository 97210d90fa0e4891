"""How good a trained model is on the held-out part, in words and numbers: baselines, filled gaps, exact match."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from spanloom.evaluation.baselines import baseline_losses
from spanloom.evaluation.exact_match import Prediction, predictions
from spanloom.evaluation.fill import fill_examples, show
from spanloom.evaluation.heldout import heldout_metrics, make_heldout_step
from spanloom.evaluation.masked_lines import masked_line
from spanloom.evaluation.results import Results
from spanloom.evaluation.task_metrics import EXACT_MATCH, takes_scores, task_metrics
from spanloom.pipeline.batches import Batch
from spanloom.pipeline.data import Data, TaskData
from spanloom.pipeline.dataset import Dataset
from spanloom.settings.model import Model
from spanloom.settings.objectives import Supervised
from spanloom.settings.run import Run
from spanloom.settings.vocabulary import Bytes


def measure(
    run: Run, data: Data, one: TaskData, model: Model, params: Any, logged: Mapping[str, float] | None = None
) -> Results:
    """What `run.after` asks for, on the held-out part of one task, which must exist.

    `logged` are held-out losses of these weights, as `heldout_metrics` gives them: they serve where they are of the
    same batches. Raises ValueError if the held-out part has no target.
    """
    assert one.heldout is not None
    if isinstance(one.task.objective, Supervised):
        return _of_pairs(run, data, one, one.heldout, model, params)
    text, kind = "", ""
    values: dict[str, float] = {}
    if run.after.baselines:
        text, values = _beside_baselines(run, data, one, model, params, logged)
        kind = "baselines"
    examples = one.heldout.text_examples(run.after.fills)
    filled = fill_examples(params, model, data.vocabulary, examples, data.lengths["decoder"])
    hint = masked_line(show(one.heldout.raw(0), data.vocabulary))
    return Results(text, kind, values, tuple(map(tuple, filled)), hint)


def _batches(run: Run, heldout: Dataset) -> Iterator[Batch]:
    """The held-out batches that the loop evaluates on."""
    return heldout.eval_batches(*_sizes(run))


def _sizes(run: Run) -> tuple[int, int]:
    return run.eval.batch_size or run.batch_size, run.eval.max_batches


def _beside_baselines(
    run: Run, data: Data, one: TaskData, model: Model, params: Any, logged: Mapping[str, float] | None
) -> tuple[str, dict[str, float]]:
    """The model's losses beside those of the baselines, in words; these as numbers."""
    assert one.heldout is not None
    baselines, tokens = baseline_losses(one.train.store.blocks(), _batches(run, one.heldout), data.vocabulary)
    losses = logged
    if losses is None or losses["heldout_tokens"] != tokens:
        losses = heldout_metrics(make_heldout_step(model, data.vocabulary), params, _batches(run, one.heldout))
    rows = {"this model": (losses["heldout_loss"], losses["heldout_text_loss"])}
    for name in ("bigram", "unigram"):
        rows[f"{name} model"] = (baselines[name].loss, baselines[name].text_loss)
    unit = "byte" if isinstance(run.vocabulary, Bytes) else "token"
    lines = [
        f"held-out loss in nats, on the same {losses['heldout_tokens']:,.0f} target tokens (sentinels and ends of "
        "sequence cost the baselines nothing):",
        f"{'':<16}{'a target token':>16}{'a text ' + unit + ' alone':>20}",
        *(f"  {name:<14}{loss:>16.4f}{text_loss:>20.4f}" for name, (loss, text_loss) in rows.items()),
    ]
    values = {
        f"{name}_{kind}": getattr(baselines[name], kind)
        for name in ("unigram", "bigram")
        for kind in ("loss", "text_loss")
    }
    return "\n".join(lines), values


def _of_pairs(run: Run, data: Data, one: TaskData, heldout: Dataset, model: Model, params: Any) -> Results:
    """What the task's metrics say of the held-out examples, or the share that is right; with some of them."""
    numbers = (number for batch in heldout.eval_examples(*_sizes(run)) for number in batch.tolist())
    whole = ((number, heldout.raw(number)) for number in numbers)
    made = list(predictions(params, model, data.vocabulary, _batches(run, heldout), whole))
    values = task_metrics(one.task, heldout, made)
    is_default = not one.task.metrics and one.task.postprocess is None
    lines = [_in_words(values, made) if is_default else _metrics_in_words(values, made)]
    if scored := [str(function) for function in one.task.metrics if takes_scores(function)]:
        lines.append(f"  not among them, as scores of options take a pass of their own: {', '.join(scored)}")
    cut, unknown = (sum(getattr(one, name) for one in made) for name in ("cut", "unknown"))
    if cut:
        lines.append(
            f"  {cut:,} of their targets were cut to {data.lengths['decoder']} tokens for training; compared is with "
            "the whole ones, which the model has no room to write (a larger task.objective.targets_length gives it)"
        )
    if unknown:
        never = "never right, whatever the model writes" if is_default else "which the model has no way to write"
        lines.append(
            f"  {unknown:,} of their targets hold what the vocabulary cannot write (shown as \u2047): {never}; a model "
            "of bytes knows everything"
        )
    for prediction in made[:: max(len(made) // max(run.after.fills, 1), 1)][: run.after.fills]:
        verdict = "right" if prediction.correct else f"wrong, not {prediction.target!r}"
        verdict = verdict if is_default else f"the target: {prediction.target!r}"
        lines.append(f"  {prediction.inputs!r} -> {prediction.prediction!r} ({verdict})")
    kind = EXACT_MATCH if is_default else "metrics"
    return Results("\n".join(lines), kind, {**values, "examples": float(len(made))})


def _in_words(values: Mapping[str, float], made: Sequence[Prediction]) -> str:
    right = sum(one.correct for one in made)
    return f"exact match on {len(made):,} held-out examples: {values[EXACT_MATCH]:.1%} ({right:,} right)"


def _metrics_in_words(values: Mapping[str, float], made: Sequence[Prediction]) -> str:
    numbers = ", ".join(f"{name} {value:.4g}" for name, value in values.items()) or "no numbers"
    return f"metrics on {len(made):,} held-out examples: {numbers}"
