import json
from dataclasses import replace

import jax
import pytest
from tiny_model import TINY

from spanloom.model.params import declare, initialize
from spanloom.model.placement import ANYWHERE
from spanloom.pipeline.data import open_data
from spanloom.settings.mixture import Mixture, Weighted
from spanloom.settings.objectives import Supervised
from spanloom.settings.row_sources import RowFiles
from spanloom.settings.run import Evaluation, Run
from spanloom.settings.task import Task
from spanloom.tasks.prompts.prompted import ANSWER_NUMBER
from spanloom.training.answers import Answers


def with_choices(row):
    return {"inputs": row["text"], "targets": "ab"[row["n"] % 2], "answer_choices": ["a", "b"], "label": row["n"] % 2}


def hidden(row):
    return {**with_choices(row), "label": -1}


def written(row):
    return {"inputs": row["text"], "targets": str(row["n"])}


@pytest.fixture(scope="module")
def opened(tmp_path_factory):
    folder = tmp_path_factory.mktemp("answers")
    for name in ("train", "dev"):
        rows = ({"text": f"{name} {n}", "n": n} for n in range(9))
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    source = RowFiles((str(folder / "train.jsonl"),), (str(folder / "dev.jsonl"),))
    objective = Supervised(16, 4)
    tasks = [
        Task("choices", source, objective=objective, preprocessors=(with_choices,), postprocess=ANSWER_NUMBER),
        Task("hidden", source, objective=objective, preprocessors=(hidden,), postprocess=ANSWER_NUMBER),
        Task("text", source, objective=objective, preprocessors=(written,)),
    ]
    run = Run("r", Mixture("m", tuple(map(Weighted, tasks))), TINY, batch_size=4, steps=1).resolve()
    return run, open_data(run, folder / "run"), initialize(declare(TINY), jax.random.key(0))


def asked(opened, answers, max_batches=0):
    run, data, params = opened
    run, said = replace(run, eval=Evaluation(answers=answers, batch_size=4, max_batches=max_batches)), []
    return Answers(run, data.heldout, data.vocabulary, ANYWHERE, said.append).of(params), said


def test_only_what_is_asked_for_is_measured(opened):
    assert asked(opened, "none") == ({}, [])
    ranks, said = asked(opened, "ranks")
    assert ranks.keys() == {"choices"} and ranks["choices"].keys() == {"accuracy", "majority"}
    assert ranks["choices"]["majority"] == pytest.approx(500 / 9)
    assert len(said) == 1 and said[0].startswith("not measured on what is held out of task 'hidden': no example has a")
    whole, _ = asked(opened, "all")
    assert whole["choices"] == {"exact_match": whole["choices"]["exact_match"], **ranks["choices"]}
    assert whole["text"].keys() == {"exact_match", "commonest_target"}


def test_the_examples_that_losses_are_of(opened, monkeypatch):
    """Four of nine, spread over the part: of the first four as many have one answer as the other, of these not."""
    (batch,) = opened[1].heldout["choices"].eval_examples(4, 1)
    answers = [number % 2 for number in batch.tolist()]
    share = 100 * max(sum(answers), 4 - sum(answers)) / 4
    assert share != 50 and asked(opened, "ranks", max_batches=1)[0]["choices"]["majority"] == share
