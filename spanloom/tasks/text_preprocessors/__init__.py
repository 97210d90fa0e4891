"""t5.data's text preprocessors on one example, without TensorFlow; a recipe names them as data.

What takes no settings is a function, what does is a frozen dataclass, both picklable: `preprocessors=(Squad(), lm)`.
What it gives says how a task uses it: a dict (map), an iterator of dicts (flat-map), or a bool (filter); one that has a
parameter `number` also gets the example's number. A user's own function is written the same way. None keeps anything
from one example for the next: what must see all of them is a step of its own (`spanloom.tasks.deduplication`).
"""

from spanloom.tasks.text_preprocessors.characters import CedillaToComma, Lowercase, NormalizeUnicode
from spanloom.tasks.text_preprocessors.filters import FilterByStringLength, FilterByTokenLength
from spanloom.tasks.text_preprocessors.glue import Glue, glue_preprocessor, stsb
from spanloom.tasks.text_preprocessors.question_answering import Squad, squad_span_space_tokenized, trivia_qa
from spanloom.tasks.text_preprocessors.ranking import RankClassification, RankClassificationFormatter
from spanloom.tasks.text_preprocessors.record import record
from spanloom.tasks.text_preprocessors.rekeying import Rekey, Summarize, lm
from spanloom.tasks.text_preprocessors.spacing import PadNonspacedLanguages
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
__all__ += ["Rekey", "Squad", "Summarize", "Translate", "TrimTokensAtFront", "TruncateInputsLeft", "WscSimple"]
__all__ += ["glue_preprocessor", "lm", "record", "squad_span_space_tokenized", "stsb", "trivia_qa", "wsc"]
