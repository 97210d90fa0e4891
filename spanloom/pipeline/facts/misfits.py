"""What does not fit between data and settings, in words: the cause, and what mends it."""

from collections.abc import Iterator

from spanloom.pipeline.facts.duplicates import Duplicates
from spanloom.pipeline.facts.lengths import Lengths
from spanloom.pipeline.facts.sentinels import SentinelsFound
from spanloom.pipeline.store import Store
from spanloom.pipeline.unknown_text import warn_of_unknown_text
from spanloom.settings.objectives import FullLM, Objective, Supervised
from spanloom.settings.task import Task
from spanloom.vocabularies.vocabulary import Vocabulary

MOST_TRUNCATED = 0.01
"""Share of the examples whose inputs or targets may be cut."""
MOST_COPIES = 0.05
"""Share of the documents or pairs that may repeat another one."""
MOST_EPOCHS = 4
"""So often may text be repeated in pretraining with little loss against new text (Muennighoff et al. 2023)."""
_SHOWN = 60


def unknown_misfits(task: Task, store: Store, vocabulary: Vocabulary) -> list[str]:
    """Text that the vocabulary has no ids for, in more than half a percent of the tokens."""
    found: list[str] = []
    warn_of_unknown_text(task, store, vocabulary, found.append)
    return found


def truncated_misfits(task: Task, lengths: dict[str, Lengths], most: float = MOST_TRUNCATED) -> Iterator[str]:
    """Inputs or targets that are cut in a greater share of the examples than `most`."""
    for side, one in lengths.items():
        if one.share_truncated > most:
            lost = "learns to stop in the middle" if side == "targets" else "never sees the rest"
            yield (
                f"{side} of {one.share_truncated:.1%} of the examples of task {task.name!r} ({one.truncated:,} of "
                f"{one.examples:,}) are longer than {one.width} tokens and are cut, so that the model {lost}; the "
                f"longest has {one.longest:,}: raise task.objective.{side}_length, or drop or split what is too long"
            )


def sentinel_misfit(task: Task, found: SentinelsFound, vocabulary: Vocabulary) -> str | None:
    """Sentinels in the text. In both inputs and targets of pairs they are there on purpose: pairs with masked spans."""
    on_purpose = isinstance(task.objective, Supervised) and {"inputs", "targets"} <= found.by_column.keys()
    if not found.count or on_purpose:
        return None
    ids = [f"<extra_id_{vocabulary.sentinels.index(id_)}> {count:,} times" for id_, count in found.ids.items()]
    more = f" and {len(ids) - 3} others" if len(ids) > 3 else ""
    of = "some shards of the text" if found.is_sample else "the text"
    return (
        f"{found.count:,} of {found.tokens:,} tokens of {of} of task {task.name!r} are themselves sentinels "
        f"({', '.join(ids[:3])}{more}), which the model cannot tell from masked spans: take such marks out of the text "
        "(files that were made for training often have them), or choose a vocabulary whose sentinels no text holds"
    )


def duplicate_misfit(task: Task, found: Duplicates, vocabulary: Vocabulary) -> str | None:
    """Too many copies among documents or pairs."""
    if found.share <= MOST_COPIES:
        return None
    what = "pairs" if isinstance(task.objective, Supervised) else "documents"
    sampled = "in a sample of" if found.is_sample else "of"
    texts = [vocabulary.spell(row[: 4 * _SHOWN]).strip() for row in found.commonest]
    cut = [text[:_SHOWN] + ("..." if len(text) > _SHOWN else "") for text in texts]
    commonest = f": {' -> '.join(map(repr, cut))}" if cut else ""
    return (
        f"{found.share:.1%} of the {what} of task {task.name!r} are copies of others ({found.copies:,} {sampled} "
        f"{found.rows:,}; the commonest is there {found.times:,} times{commonest}): the model "
        "learns them by heart, and copies in the held-out part flatter its loss. Remove them from the source, or have "
        "the task leave them out (its field `deduplicate`)"
    )


def repeat_misfit(name: str, objective: Objective, epochs: float) -> str | None:
    """Text that is read too often in the planned steps; pairs are another matter: they are few, and judged by a metric.

    Muennighoff et al. 2023, "Scaling data-constrained language models": up to 4 epochs of repeated data are about as
    good as new ones.
    """
    if epochs <= MOST_EPOCHS or isinstance(objective, Supervised):
        return None
    anew = "" if isinstance(objective, FullLM) else ", masked anew each time"
    return (
        f"task {name!r} is read {epochs:,.1f} times in the planned steps{anew}. Up to {MOST_EPOCHS} epochs of repeated "
        "data are about as good as new ones, and beyond them the same text teaches less and less (Muennighoff et al. "
        "2023): more text, a lower rate or fewer --steps"
    )
