"""Span corruption on your own text files, bytes or SentencePiece; `spanloom pretrain` is this recipe.

    spanloom pretrain --text 'corpus/*.jsonl.gz' --field text --model byt5_small --out runs/a
    spanloom pretrain --text 'corpus/*.txt' --vocabulary my.model --model t5_1_1_base --out runs/b
    spanloom pretrain --text 'more/*.txt' --start runs/a --out runs/c
    spanloom pretrain --text 'de/*.txt' --start runs/b --vocabulary de.model --follow.vocabulary by_piece --out runs/d

T5's settings: Adafactor at 1 / sqrt(max(step, 10,000)), 15 % of the tokens masked, in spans of 3 (SentencePiece) or 20
(bytes) tokens on average; others: --task.objective prefix-lm, ul2, ... Cost and loss depend on model and text; as it
stands, with ByT5 small, it takes 1.9e14 FLOPs a step and 1.9e18 in all, counted and not measured: nobody has run these
defaults to their end.
"""

from dataclasses import replace
from typing import Literal

from spanloom.model.sizes import named
from spanloom.recipes._start import model_and_vocabulary, resized
from spanloom.settings.model import Model
from spanloom.settings.objectives import SpanCorruption
from spanloom.settings.run import Run
from spanloom.settings.serialize import SettingsError
from spanloom.settings.task import Errors, Task, TextFiles
from spanloom.settings.vocabulary import Bytes, SentencePiece, Vocabulary


def recipe(
    text: tuple[str, ...] = (),
    heldout: tuple[str, ...] = (),
    heldout_share: float = 0.01,
    field: str = "text",
    unit: Literal["line", "document"] = "line",
    format: Literal["auto", "txt", "jsonl", "csv", "tsv", "parquet"] = "auto",
    encoding: str = "utf-8",
    errors: Errors = "strict",
    vocabulary: str | None = None,
    model: str | None = None,
    start: str | None = None,
    inputs_length: int | None = None,
    noise_density: float = 0.15,
    mean_span_length: float | None = None,
) -> Run:
    """The run.

    Args:
      text: Files or globs: .txt, .jsonl, .csv, .tsv, .parquet; plain or .gz, .zst, .bz2, .xz. Must be given.
      heldout: Files or globs of the held-out part; none: a share of the documents is kept out.
      heldout_share: Share of the documents kept out of training when no held-out files are named.
      field: Field of a row that holds the text, or a template such as '{title}: {text}'.
      unit: What one document is in a .txt file: each line, or the whole file.
      format: Format of the files; auto goes by the name.
      encoding: Text encoding of the files.
      errors: What to do with bad input: stop, replace bytes, or skip and count.
      vocabulary: `bytes`, or a SentencePiece model file; unset: that of --start, or bytes for byt5 models.
      model: A published size: byt5, t5_1_1, mt5, umt5 or t5, then _small, _base, _large, _xl or _xxl; byt5_nano and
        byt5_micro suit a CPU. Unset: that of --start, or byt5_small.
      start: Checkpoint, run directory or Hugging Face folder to start from; unset: random weights.
      inputs_length: Encoder length in tokens; unset: 1024 for bytes, 512 for SentencePiece.
      noise_density: Share of the tokens that is masked.
      mean_span_length: Mean length of a masked span in tokens; unset: 20 for bytes, 3 for SentencePiece.
    """
    size, words = _model_and_vocabulary(model, vocabulary, start)
    is_bytes = isinstance(words, Bytes)
    return Run(
        name="pretrain",
        task=Task(
            name="text",
            source=TextFiles(
                files=text,
                heldout_files=heldout,
                heldout_share=heldout_share,
                field=field,
                unit=unit,
                format=format,
                encoding=encoding,
                errors=errors,
            ),
            vocabulary=words,
            objective=SpanCorruption(
                inputs_length=(1024 if is_bytes else 512) if inputs_length is None else inputs_length,
                noise_density=noise_density,
                mean_span_length=(20.0 if is_bytes else 3.0) if mean_span_length is None else mean_span_length,
            ),
        ),
        model=size,
        start=start,
    )


def _model_and_vocabulary(model: str | None, vocabulary: str | None, start: str | None) -> tuple[Model, Vocabulary]:
    """What is named, else what the start checkpoint has, else ByT5 small and the vocabulary of the model's family."""
    if model is not None and not model.strip():
        raise SettingsError("--model is empty: name a size, or leave it out (is a variable of the shell unset?)")
    if start is None:
        size = named(model or "byt5_small")
        return size, vocabulary_of(vocabulary, size.name)
    size, words = model_and_vocabulary(start)
    if vocabulary is None:
        return replace(size, dropout=0.0) if model is None else named(model), words
    wanted = vocabulary_of(vocabulary, size.name)
    return resized(replace(size, dropout=0.0), words, wanted) if model is None else named(model), wanted


def vocabulary_of(vocabulary: str | None, model: str) -> Vocabulary:
    """The vocabulary named on the command line, or that of the model's family.

    Raises SettingsError for a model that is not byte-level when none is named, and for an empty name.
    """
    if vocabulary is not None and not vocabulary.strip():
        raise SettingsError("--vocabulary is empty: name a SentencePiece model file, or bytes")
    if vocabulary == "bytes" or (vocabulary is None and model.startswith("byt5")):
        return Bytes()
    if vocabulary is None:
        raise SettingsError(
            f"model {model} needs a vocabulary: --vocabulary FILE names a SentencePiece model file, --vocabulary bytes "
            "trains it on bytes"
        )
    return SentencePiece(vocabulary)
