"""t5.data's text preprocessors on one example, without TensorFlow; a recipe names them as data.

What takes no settings is a function, what does is a frozen dataclass, both picklable: `preprocessors=(Squad(), lm)`.
What it gives says how a task uses it: a dict (map), an iterator of dicts (flat-map), or a bool (filter); further
parameters are given by name: `number` (of the example), `run` (the run's settings), `rng` (randomness of its own). A
user's own function is written the same way, see `spanloom.tasks.preprocessing`. None keeps anything from one example
for the next: what must see all of them is a step of its own (`spanloom.tasks.deduplication`).
"""

from spanloom.tasks.text_preprocessors.characters import CedillaToComma, Lowercase, NormalizeUnicode
from spanloom.tasks.text_preprocessors.filters import FilterByStringLength, FilterByTokenLength
from spanloom.tasks.text_preprocessors.glue import Glue, glue_preprocessor, stsb
from spanloom.tasks.text_preprocessors.question_answering import Squad, squad_span_space_tokenized, trivia_qa
from spanloom.tasks.text_preprocessors.ranking import RankClassification, RankClassificationFormatter
from spanloom.tasks.text_preprocessors.record import record
from spanloom.tasks.text_preprocessors.rekeying import Rekey, Summarize, lm
from spanloom.tasks.text_preprocessors.spacing import PadNonspacedLanguages
from spanloom.tasks.text_preprocessors.tokenizing import Tokenize
from spanloom.tasks.text_preprocessors.tokens import (
    AppendEos,
    AppendEosAfterTrim,
    TrimTokensAtFront,
    TruncateInputsLeft,
)
from spanloom.tasks.text_preprocessors.translation import MultiTranslate, Translate
from spanloom.tasks.text_preprocessors.tsv import ParseTsv, PreprocessTsv
from spanloom.tasks.text_preprocessors.winograd import DefinitePronounResolutionSimple, WscSimple, wsc

__all__ = ["AppendEos", "AppendEosAfterTrim", "CedillaToComma", "DefinitePronounResolutionSimple"]
__all__ += ["FilterByStringLength", "FilterByTokenLength", "Glue", "Lowercase", "MultiTranslate", "NormalizeUnicode"]
__all__ += ["PadNonspacedLanguages", "ParseTsv", "PreprocessTsv", "RankClassification", "RankClassificationFormatter"]
__all__ += ["Rekey", "Squad", "Summarize", "Tokenize", "Translate", "TrimTokensAtFront", "TruncateInputsLeft"]
__all__ += ["WscSimple", "glue_preprocessor", "lm", "record", "squad_span_space_tokenized", "stsb", "trivia_qa", "wsc"]
