"""Answer choices ranked by several processes that train together: every held-out example once, as by one process."""

import json

import pytest
from crew_process import Crew

pytestmark = pytest.mark.long
RECIPE = '''"""Questions whose answer stands in them."""
from pathlib import Path

from spanloom.settings.model import Model
from spanloom.settings.objectives import Supervised
from spanloom.settings.optimizer import AdamW, Constant
from spanloom.settings.row_sources import RowFiles
from spanloom.settings.run import Evaluation, Logging, Run
from spanloom.settings.vocabulary import Bytes
from spanloom.tasks.prompts.prompted import prompt, prompted_task
from spanloom.tasks.prompts.template import PromptTemplate


def recipe(text: str) -> Run:
    """Args:
        text: A file of rows.
    """
    template = PromptTemplate("which", "{{text}} ||| {{answer_choices[label]}}", "{{options | join('|||')}}")
    source = RowFiles((text,), (str(Path(text).with_name("heldout.jsonl")),))
    render = (prompt(template),)
    task = prompted_task("letters", source, render, Bytes(), Supervised(32, 8), has_choices=True)
    model = Model(384, d_model=32, d_ff=64, num_heads=4, d_kv=8, num_encoder_layers=2, num_decoder_layers=2)
    return Run(
        "tiny",
        task,
        model,
        AdamW(learning_rate=1e-2),
        Constant(warmup_steps=5),
        batch_size=8,
        steps=24,
        eval=Evaluation(every=12, max_batches=0, batch_size=4, answers="ranks"),
        log=Logging(every=10, tensorboard=False),
    )
'''
HELDOUT = 13
"""Neither processes nor batches divide it."""
MOST = 7
"""How many of them have the commonest label: the share is another where one is counted twice or not at all."""


def row(number):
    options = ["aa", "b", "cccc"][: 2 + number % 2]
    label = number * 7 % 5 % len(options)
    return {"text": f"{options[label]} {'x' * (number % 11)}", "options": options, "label": label}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ranks")
    (folder / "recipe.py").write_text(RECIPE)
    for name, numbers in (("rows", range(100, 400)), ("heldout", range(HELDOUT))):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row(number)) + "\n" for number in numbers))
    return folder


def answers(folder, processes, *flags):
    """The lines of evaluations."""
    out = folder / f"of-{processes}{''.join(flags)}"
    crew = Crew(folder / "recipe.py", folder / "rows.jsonl", out, processes, *flags)
    assert set(crew.wait().values()) == {0}, crew.said(0)[-2000:]
    lines = map(json.loads, (out / "metrics.jsonl").read_text().splitlines())
    return [line for line in lines if line["kind"] == "eval"]


def test_two_processes_rank_every_heldout_example_once_and_as_one_does(folder):
    alone, together = answers(folder, 1), answers(folder, 2)
    assert [line["step"] for line in together] == [12, 24]
    for one, two in zip(alone, together, strict=True):
        assert two["accuracy"] == one["accuracy"]
        assert two["accuracy"] * HELDOUT / 100 == pytest.approx(round(two["accuracy"] * HELDOUT / 100), abs=1e-9)
        assert two["majority"] == one["majority"] == pytest.approx(100 * MOST / HELDOUT)
        assert two["heldout_tokens"] == one["heldout_tokens"]
    assert together[-1]["accuracy"] > 90, "what was learnt would not show if scores went to others' options"
