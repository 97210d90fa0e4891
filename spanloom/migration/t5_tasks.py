"""Tasks that come with t5.data, and those that nobody gave the module of."""

import re
from collections.abc import Mapping

from spanloom.migration.draft import Asked, FoundData, Parameter
from spanloom.migration.fates import Note
from spanloom.migration.recipe_code import Expression, Expressions
from spanloom.settings.function import Function
from spanloom.settings.measures import metric_of
from spanloom.settings.objectives import FullLM, IidDenoising, Objective, PrefixLM, SpanCorruption, Supervised
from spanloom.settings.row_sources import TfdsFolder
from spanloom.settings.task import PairFiles, Task, TextFiles
from spanloom.settings.vocabulary import Bytes, Vocabulary

TFDS = Parameter(
    "tfds", "str", '"~/tensorflow_datasets"', "Folder in which TensorFlow Datasets prepared its data sets."
)
REKEY = "spanloom.tasks.text_preprocessors.rekeying:Rekey"
_TRANSLATE = "spanloom.tasks.text_preprocessors.translation:Translate"
_C4 = re.compile(r"c4_v(\d)(\d)(\d)_(span_corruption|iid_denoising|prefix_lm|full_lm)")
_WORDS_OF_TEXT = ("corruption", "denoising", "pretrain", "_lm", "corpus", "c4", "unsupervised", "mlm")
_DOCUMENTS = 128
"""Documents that SeqIO joins before it cuts them."""


def find_without_module(asked: Asked) -> FoundData:
    """A task of t5.data by its name, or a task of files where only the module knows what it is."""
    vocabulary = asked.vocabulary or Bytes()
    known = _c4(asked, vocabulary) or _wmt(asked, vocabulary)
    if known is not None:
        note = Note("changed", "", asked.name, "as t5.data registers it; its data set is read from --tfds")
        return FoundData(known, (TFDS,), (note, *length_notes(known, asked)))
    why = "which module registers it was not said (--module tasks.py): the recipe reads files instead, --text or --data"
    task, parameter = _of_files(asked, vocabulary)
    return FoundData(task, (parameter,), (Note("lost", "", f"task {asked.name}", why), *length_notes(task, asked)))


def tfds_folder(name: str, split: str = "train", heldout_split: str | None = "validation") -> TfdsFolder:
    """The data set that TFDS knows as name/config:version, below the recipe's --tfds."""
    path = name.replace(":", "/")
    return TfdsFolder(Expression(f"~/tensorflow_datasets/{path}", f'f"{{tfds}}/{path}"'), split, heldout_split)


def denoising(kind: str, asked: Asked, **values: float | bool | int) -> Objective:
    """The objective that a task of text has, joined as SeqIO joins documents."""
    length = asked.lengths.get("inputs")
    if kind == "full_lm":
        return FullLM(targets_length=asked.lengths.get("targets") or length or FullLM.targets_length)
    merge = bool(values.pop("merge", True))
    documents = _DOCUMENTS if merge and kind in ("span_corruption", "iid_denoising") else 0
    shared = {"inputs_length": length or SpanCorruption.inputs_length, "merge": merge, "concat_documents": documents}
    kinds = {"span_corruption": SpanCorruption, "iid_denoising": IidDenoising, "prefix_lm": PrefixLM}
    made: Objective = kinds[kind](**shared, **values)
    return made


def length_notes(task: Task, asked: Asked) -> tuple[Note, ...]:
    """Where the targets' length that was set is not what span corruption makes."""
    objective, given = task.objective, asked.lengths.get("targets")
    if not isinstance(objective, SpanCorruption) or given is None:
        return ()
    from spanloom.tasks.span_lengths import span_lengths

    made = span_lengths(objective.inputs_length, objective.noise_density, objective.mean_span_length).targets_length
    if made == given:
        return ()
    share = f": {1 - made / given:.0%} of every decoder row was padding" if given > made else ""
    why = f"targets have the {made} tokens that span corruption makes of {objective.inputs_length}{share}"
    return (Note("changed", "", f"targets of {given} tokens", why),)


def _c4(asked: Asked, vocabulary: Vocabulary) -> Task | None:
    match = _C4.fullmatch(asked.name)
    if match is None:
        return None
    version, kind = ".".join(match.groups()[:3]), match[4]
    return Task(
        asked.name,
        tfds_folder(f"c4/en:{version}", asked.split, asked.heldout_split),
        vocabulary,
        denoising(kind, asked),
    )


def _wmt(asked: Asked, vocabulary: Vocabulary) -> Task | None:
    if asked.name != "wmt_t2t_ende_v003":
        return None
    return Task(
        asked.name,
        tfds_folder("wmt_t2t_translate/de-en:1.0.0", asked.split, asked.heldout_split),
        vocabulary,
        supervised(asked.lengths),
        preprocessors=(Function(_TRANSLATE, {"source_language": "en", "target_language": "de"}),),
        metrics=(metric_of("bleu"),),
    )


def supervised(lengths: Mapping[str, int]) -> Supervised:
    """Pairs, cut at the lengths that are set, as SeqIO cuts them."""
    return Supervised(lengths.get("inputs"), lengths.get("targets"), "trim" if lengths else "error")


def _of_files(asked: Asked, vocabulary: Vocabulary) -> tuple[Task, Parameter]:
    if any(word in asked.name.lower() for word in _WORDS_OF_TEXT):
        files = Expressions((), "text")
        text = Parameter(
            "text", "tuple[str, ...]", "()", "Files or globs of plain text, .txt, .jsonl or .parquet. Must be given."
        )
        return Task(asked.name, TextFiles(files), vocabulary, denoising("span_corruption", asked)), text
    files = Expressions((), "data")
    data = Parameter("data", "tuple[str, ...]", "()", "Files or globs of pairs, .tsv, .csv or .jsonl. Must be given.")
    return Task(asked.name, PairFiles(files), vocabulary, supervised(asked.lengths)), data
