"""Where the weights of a new run come from, Spanloom's, T5X's or Hugging Face's, and what goes with them."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp

from spanloom.conversion.detect import KINDS, detect
from spanloom.conversion.errors import ConversionError
from spanloom.conversion.weights import read_all
from spanloom.model.params import declare, flatten, unflatten
from spanloom.scale.mesh import Layout
from spanloom.settings.model import Model
from spanloom.settings.run import Run
from spanloom.settings.vocabulary import SentencePiece, Vocabulary
from spanloom.training.checkpoints import restore
from spanloom.training.chosen import chosen
from spanloom.training.facts import Facts, read_facts, vocabulary_inside, vocabulary_of
from spanloom.training.origin import Origin, origin_after, reached, schedule_problem
from spanloom.training.start_sentinels import first_ids, flags, untrained_by_rows, untrained_by_run
from spanloom.training.start_vocabulary import OtherVocabularyError, is_other, moved_vocabulary
from spanloom.vocabularies.build import build
from spanloom.vocabularies.correspondence import Correspondence

if TYPE_CHECKING:
    from spanloom.conversion.detect import Kind
    from spanloom.conversion.stored_model import Memory, StoredModel
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
    converted: "StoredModel | None" = None
    """The converted model that it is."""
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
        if self.converted is not None:
            memory, step = self.converted.memory, self.converted.lineage.step
            step = memory.count if memory else step
            return None if step is None else Origin(step, step)
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
    _refuse_choice(kind, path, run)
    if kind == "huggingface":
        from spanloom.conversion.huggingface import open_hf, read_lineage

        settings = open_hf(path).settings
        found = Found(path, False, settings.model, settings.vocabulary, read_lineage(path).run)
    elif kind == "t5x":
        found = _found_in_t5x(path, run)
    elif kind == "converted":
        found = _found_converted(path, run)
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


def _refuse_choice(kind: "Kind", path: Path, run: Run) -> None:
    """Raise StartError where the best checkpoint is asked for and nothing says which one that is."""
    if run.follow.which != "best" or kind == "run":
        return
    if kind == "t5x":
        raise StartError(f"start: no checkpoint of T5X at {path} says its held-out loss, so none is the best: name one")
    raise StartError(
        f"start: {path} is {KINDS[kind]}, and --follow.which best chooses among those of a run: leave it out"
    )


def _found_in_t5x(path: Path, run: Run) -> Found:
    from spanloom.conversion.t5x import open_t5x
    from spanloom.training.t5x_start import as_trained_here

    opened = open_t5x(path)
    _refuse_other_optimizer(opened.checkpoint.path, opened.model, opened.memory(), run)
    vocabulary = opened.vocabulary()
    model = as_trained_here(opened, run.model)
    return Found(
        opened.checkpoint.path, False, model, vocabulary.vocabulary if vocabulary else None, None, None, opened
    )


def _found_converted(path: Path, run: Run) -> Found:
    from spanloom.conversion.converted import open_converted

    stored = open_converted(path)
    _refuse_other_optimizer(path, stored.model, stored.memory, run)
    return Found(path, False, stored.model, stored.vocabulary, stored.lineage.run, converted=stored)


def _refuse_other_optimizer(path: Path, model: Model, memory: "Memory | None", run: Run) -> None:
    from spanloom.training.t5x_start import optimizer_problem

    if run.follow.optimizer == "continue" and (problem := optimizer_problem(path, model, memory, run)):
        raise StartError(f"start: {problem}")


def _refuse_nothing_to_continue(run: Run, found: Found) -> None:
    """Raise StartError where an optimizer's state or a schedule is to go on that the start does not have, or that ends
    before the run does.
    """
    if found.reached is None and "continue" in (run.follow.optimizer, run.follow.schedule):
        raise StartError(
            f"start: {found.path} has weights alone: neither optimizer nor schedule "
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
        if not found.t5x.activations_known:
            notes = (*notes, _activations_of_run(found.path, run))
        if opt_state_like is not None:
            opt_state = adafactor_state(found.path, found.t5x.memory(), opt_state_like)
        description = f"weights of the T5X checkpoint {found.path} (step {step:,}), {origin.describe()}"
    elif found.converted is not None:
        from spanloom.training.converted import stored_converted
        from spanloom.training.t5x_start import adafactor_state

        stored = stored_converted(found.path) if check else found.converted
        params, notes = read_all(stored.model, stored.weights), stored.notes
        if opt_state_like is not None:
            opt_state = adafactor_state(found.path, stored.memory, opt_state_like)
        description = f"weights of {found.path}, {origin_after(run, found.reached).describe()}"
    else:
        from spanloom.conversion.huggingface import import_hf

        imported = import_hf(found.path)
        params, notes = imported.params, imported.notes
        description = f"weights of the Hugging Face folder {found.path}, optimizer fresh"
    if not found.is_ours and opt_state is not None and layout:
        opt_state = layout.put(opt_state, layout.optimizer_state(declare(run.model), opt_state_like))
    if found.moved:
        from spanloom.conversion.surgery import with_vocabulary

        params = with_vocabulary(found.model, params, found.moved, run.model.vocab_size)[1]
        description += f"; {found.moved.describe()}"
    fitting = unflatten(run.model, {name: leaf.astype(jnp.float32) for name, leaf in flatten(params).items()})
    fitting = layout.put(fitting, layout.params(declare(run.model))) if layout else jax.tree.map(jnp.asarray, fitting)
    warnings = [] if found.moved else _vocabulary_warnings(found, run)
    return Start(fitting, description, (*notes, *warnings, *_untrained(found, params, layout, run)), opt_state)


def _untrained(found: Found, params: Any, layout: Layout | None, run: Run) -> tuple[str, ...]:
    """Warnings of sentinels that look untrained; rows that have moved are those of the run's own vocabulary."""
    theirs = (run.vocabulary, None) if found.moved else (found.vocabulary, found.run)
    sentinels = untrained_by_rows(found.path, params, None if found.moved else layout, theirs, run)
    if sentinels is None:
        sentinels = untrained_by_run(found.path, found.run, found.vocabulary, run)
    return tuple(sentinels)


def _activations_of_run(path: Path, run: Run) -> str:
    return (
        f"activations {' x '.join(run.model.activations)}, as this run's model says: {path} does not show which it was "
        "trained with, and with others its weights mean something else. A config.gin beside it would be checked"
    )


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
        f"{path} was trained with the sentinels of {flags(saved)} (the first ids are "
        f"{first_ids(theirs.sentinels)}), this run uses those of {flags(wanted)} ({first_ids(ours.sentinels)}): "
        f"their embedding rows begin untrained for this use. To keep what was learnt: {flags(saved)}"
    ]
