"""Words to sounds in many languages, one byte model for all of them, from random weights (SIGMORPHON 2020, task 1).

    git clone --depth 1 https://github.com/sigmorphon/2020 sigmorphon
    spanloom train g2p --data sigmorphon/task1/data --out runs/g2p
    spanloom train g2p --data sigmorphon/task1/data --languages hun ice --steps 300 --out runs/two

DATA holds train/hun_train.tsv, dev/hun_dev.tsv and test/hun_test.tsv of each language: a word, a tab, and its sounds
parted by spaces. The model reads ' hun szó', so that the language is told as a word. Each language is a task of its
own, drawn alike, with word and phoneme error rates (`wer`, `per`) of its own; many words share a row. Model: 3.1
million parameters. Cost: 1,170 CPU seconds. Expect, in the mean over the task's 15 languages, 20 % of the words wrong
and 4.5 % of the phonemes (copying the letters: 98 and 84).
"""

from dataclasses import replace
from pathlib import Path
from typing import Literal

from spanloom.model.sizes import named
from spanloom.settings.measures import metric_of
from spanloom.settings.mixture import Mixture, Weighted
from spanloom.settings.nearest import did_you_mean
from spanloom.settings.objectives import Supervised
from spanloom.settings.optimizer import AdamWRMS, Cosine
from spanloom.settings.packing import Packed
from spanloom.settings.run import After, Checkpoints, Evaluation, Run
from spanloom.settings.serialize import SettingsError
from spanloom.settings.task import PairFiles, Task
from spanloom.settings.vocabulary import Bytes

Part = Literal["train", "dev", "test"]


def recipe(data: str | None = None, languages: tuple[str, ...] = (), heldout: Literal["dev", "test"] = "dev") -> Run:
    """The run.

    Args:
      data: Folder of the words, see above. Must be given.
      languages: Those to learn, by the names of their files: hun, ice; none: all that are there.
      heldout: What is measured: dev, or test. Neither is learnt from.
    """
    if not data:
        raise SettingsError("g2p needs --data, the folder with train/hun_train.tsv and so on in it")
    folder = Path(data).expanduser()
    tasks = tuple(_task(folder, language, heldout) for language in _languages(folder, languages))
    return _run(Mixture("g2p", tuple(map(Weighted, tasks))))


def example() -> tuple[Run, dict[str, str]]:
    """The run as help shows it before --data is named."""
    return _run(Task("g2p", PairFiles(), Bytes(), Supervised())), {}


def _run(task: Task | Mixture) -> Run:
    steps = 2000
    return Run(
        name="g2p",
        task=task,
        model=replace(named("byt5_nano"), d_model=192, num_heads=3, name="custom"),
        optimizer=AdamWRMS(learning_rate=2e-2),
        schedule=Cosine(warmup_steps=100, decay_steps=steps, end_factor=0.02),
        packing=Packed(144, 160),  # about eight words
        batch_size=16,
        steps=steps,
        checkpoint=Checkpoints(every=250),
        eval=Evaluation(every=500, max_batches=1, batch_size=64),
        after=After(fills=1),
    )


def _task(folder: Path, language: str, heldout: Part) -> Task:
    """The pairs of one language, as ' {language} {word}' and sounds."""
    source = PairFiles(
        files=(str(_file(folder, "train", language)),),
        heldout_files=(str(_file(folder, heldout, language)),),
        inputs=f" {language} {{0}}",
        targets="1",
        header="no",
    )
    return Task(language, source, Bytes(), Supervised(), metrics=(metric_of("pronunciation"),))


def _languages(folder: Path, wanted: tuple[str, ...]) -> tuple[str, ...]:
    """Those that are wanted, or all. Raises SettingsError for one that is not there, and for a folder without any."""
    there = sorted(path.name.removesuffix("_train.tsv") for path in folder.glob("train/*_train.tsv"))
    if not there:
        raise SettingsError(f"--data {folder}: no {folder / 'train'}/*_train.tsv, such as hun_train.tsv, is there")
    for language in wanted:
        if language not in there:
            raise SettingsError(
                f"--languages {language}: there are {', '.join(there)} in {folder}{did_you_mean(language, there)}"
            )
    return wanted or tuple(there)


def _file(folder: Path, part: Part, language: str) -> Path:
    return folder / part / f"{language}_{part}.tsv"
