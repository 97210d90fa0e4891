"""What an example made by a prompt carries for evaluation, and what is made of it.

An example has the texts `inputs` and `targets`, and where its template names answer choices also

- `answer_choices`: list of str, at least one, stripped: what may be answered to this example. Their number may differ
  from example to example.
- `label`: int, the first place among them that equals the target; -1 where none does. Choices may be equal texts, so
  that an answer is right if its text is that of `answer_choices[label]` (T0's `is_correct`).

The held-out part of a task with a `postprocess` keeps whole examples: `spanloom.evaluation.task_metrics.example_of`
gives them back, these two fields included. `answer_number` is such a postprocess, and every task with choices has it.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from spanloom.tasks.templates import FieldError

CHOICES = "answer_choices"
LABEL = "label"


def with_answers(inputs: str, targets: str, choices: Sequence[str] | None) -> dict[str, Any]:
    """The example: see above. `choices` None: it has none."""
    example: dict[str, Any] = {"inputs": inputs, "targets": targets}
    if choices:
        example |= {CHOICES: list(choices), LABEL: number_of(targets, choices)}
    return example


def number_of(text: str, choices: Sequence[str]) -> int:
    """The first place of a text among the choices, spaces around it aside; -1 where it is none of them."""
    stripped = text.strip()
    return list(choices).index(stripped) if stripped in choices else -1


def answer_number(text: str, example: Mapping[str, Any]) -> int:
    """A task's postprocess: which of the example's choices was written; -1 for anything else."""
    return number_of(text, example[CHOICES])


def cached_prompt(row: Mapping[str, Any]) -> dict[str, Any] | bool:
    """A preprocessor for P3's SeqIO caches: the texts as they were rendered then, and the answer choices.

    They are tokenized anew, by any vocabulary; its own ids are of T5's. Spaces around texts go, as promptsource has
    them. Rows without inputs or targets are left out. Raises FieldError where the cache holds no texts.
    """
    for side in ("inputs", "targets"):
        if not isinstance(row.get(f"{side}_pretokenized"), str):
            raise FieldError(
                f"no text {side}_pretokenized in a row of the cache, whose fields are {', '.join(map(str, row))}",
                "Cache the task with the texts kept (SeqIO's copy_pretokenized), or read its ids by a task of your own",
                f"missing field '{side}_pretokenized'",
            )
    inputs, targets = row["inputs_pretokenized"].strip(), row["targets_pretokenized"].strip()
    choices = [str(choice).strip() for choice in row.get(CHOICES) or ()]
    return with_answers(inputs, targets, choices) if inputs and targets else False
