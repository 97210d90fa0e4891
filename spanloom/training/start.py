"""Where the weights of a new run come from, Spanloom's, T5X's or Hugging Face's, and what goes with them."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp

from spanloom.conversion.detect import detect
from spanloom.conversion.errors import ConversionError
from spanloom.model.params import declare, flatten, unflatten
from spanloom.scale.mesh import Layout
from spanloom.settings.model import Model
from spanloom.settings.objectives import Supervised
from spanloom.settings.run import Run
from spanloom.settings.vocabulary import SentencePiece, Vocabulary
from spanloom.tasks.objectives.build import denoiser_of
from spanloom.training.checkpoints import restore
from spanloom.training.chosen import chosen
from spanloom.training.facts import Facts, read_facts, vocabulary_inside, vocabulary_of
from spanloom.training.origin import Origin, origin_after, reached, schedule_problem
from spanloom.training.start_vocabulary import OtherVocabularyError, is_other, moved_vocabulary
from spanloom.vocabularies.build import build
from spanloom.vocabularies.correspondence import Correspondence

if TYPE_CHECKING:
    from spanloom.conversion.t5x import OpenedT5X

SHOWN = 5  # mismatches named in an error


class StartError(ValueError):
    """The start checkpoint cannot be used for this run; the message says why and what to do."""


@dataclass(frozen=True)
class Start:
    """Weights to start from."""

    params: Any
    """A tree of float32 arrays as the run's model declares it."""
    description: str
    """One line for the user."""
    warnings: tuple[str, ...] = ()
    """What the user should know before training on these weights."""
    opt_state: Any = None
    """The optimizer's state, where it is taken over."""


@dataclass(frozen=True)
class Found:
    """What `run.start` names, known without reading its weights."""

    path: Path
    """The checkpoint or folder itself."""
    is_ours: bool
    """Whether it is a Spanloom checkpoint."""
    model: Model
    """Its architecture."""
    vocabulary: Vocabulary | None
    """Its vocabulary, SentencePiece files inside it; None where it does not say."""
    run: Run | None
    """The run that trained it, as far as it says so."""
    facts: Facts | None = None
    """What else a Spanloom checkpoint says of itself."""
    t5x: "OpenedT5X | None" = None
    """The checkpoint of T5X that it is."""
    moved: Correspondence | None = None
    """How its rows move to the run's vocabulary; None: they stay."""

    @property
    def moved_rows(self) -> dict[str, int]:
        """How many rows move, and how; empty if they stay."""
        return self.moved.counts() if self.moved else {}

    @property
    def reached(self) -> Origin | None:
        """How far optimizer and schedule had come there; None of weights alone."""
        if self.facts is not None:
            return reached(self.facts)
        return None if self.t5x is None else Origin(self.t5x.checkpoint.step, self.t5x.checkpoint.step)


def beginning(before: Facts | None, found: Found | None) -> dict[str, Any]:
    """What the next checkpoint says of how its run began, as fields of Facts: as the one before it does, if any."""
    if before is not None:
        return {"started_from": before.started_from, "moved_rows": before.moved_rows}
    return {"started_from": str(found.path), "moved_rows": found.moved_rows} if found else {}


def find_start(run: Run) -> Found:
    """What `run.start` names, checked against the run's model; no weights are read, so it takes no time.

    Raises StartError if it is no checkpoint of Spanloom or T5X and no Hugging Face folder, or does not fit the model;
    CheckpointError or ConversionError if it is damaged.
    """
    path = Path(str(run.start)).expanduser()
    try:
        kind = detect(path)
    except ConversionError as error:
        raise StartError(f"start: {error} (nothing is downloaded during training)") from error
    if kind == "huggingface":
        from spanloom.conversion.huggingface import read_lineage, read_settings

        settings = read_settings(path)
        found = Found(path, False, settings.model, settings.vocabulary, read_lineage(path).run)
    elif kind == "t5x":
        found = _found_in_t5x(path, run)
    else:
        checkpoint = chosen(path, run.follow.which)
        facts = read_facts(checkpoint)
        theirs = facts.run
        vocabulary_of(checkpoint, facts)  # that the file is the one that was trained with
        found = Found(checkpoint, True, theirs.model, vocabulary_inside(checkpoint, theirs), theirs, facts)
    try:
        found = replace(found, moved=moved_vocabulary(path, found.vocabulary, run))
    except OtherVocabularyError as error:
        raise StartError(f"start: {error}") from None
    fitting = replace(found.model, vocab_size=run.model.vocab_size) if found.moved else found.model
    refuse_misfit(path, fitting, declare(fitting), run.model)
    _refuse_nothing_to_continue(run, found)
    return found


