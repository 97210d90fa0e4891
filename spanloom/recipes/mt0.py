"""mT0: an mT5 fine-tuned on pairs in many languages, as xP3 has them (Muennighoff et al. 2022).

    spanloom train mt0 --data xP3 --start mt5-xxl/ --slice v4-256 --rates en=0.392 es=0.08 fr=0.058 --out runs/mt0
    spanloom train mt0 --data xP3 --start runs/lm --alpha 0.3 --packing packed --out runs/mt0

DIR holds a folder for each language, with rows {"inputs": ..., "targets": ...} in .jsonl or .parquet files (compressed
ones too). Without rates languages are drawn by their size to the power alpha. The settings are mT0's: 512 sequences of
1,024 + 1,024 tokens, one a row, every sequence weighs the same (--loss.normalizer real_tokens: every token), Adafactor
at a constant 0.001, dropout 0.1, 7,000 steps (XXL; 25,000 for large: --steps). The size is that of --start. The
original's own files do not run as they stand: their lengths of 256 + 256 cut half of the prompts, and their dropout of
0.1 was never in effect; these are the values of the models that were released.

Hardware: a v4-256 for XXL, a v4-64 for large, as there (--slice). Compiled for them (`spanloom plan mt0 ... --slice
v4-256 --on v4-256`) a step takes 11.5 and 9.4 GiB of the 30.75 of a chip; cost, counted and not measured: 3.9e16 and
3.5e15 FLOPs a step, at least 7.7 and 4.6 hours in all (7,000 and 25,000 steps).
Expect of XXL after xP3, as published, accuracies of 85.1 (mean of CB, RTE and COPA), 57.9 (XNLI, 15 languages), 77.6
(XCOPA, 11) and 95.4 (StoryCloze), the medians of five English prompts. Nobody has run these defaults to their end with
Spanloom.
"""

from pathlib import Path
from typing import Literal

from spanloom.model.sizes import named
from spanloom.recipes._fine_tuning import fine_tuning_run, told_by_start
from spanloom.recipes._slices import on_slice
from spanloom.recipes._start import model_and_vocabulary, needed
from spanloom.settings.feature import Feature
from spanloom.settings.mesh import Mesh
from spanloom.settings.mixture import ByAlpha, Mixture, Weighted
from spanloom.settings.model import Model
from spanloom.settings.nearest import did_you_mean
from spanloom.settings.objectives import Supervised
from spanloom.settings.run import After, Evaluation, Loss, Run
from spanloom.settings.serialize import SettingsError
from spanloom.settings.task import PairFiles, Task
from spanloom.settings.vocabulary import Bytes, Vocabulary

SLICES = {"v4-256": (Mesh(fsdp=32, tensor=4), 128), "v4-64": (Mesh(fsdp=32), 128)}
"""The mesh of a slice, and the sequences of a microbatch: of XXL, and of large."""
_ENDINGS = ("jsonl", "parquet")


def recipe(
    data: str | None = None,
    start: str | None = None,
    rates: tuple[str, ...] = (),
    alpha: float = 1.0,
    heldout_share: float = 0.001,
    inputs_length: int = 1024,
    targets_length: int = 1024,
    inputs_eos: bool = True,
    slice: Literal["v4-256", "v4-64"] | None = None,
) -> Run:
    """The run.

    Args:
      data: Folder with a folder of .jsonl or .parquet files for each language. Must be given.
      start: Checkpoint, run directory or Hugging Face folder to start from; mT0's was mT5. Must be given.
      rates: LANGUAGE=RATE of every language, relative to one another (0: left out); none: by size and alpha.
      alpha: Exponent on the number of pairs of a language: 1 draws by size, 0 all languages alike.
      heldout_share: Share of the pairs kept out of training.
      inputs_length: Encoder length in tokens; longer inputs are cut at the right.
      targets_length: Decoder length in tokens; longer targets are cut at the right.
      inputs_eos: Whether an end of sequence follows the inputs, as where the released mT0 is asked.
      slice: The TPUs that it is to train on, v4-256 for XXL, v4-64 for large: decides mesh, microbatches, bfloat16 and
        what is computed again; unset: all devices that are there, and what the flags say.
    """
    if not data:
        raise SettingsError("mt0 needs --data, a folder with a folder for each language")
    if start is None:
        raise needed("mt0")
    model, vocabulary = model_and_vocabulary(start)
    objective = Supervised(inputs_length, targets_length, too_long="trim")
    files = _languages(Path(data).expanduser())
    given = _rates(rates, files)
    parts = tuple(
        Weighted(
            _task(language, patterns, heldout_share, vocabulary, objective, inputs_eos),
            given[language] if given else ByAlpha(alpha),
        )
        for language, patterns in files.items()
        if not given or given[language]
    )
    return on_slice(_run(Mixture("languages", parts), model, start), SLICES[slice] if slice else None)


def example() -> tuple[Run, dict[str, str]]:
    """The run as help shows it before --start is named, and the fields that only --start tells."""
    task = Task("en", PairFiles(), Bytes(), Supervised(1024, 1024, too_long="trim"))
    return _run(task, named("byt5_small"), None), told_by_start()


def _run(task: Task | Mixture, model: Model, start: str | None) -> Run:
    return fine_tuning_run(
        "mt0",
        task,
        model,
        start,
        loss=Loss(normalizer="sequences"),
        batch_size=512,
        steps=7000,
        eval=Evaluation(every=500, max_batches=1, batch_size=64),
        after=After(fills=1),
    )


def _task(
    language: str, files: tuple[str, ...], share: float, vocabulary: Vocabulary, objective: Supervised, eos: bool
) -> Task:
    features = () if eos else (Feature("inputs", add_eos=False), Feature("targets"))
    return Task(language, PairFiles(files, heldout_share=share), vocabulary, objective, features=features)


def _languages(folder: Path) -> dict[str, tuple[str, ...]]:
    """Globs of the files of each language. Raises SettingsError where there is none."""
    if not folder.is_dir():
        raise SettingsError(f"--data {folder}: no such folder")
    found: dict[str, tuple[str, ...]] = {}
    for language in sorted(path for path in folder.iterdir() if path.is_dir()):
        globs = tuple(f"{language}/*.{end}*" for end in _ENDINGS if next(language.glob(f"*.{end}*"), None))
        if globs:
            found[language.name] = globs
    if not found:
        raise SettingsError(f"--data {folder}: no folder in it has .jsonl or .parquet files; it takes one a language")
    return found


def _rates(words: tuple[str, ...], languages: dict[str, tuple[str, ...]]) -> dict[str, float]:
    """The rate of every language; none where none is given. Raises SettingsError unless they are of these languages."""
    rates: dict[str, float] = {}
    for word in words:
        name, _, number = word.partition("=")
        if name not in languages:
            raise SettingsError(f"--rates {word}: no language has a folder {name!r}{did_you_mean(name, languages)}")
        try:
            rates[name] = float(number)
        except ValueError:
            raise SettingsError(f"--rates {word}: must be LANGUAGE=RATE, such as en=0.392") from None
    if rates and (lacking := [name for name in languages if name not in rates]):
        raise SettingsError(f"--rates lacks {', '.join(lacking)}: give each of them a rate, 0 to leave it out")
    return rates
