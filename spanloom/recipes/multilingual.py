"""Several languages, each drawn by its size to the power alpha, and pairs of inputs and targets beside them, packed.

    spanloom train multilingual --text de='corpus/de/*.txt' sv=corpus/sv.jsonl.gz --model byt5_small --out runs/a
    spanloom train multilingual --text de=de.txt sv=sv.txt --pairs questions=questions.tsv --start runs/a --out runs/b

Span corruption of each language, as `pretrain` has it; alpha 0.3 weighs small languages as mT5 does. Each has a store,
a held-out loss and results of its own. `spanloom show multilingual ...` prints rates and epochs beforehand. A step
costs what one of `pretrain` does, and nobody has run these defaults to their end either.
"""

from dataclasses import replace
from typing import Literal

from spanloom.recipes import pretrain
from spanloom.recipes._files import by_name
from spanloom.settings.mixture import ByAlpha, Mixture, Unit, Weighted
from spanloom.settings.objectives import SpanCorruption, Supervised
from spanloom.settings.packing import Packed, Unpacked
from spanloom.settings.run import Run
from spanloom.settings.serialize import SettingsError
from spanloom.settings.task import Errors, PairFiles, Task, TextFiles


def recipe(
    text: tuple[str, ...] = (),
    alpha: float = 0.3,
    size: Unit = "characters",
    pairs: tuple[str, ...] = (),
    pairs_share: float = 0.1,
    heldout_share: float = 0.01,
    field: str = "text",
    unit: Literal["line", "document"] = "line",
    inputs: str = "inputs",
    targets: str = "targets",
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
      text: NAME=FILES of each language: a file or glob (.txt, .jsonl, .csv, .tsv, .parquet; compressed ones too); a
        name may come again with more files; without NAME= it is that of the file. Must be given.
      alpha: Exponent on the size of a language: 1 draws by size, 0 all languages alike.
      size: What the size of a language counts.
      pairs: NAME=FILES of each task of pairs, likewise (.tsv, .csv, .jsonl, .parquet).
      pairs_share: Share of all examples that are pairs, each task of them alike.
      heldout_share: Share of the documents, and of the pairs, that is kept out of training.
      field: Field of a row that holds the text, or a template such as '{title}: {text}'.
      unit: What one document is in a .txt file: each line, or the whole file.
      inputs: Column or field of the inputs of pairs, a template such as 'translate: {src}', or a column number from 0.
      targets: Column or field of the targets of pairs, a template, or a column number from 0.
      encoding: Text encoding of the files.
      errors: What to do with bad input: stop, replace bytes, or skip and count.
      vocabulary: `bytes`, or a SentencePiece model file; unset: that of --start, or bytes for byt5 models.
      model: A published size, see pretrain; unset: that of --start, or byt5_small.
      start: Checkpoint, run directory or Hugging Face folder to start from; unset: random weights.
      inputs_length: Encoder length in tokens, also of pairs; unset: 1024 for bytes, 512 for SentencePiece.
      noise_density: Share of the tokens that is masked.
      mean_span_length: Mean length of a masked span in tokens; unset: 20 for bytes, 3 for SentencePiece.
    """
    if not text:
        raise SettingsError("--text is empty: name the languages, such as --text de='corpus/de/*.txt' sv=sv.jsonl")
    base = pretrain.recipe(
        vocabulary=vocabulary,
        model=model,
        start=start,
        inputs_length=inputs_length,
        noise_density=noise_density,
        mean_span_length=mean_span_length,
    )
    assert isinstance(base.task, Task)
    source = TextFiles(heldout_share=heldout_share, field=field, unit=unit, encoding=encoding, errors=errors)
    texts = [
        replace(base.task, name=name, source=replace(source, files=files))
        for name, files in by_name("--text", text).items()
    ]
    languages = Mixture("languages", tuple(Weighted(task, ByAlpha(alpha, unit=size)) for task in texts))
    if not pairs:
        return replace(base, name="multilingual", task=languages)
    if not 0 < pairs_share < 1:
        raise SettingsError(f"--pairs-share is {pairs_share}: must be above 0 and below 1")
    tables = PairFiles(heldout_share=heldout_share, inputs=inputs, targets=targets, encoding=encoding, errors=errors)
    assert isinstance(base.task.objective, SpanCorruption)
    objective = Supervised(base.task.objective.inputs_length, too_long="trim")
    supervised = [
        replace(base.task, name=name, source=replace(tables, files=files), objective=objective)
        for name, files in by_name("--pairs", pairs).items()
    ]
    parts = (
        Weighted(languages, 1 - pairs_share),
        Weighted(Mixture("pairs", tuple(map(Weighted, supervised))), pairs_share),
    )
    return replace(base, name="multilingual", task=Mixture("languages and pairs", parts), packing=Packed())


def example() -> tuple[Run, dict[str, str]]:
    """The run as help shows it before --text is named."""
    return replace(pretrain.recipe(), name="multilingual", packing=Unpacked()), {}