def _found_in_t5x(path: Path, run: Run) -> Found:
    from spanloom.conversion.t5x import open_t5x
    from spanloom.training.t5x_start import as_trained_here, optimizer_problem

    if run.follow.which == "best":
        raise StartError(f"start: no checkpoint of T5X at {path} says its held-out loss, so none is the best: name one")
    opened = open_t5x(path)
    if run.follow.optimizer == "continue" and (problem := optimizer_problem(opened, run)):
        raise StartError(f"start: {problem}")
    vocabulary = opened.vocabulary()
    model = as_trained_here(opened, run.model)
    return Found(
        opened.checkpoint.path, False, model, vocabulary.vocabulary if vocabulary else None, None, None, opened
    )


def _refuse_nothing_to_continue(run: Run, found: Found) -> None:
    """Raise StartError where an optimizer's state or a schedule is to go on that the start does not have, or that ends
    before the run does.
    """
    if found.reached is None and "continue" in (run.follow.optimizer, run.follow.schedule):
        raise StartError(
            f"start: {found.path} is a Hugging Face folder, which has weights alone: neither optimizer nor schedule "
            "can go on from there. Give --follow.optimizer reset --follow.schedule restart (for one stage, "
            "--stage.1.follow...); where the schedule is to begin as after N steps, --schedule.step-offset -N (rsqrt)"
        )
    if problem := schedule_problem(run, origin_after(run, found.reached)):
        raise StartError(problem)


def load_start(
    run: Run, found: Found, layout: Layout | None = None, opt_state_like: Any = None, *, check: bool = True
) -> Start:
    """The weights of what `find_start` found for the run, and the optimizer's state where its shapes and types are
    given (see `restore`), divided among devices as `layout` has it. Raises CheckpointError or ConversionError if
    damaged, or if the state is another optimizer's.
    """
    notes: tuple[str, ...] = ()
    opt_state = None
    if found.is_ours:
        restored = restore(found.path, opt_state_like, None if found.moved else layout, check=check)
        params, opt_state = restored.params, restored.opt_state
        description = f"weights of {found.path} (step {restored.step}), {origin_after(run, found.reached).describe()}"
    elif found.t5x is not None:
        from spanloom.training.t5x_start import adafactor_state

        step, origin = found.t5x.checkpoint.step, origin_after(run, found.reached)
        params, notes = found.t5x.params(), found.t5x.notes
        if opt_state_like is not None:
            opt_state = adafactor_state(found.t5x, opt_state_like)
            if layout:
                opt_state = layout.put(opt_state, layout.like_params(declare(run.model), opt_state_like))
        description = f"weights of the T5X checkpoint {found.path} (step {step:,}), {origin.describe()}"
    else:
        from spanloom.conversion.huggingface import import_hf

        imported = import_hf(found.path)
        params, notes = imported.params, imported.notes
        description = f"weights of the Hugging Face folder {found.path}, optimizer fresh"
    if found.moved:
        from spanloom.conversion.surgery import with_vocabulary

        params = with_vocabulary(found.model, params, found.moved, run.model.vocab_size)[1]
        description += f"; {found.moved.describe()}"
    fitting = unflatten(run.model, {name: leaf.astype(jnp.float32) for name, leaf in flatten(params).items()})
    fitting = layout.put(fitting, layout.params(declare(run.model))) if layout else jax.tree.map(jnp.asarray, fitting)
    warnings = [] if found.moved else _vocabulary_warnings(found, run)
    return Start(fitting, description, (*notes, *warnings, *untrained_sentinels(found, run)), opt_state)


def _vocabulary_warnings(found: Found, run: Run) -> list[str]:
    if found.vocabulary:
        return vocabulary_warnings(Path(str(run.start)), found.vocabulary, run.vocabulary)
    return [
        f"{found.path} does not say which vocabulary it was trained with; its ids are taken to be this run's (all that "
        f"was compared is the size: {build(run.vocabulary).size:,} ids in {found.model.vocab_size:,} rows)"
    ]


