"""The vocabulary of each feature of a task."""

from spanloom.settings.task import Task, features_of
from spanloom.vocabularies.build import build
from spanloom.vocabularies.vocabulary import Vocabulary


def vocabularies_of(task: Task, vocabulary: Vocabulary) -> dict[str, Vocabulary]:
    """By name of the feature: the task's `vocabulary`, or one of its own, built from its settings.

    Raises VocabularyError.
    """
    return {
        feature.name: vocabulary if feature.vocabulary in (None, task.vocabulary) else build(feature.vocabulary)
        for feature in features_of(task)
    }
