"""Span corruption on your own text files, bytes or SentencePiece; `spanloom pretrain` is this recipe.

    spanloom pretrain --text 'corpus/*.jsonl.gz' --field text --model byt5_small --out runs/a
    spanloom pretrain --text 'corpus/*.txt' --vocabulary my.model --model t5_1_1_base --out runs/b

T5's settings: Adafactor at 1 / sqrt(max(step, 10,000)), 15 % of the tokens masked, in spans of 3 (SentencePiece) or 20
(bytes) tokens on average. Cost and loss depend on model and text.
"""

from typing import Literal

from spanloom.model.sizes import named
from spanloom.settings.run import Run
from spanloom.settings.serialize import SettingsError
from spanloom.settings.task import Errors, SpanCorruption, Task, TextFiles
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
    model: str = "byt5_small",
    inputs_length: int | None = None,
    noise_density: float = 0.15,
    mean_span_length: float | None = None,
) -> Run:
    """The run.

    Args:
      text: Files or globs: .txt, .jsonl, .csv, .tsv, .parquet; plain or .gz, .zst, .bz2, .xz.
      heldout: Files or globs of the held-out part; none: a share of the documents is kept out.
      heldout_share: Share of the documents kept out of training when no held-out files are named.
      field: Field of a row that holds the text, or a template such as '{title}: {text}'.
      unit: What one document is in a .txt file: each line, or the whole file.
      format: Format of the files; auto goes by the name.
      encoding: Text encoding of the files.
      errors: What to do with bad input: stop, replace bytes, or skip and count.
      vocabulary: `bytes`, or a SentencePiece model file; unset: bytes for byt5 models, needed for others.
      model: A published size, such as byt5_small, t5_1_1_base or mt5_xl; its fields are under --model.
      inputs_length: Encoder length in tokens; unset: 1024 for bytes, 512 for SentencePiece.
      noise_density: Share of the tokens that is masked.
      mean_span_length: Mean length of a masked span in tokens; unset: 20 for bytes, 3 for SentencePiece.
    """
    size = named(model)
    words = vocabulary_of(vocabulary, size.name)
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
                inputs_length=inputs_length or (1024 if is_bytes else 512),
                noise_density=noise_density,
                mean_span_length=mean_span_length or (20.0 if is_bytes else 3.0),
            ),
        ),
        model=size,
    )


def vocabulary_of(vocabulary: str | None, model: str) -> Vocabulary:
    """The vocabulary named on the command line, or that of the model's family.

    Raises SettingsError for a model that is not byte-level when none is named.
    """
    if vocabulary == "bytes" or (vocabulary is None and model.startswith("byt5")):
        return Bytes()
    if vocabulary is None:
        raise SettingsError(
            f"model {model} needs a vocabulary: --vocabulary FILE names a SentencePiece model file, --vocabulary bytes "
            "trains it on bytes"
        )
    return SentencePiece(vocabulary)