def refuse_misfit(path: Path, saved: Model, params: Any, wanted: Model) -> None:
    """Raise StartError, naming each difference, unless `params` have the shapes that `wanted` declares.

    Also refused are settings that change what the weights compute although all shapes agree.
    """
    if saved.vocab_size != wanted.vocab_size:
        raise StartError(
            f"start: the embedding in {path} has {saved.vocab_size} rows, the model of this run "
            f"{wanted.vocab_size} (model.vocab_size). Use the vocabulary that the checkpoint was trained with and "
            f"--model.vocab-size {saved.vocab_size}"
        )
    if saved.tie_embeddings != wanted.tie_embeddings:
        raise StartError(
            f"start: in {path} the output head {'shares' if saved.tie_embeddings else 'does not share'} the embedding; "
            f"set --model.tie-embeddings {saved.tie_embeddings}"
        )
    have = {name: tuple(leaf.shape) for name, leaf in flatten(params).items()}
    need = {name: tuple(spec.shape) for name, spec in flatten(declare(wanted)).items()}
    wrong = [
        f"{name} is {have.get(name, 'absent')} there, {need.get(name, 'absent')} here"
        for name in sorted(have.keys() | need.keys())
        if have.get(name) != need.get(name)
    ]
    if wrong:
        more = f"\n  and {len(wrong) - SHOWN} more" if len(wrong) > SHOWN else ""
        raise StartError(
            f"start: {path} holds another model ({saved.name}) than this run trains ({wanted.name}):\n  "
            + "\n  ".join(wrong[:SHOWN])
            + more
            + "\nName the model that belongs to the checkpoint with --model, or another --start."
        )
    same = ("activations", "relative_position_buckets", "relative_position_max_distance", "norm_epsilon")
    for field in same:
        if getattr(saved, field) != getattr(wanted, field):
            raise StartError(
                f"start: {path} was trained with {field} = {getattr(saved, field)}, this run has "
                f"{getattr(wanted, field)}: the weights would mean something else. Set model.{field} to what it was."
            )


def vocabulary_warnings(path: Path, saved: Vocabulary, wanted: Vocabulary) -> list[str]:
    """What differs between the vocabulary a checkpoint was trained with and this run's, as warnings.

    Compared is what the vocabularies do, not how they are written. Raises VocabularyError for a file that is none.
    """
    if type(saved) is not type(wanted):
        return [
            f"{path} was trained with a {type(saved).__name__} vocabulary, this run has {type(wanted).__name__}: every "
            "id means something else"
        ]
    theirs, ours = build(saved), build(wanted)
    if theirs.fingerprint() == ours.fingerprint():
        return []
    if is_other(saved, wanted):
        other = wanted.path if isinstance(wanted, SentencePiece) else "this run has"
        return [f"{path} was trained with another SentencePiece model than {other}: ids mean something else"]
    common = min(len(theirs.sentinels), len(ours.sentinels))
    if theirs.sentinels[:common] == ours.sentinels[:common]:
        return []
    return [
        f"{path} was trained with the sentinels of {_sentinel_flags(saved)} (the first ids are "
        f"{_first(theirs.sentinels)}), this run uses those of {_sentinel_flags(wanted)} ({_first(ours.sentinels)}): "
        f"their embedding rows begin untrained for this use. To keep what was learnt: {_sentinel_flags(saved)}"
    ]


def untrained_sentinels(found: Found, run: Run) -> list[str]:
    """A warning if this run masks more spans in an example than the run behind the start did: the rows of the other
    sentinels were never trained. Empty where nothing is known of that run.
    """
    ours = _sentinels(run, run.vocabulary)
    if not ours or found.run is None or found.vocabulary is None:
        return []
    theirs = _sentinels(found.run, found.vocabulary)
    if ours <= theirs:
        return []
    if theirs == 0:
        return [
            f"the run behind {found.path} learnt {found.run.task.name!r}, which has no sentinels, so it trained none "
            f"of the {ours} that this run uses: their embedding rows are as that run found them"
            + (f" in {found.run.start}" if found.run.start else ", that is, random")
        ]
    return [
        f"this run masks {ours} spans in an example and the one behind {found.path} masked {theirs}: the embedding "
        f"rows of the sentinels <extra_id_{theirs}> to <extra_id_{ours - 1}> begin untrained. To use trained ones "
        "only, mask fewer spans: longer ones (--task.objective.mean-span-length, where the objective has it) or in "
        "shorter inputs (--task.objective.inputs-length)"
    ]


def _sentinels(run: Run, vocabulary: Vocabulary) -> int:
    """Sentinels that a run's examples use for masked spans, at most; 0 for pairs."""
    built = build(vocabulary)
    masked = [task.objective for task in run.tasks if not isinstance(task.objective, Supervised)]
    return max((denoiser_of(objective, built).num_sentinels for objective in masked), default=0)


def _sentinel_flags(vocabulary: Vocabulary) -> str:
    return f"--task.vocabulary.sentinels {vocabulary.sentinels} --task.vocabulary.extra-ids {vocabulary.extra_ids}"


def _first(sentinels: tuple[int, ...]) -> str:
    return ", ".join(map(str, sentinels[:2])) + ", ..."
