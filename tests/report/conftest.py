"""The facts of a small mixture of every objective, unpacked and packed."""

import json
from dataclasses import replace

import pytest
from pipeline_data import sentences, tiny_run

from spanloom.pipeline.data import open_data
from spanloom.pipeline.facts.run import run_facts
from spanloom.settings.mixture import Mixture, Weighted
from spanloom.settings.objectives import UL2, FullLM, IidDenoising, PrefixLM, SpanCorruption, Supervised, TextInfilling
from spanloom.settings.packing import Packed
from spanloom.settings.task import PairFiles, Task, TextFiles

TEXTS = {
    "spans": SpanCorruption(inputs_length=64),
    "alone": IidDenoising(inputs_length=64),
    "prefix": PrefixLM(inputs_length=64),
    "full": FullLM(targets_length=64),
    "infilling": TextInfilling(inputs_length=64),
    "ul2": UL2(inputs_length=64),
}
HOSTILE = "<script>alert(1)</script> & \x1b[31m \u202e\u05e9\u05dc\u05d5\u05dd \u6c34"


@pytest.fixture(scope="package")
def run_and_stores(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    lines = [*sentences(300), *[HOSTILE] * 100]
    (folder / "a.jsonl").write_text("".join(json.dumps({"text": line}) + "\n" for line in lines))
    pairs = [{"inputs": HOSTILE, "targets": "y" * (number % 20)} for number in range(1, 60)]
    (folder / "p.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in pairs))
    source = TextFiles((str(folder / "a.jsonl"),), heldout_share=0.1)
    tasks = [Task(name, source, objective=objective) for name, objective in TEXTS.items()]
    trimmed = Supervised(targets_length=10, too_long="trim")
    tasks.append(Task("<b>pairs", PairFiles((str(folder / "p.jsonl"),), heldout_share=0.0), objective=trimmed))
    mixture = Mixture("all", tuple(Weighted(task, 1.0 + number) for number, task in enumerate(tasks)))
    run = replace(tiny_run(mixture), name="<all>", steps=20, batch_size=8).resolve()
    return run, folder / "stores"


@pytest.fixture(scope="package")
def facts(run_and_stores):
    run, folder = run_and_stores
    data = open_data(run, folder)
    return run_facts(run, data, data.tasks, examples=3, rows=8)


@pytest.fixture(scope="package")
def packed(run_and_stores):
    run, folder = run_and_stores
    run = replace(run, packing=Packed(inputs_length=128, targets_length=128))
    data = open_data(run, folder)
    return run_facts(run, data, data.tasks, examples=1, rows=3)
