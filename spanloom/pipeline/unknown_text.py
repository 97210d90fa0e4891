"""What a vocabulary lacks of a task's text: characters that all become one id, which nothing can be learned from."""

from collections import Counter
from collections.abc import Iterable

from spanloom.pipeline.store import Store, Warn
from spanloom.settings.task import Task
from spanloom.vocabularies.vocabulary import Vocabulary

_MANY = 0.005  # in T5's vocabulary English novels have 0.007%, German 0.08%, Swedish 2.8%, Russian 13%
_NAMED = 10


def warn_of_unknown_text(task: Task, store: Store, vocabulary: Vocabulary, warn: Warn) -> None:
    """Warns of each column of which more than half a percent is unknown, with the commonest characters that are."""
    for name, counts in store.meta["counts"]["columns"].items():
        share = counts["unknown"] / max(counts["tokens"], 1)
        if share <= _MANY:
            continue
        field = "text" if name == "tokens" else name
        missing = missing_characters(vocabulary, (probe["example"].get(field, "") for probe in store.meta["probes"]))
        named = f" (the commonest: {' '.join(missing[:_NAMED])})" if missing else ""
        what = "tokens" if name == "tokens" else f"tokens of the {name}"
        warn(
            f"{share:.1%} of the {what} of task {task.name!r} are unknown to its vocabulary{named} and cannot be "
            "learned: choose a vocabulary made for this text, or bytes, which know everything"
        )


def missing_characters(vocabulary: Vocabulary, texts: Iterable[str]) -> list[str]:
    """The characters of these texts that the vocabulary has no id for, the commonest first."""
    counts = Counter(character for text in texts for character in text)
    found = [character for character in counts if vocabulary.unk_id in vocabulary.encode(character)]
    return sorted(found, key=lambda character: (-counts[character], character))
