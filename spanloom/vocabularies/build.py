"""From the settings of a vocabulary to the vocabulary."""

from spanloom.settings import vocabulary as settings
from spanloom.vocabularies.vocabulary import Vocabulary


def build(vocabulary: settings.Vocabulary) -> Vocabulary:
    """The vocabulary that the settings describe, checked.

    Raises VocabularyError, naming cause and fix, where a file cannot be used or its sentinels are not as set.
    """
    match vocabulary:
        case settings.Bytes():
            from spanloom.vocabularies.bytes import ByteVocabulary

            return ByteVocabulary(vocabulary)
        case settings.SentencePiece():
            from spanloom.vocabularies.sentencepiece import SentencePieceVocabulary

            return SentencePieceVocabulary(vocabulary)
