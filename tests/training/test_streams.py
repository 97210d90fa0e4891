"""Training on streams: killed at any moment it goes on to the very same losses; old shards are dropped."""

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import stream_functions
from tiny_training import MODEL, PATIENCE, events, last_step, losses, same_arrays, wait_until

from spanloom.pipeline.spool.index import SpoolIndex
from spanloom.settings.function import Function
from spanloom.settings.model import Model
from spanloom.settings.objectives import SpanCorruption
from spanloom.settings.optimizer import AdamW, Constant
from spanloom.settings.row_sources import HuggingFaceDataset, PythonExamples
from spanloom.settings.run import Checkpoints, Evaluation, Loading, Logging, Run
from spanloom.settings.task import Task
from spanloom.training.checkpoint_paths import copy_checkpoint, latest
from spanloom.training.checkpoints import restore
from spanloom.training.facts import read_facts
from spanloom.training.loop import train
from spanloom.training.same_data import ChangedDataError

STEPS = 60
SMALL: Model = replace(MODEL, num_encoder_layers=1, num_decoder_layers=1)


def stream_run(source, steps: int = STEPS, **changes) -> Run:
    run = Run(
        name="stream",
        task=Task("s", source, objective=SpanCorruption(inputs_length=32, mean_span_length=3.0)),
        model=SMALL,
        optimizer=AdamW(learning_rate=1e-2),
        schedule=Constant(warmup_steps=5),
        batch_size=4,
        steps=steps,
        checkpoint=Checkpoints(every=10, keep=2, keep_best=0),
        eval=Evaluation(every=30, max_batches=1),
        log=Logging(every=1, tensorboard=False),
    )
    return replace(run, **changes)


def endless(**more) -> PythonExamples:
    function = Function(f"{stream_functions.__file__}:endless", {"pause": 0.0005})
    return PythonExamples(function, streaming=True, shard_rows=25, heldout_take=100, heldout_share=0.05, **more)


def from_files(folder: Path) -> HuggingFaceDataset:
    for part in range(3):
        rows = (stream_functions.row(number) for number in range(part * 80, part * 80 + 80))
        (folder / f"part-{part}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return HuggingFaceDataset(str(folder), streaming=True, shard_rows=25, heldout_take=100, heldout_share=0.05)


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPANLOOM_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="module", params=["endless", pytest.param("files", marks=pytest.mark.slow)])
def source(request, tmp_path_factory):
    return endless() if request.param == "endless" else from_files(tmp_path_factory.mktemp("files"))


@pytest.fixture(scope="module")
def straight(source, tmp_path_factory):
    directory = tmp_path_factory.mktemp("straight") / "run"
    assert train(stream_run(source), directory)
    return directory


def spawn(run: Run, directory: Path) -> subprocess.Popen:
    from spanloom.settings.serialize import to_json

    directory.mkdir(parents=True, exist_ok=True)
    program = (
        "import json, sys; from pathlib import Path; from spanloom.settings.serialize import from_json; "
        "from spanloom.training.loop import train; "
        "train(from_json(json.loads(sys.argv[1])), Path(sys.argv[2]))"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(stream_functions.__file__).parent), "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-c", program, json.dumps(to_json(run)), str(directory)]
    with (directory / "process.log").open("ab") as log:
        return subprocess.Popen(command, stdout=log, stderr=log, env=environment)


def test_killed_again_and_again_the_losses_are_the_same_to_the_last_bit(source, straight, tmp_path):
    run = stream_run(source, loading=Loading(ahead=1))
    for step in (17, 38):
        process = spawn(run, tmp_path)
        assert wait_until(process, lambda step=step: last_step(tmp_path) >= step), log_of(tmp_path)
        process.send_signal(signal.SIGKILL)
        process.wait(PATIENCE)
        assert last_step(tmp_path) < STEPS
    process = spawn(run, tmp_path)
    assert process.wait(PATIENCE) == 0, log_of(tmp_path)
    assert losses(tmp_path) == losses(straight)
    ours, theirs = restore(latest(tmp_path)), restore(latest(straight))
    assert ours.position == theirs.position and same_arrays(ours.params, theirs.params)
    assert chains(tmp_path)[: len(chains(straight))] == chains(straight)[: len(chains(tmp_path))]


def log_of(directory: Path) -> str:
    return (directory / "process.log").read_text()[-4000:]


def lines(directory: Path) -> list[bytes]:
    return (directory / "stores/s/train.spool/index.jsonl").read_bytes().splitlines()


def chains(directory: Path) -> list[tuple[int, str]]:
    """The examples and hashes of all shards; the states of a stream at one place may differ, and mean the same."""
    return [(mark["examples"], mark["chain"]) for mark in map(json.loads, lines(directory))]


def test_shards_before_the_oldest_checkpoint_are_dropped_and_few_are_ahead(straight):
    index = SpoolIndex(straight / "stores/s/train.spool")
    kept = sorted(int(path.name) for path in (straight / "checkpoints").iterdir())
    assert kept == [50, 60]
    oldest = read_facts(straight / "checkpoints/50").position["examples"]
    assert oldest == 200
    assert index.mark(index.kept()[0]).examples <= oldest < index.mark(index.kept()[0] + 1).examples
    read = index.shards_of(np.array([STEPS * 4 - 1]))[0]
    assert index.last.shard <= read + 2 + 2  # what the loader looks at, and what is made ahead of that
    assert index.kept()[-1] == index.last.shard - 1


def test_a_fork_goes_on_where_its_checkpoint_says_with_no_spool_beside_it(source, straight, tmp_path):
    copy_checkpoint(straight / "checkpoints/50", tmp_path)
    assert train(stream_run(source), tmp_path)
    theirs = {key: loss for key, loss in losses(straight).items() if key[1] > 50}
    assert losses(tmp_path) == theirs
    index = SpoolIndex(tmp_path / "stores/s/train.spool")
    assert index.base.shard > 3


def test_other_rows_under_the_same_settings_are_refused_unless_accepted(tmp_path):
    folder = tmp_path / "files"
    folder.mkdir()
    source = from_files(folder)
    assert train(stream_run(source, 20), tmp_path / "run")
    before = lines(tmp_path / "run")
    (folder / "part-0.jsonl").write_text(json.dumps(stream_functions.row(7)) + "\n")
    with pytest.raises(ChangedDataError, match="the training text and the held-out text changed"):
        train(stream_run(source, 30), tmp_path / "run")
    assert lines(tmp_path / "run") == before
    assert train(stream_run(source, 30), tmp_path / "run", accepted=["task.source"])
    assert lines(tmp_path / "run")[0] != before[0]
    steps = [event["step"] for event in events(tmp_path / "run") if event["kind"] == "train"]
    assert steps == list(range(1, 31))


def test_an_error_of_the_function_ends_the_run_with_its_own_message(tmp_path):
    function = Function(f"{stream_functions.__file__}:failing", {"after": 120})
    source = PythonExamples(function, streaming=True, shard_rows=25, heldout_share=0.0)
    with pytest.raises(ValueError, match="fails at row 120: OSError: the line is dead"):
        train(stream_run(source), tmp_path)
    assert last_step(tmp_path) >= 20
