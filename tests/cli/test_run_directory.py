import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from bare_checkpoint import save_bare

from spanloom.cli import run_directory
from spanloom.cli.errors import CommandError
from spanloom.cli.recipe import read_run
from spanloom.cli.run_directory import anchored, prepare
from spanloom.recipes.pretrain import recipe as pretrain
from spanloom.recipes.quickstart import recipe as quickstart
from spanloom.settings.compare import ChangedSettingsError
from spanloom.settings.row_sources import (
    HuggingFaceDataset,
    PythonExamples,
    RecordFiles,
    RowFiles,
    SeqioCaches,
    TfdsFolder,
)
from spanloom.settings.run import Evaluation
from spanloom.settings.serialize import SettingsError, to_json
from spanloom.settings.task import Task
from spanloom.settings.vocabulary import SentencePiece
from spanloom.training.checkpoint_paths import CheckpointError, latest
from spanloom.training.lock import DirectoryInUseError, directory_lock
from spanloom.training.run_file import write_run

pytestmark = pytest.mark.short

RUN = quickstart().resolve()


def begin(directory, step=None):
    prepare(RUN, directory, command=["spanloom", "train", "quickstart"])
    if step is not None:
        save_bare(directory, step, RUN)
    return directory


def test_beginning_writes_what_was_decided(tmp_path):
    recipe = tmp_path / "mine.py"
    recipe.write_text("# mine\n")
    out = tmp_path / "runs" / "a"
    start = prepare(RUN, out, command=["spanloom", "train", "mine.py"], recipe_source=recipe)
    assert (start.directory, start.run, start.step, start.changed) == (out, RUN, None, ())
    assert read_run(out) == RUN
    assert (out / "recipe.py").read_text() == "# mine\n"
    (line,) = (out / "commands.jsonl").read_text().splitlines()
    entry = json.loads(line)
    assert entry["command"] == ["spanloom", "train", "mine.py"]
    assert entry["directory"] == str(Path.cwd())
    assert {"time", "version", "step", "changed"} <= set(entry)
    assert not list(out.glob("*run.json?*"))


def test_going_on(tmp_path):
    begin(tmp_path, 7)
    start = prepare(replace(RUN, steps=9), tmp_path, command=[])
    assert start.step == 7
    assert [str(c) for c in start.changed] == [f"steps: {RUN.steps} -> 9"]
    assert read_run(tmp_path) == RUN  # the loop writes the new settings, once the data fit them
    assert len((tmp_path / "commands.jsonl").read_text().splitlines()) == 2


def test_changed_settings_are_refused_and_nothing_is_written(tmp_path):
    begin(tmp_path, 7)
    before = {path: path.read_bytes() for path in tmp_path.iterdir() if path.is_file() and path.name != ".lock"}
    with pytest.raises(ChangedSettingsError, match=r"seed +0 +-> +1(.|\n)*--fork NEW_DIR(.|\n)*--accept-change seed"):
        prepare(replace(RUN, seed=1), tmp_path, command=[])
    assert before == {p: p.read_bytes() for p in tmp_path.iterdir() if p.is_file() and p.name != ".lock"}


def test_accepted_changes_are_recorded(tmp_path):
    begin(tmp_path, 7)
    start = prepare(replace(RUN, seed=1), tmp_path, command=[], accepted=["seed"])
    assert (start.run.seed, read_run(tmp_path).seed) == (1, 0)
    write_run(start.run, tmp_path)  # as the loop does
    last = json.loads((tmp_path / "commands.jsonl").read_text().splitlines()[-1])
    assert (last["changed"], last["step"]) == (["seed: 0 -> 1"], 7)
    prepare(replace(RUN, seed=1), tmp_path, command=[])
    with pytest.raises(SettingsError, match="did you mean seed"):
        prepare(RUN, tmp_path, command=[], accepted=["sead"])


def test_before_the_first_checkpoint_settings_may_change(tmp_path):
    begin(tmp_path)
    start = prepare(replace(RUN, seed=1), tmp_path, command=[])
    assert (start.step, read_run(tmp_path).seed) == (None, 1)


def test_fork(tmp_path):
    old, new = begin(tmp_path / "old", 7), tmp_path / "new"
    before = (old / "run.json").read_bytes()
    start = prepare(replace(RUN, seed=1), old, command=[], fork=new)
    assert (start.directory, start.step, start.run.out) == (new, 7, str(new))
    assert latest(new) == new / "checkpoints" / "7"
    assert start.run.seed == 1
    assert (old / "run.json").read_bytes() == before
    entry = json.loads((new / "commands.jsonl").read_text())
    assert entry["forked_from"] == str((old / "checkpoints" / "7").resolve())


def test_the_command_of_a_fork_goes_on_with_it_however_far_its_run_has_come(tmp_path):
    old, new = begin(tmp_path / "old", 7), tmp_path / "new"
    run = replace(RUN, seed=1, steps=12)
    for step in (20, 30):  # the second time the loop has begun
        start = prepare(run, old, command=[], fork=new)
        assert (start.directory, start.step, start.run) == (new, 7, replace(run, out=str(new)))
        assert set(start.accepted) >= {"task", "seed"}
        save_bare(old, step, RUN)
        if step == 30:
            write_run(start.run, new)
    assert (start.step, latest(new).name) == (7, "7")
    start = prepare(run, old, command=[], fork=new)
    assert (start.directory, start.step, start.changed) == (new, 7, ())
    save_bare(new, 9, start.run)
    assert prepare(run, old, command=[], fork=new).step == 9
    with pytest.raises(ChangedSettingsError, match=r"new: (.|\n)*seed +1 +-> +2"):
        prepare(replace(run, seed=2), old, command=[], fork=new)
    with pytest.raises(CommandError, match="there is a run in it already"):
        prepare(RUN, begin(tmp_path / "elsewhere", 3), command=[], fork=new)


def test_a_fork_that_failed_on_its_data_is_no_run_yet(tmp_path):
    old, new = begin(tmp_path / "old", 7), begin(tmp_path / "new")  # where another run failed on its data, too
    prepare(replace(RUN, seed=1), old, command=[], fork=new)
    assert not (new / "run.json").exists()
    prepare(replace(RUN, seed=2), old, command=[], fork=new)
    assert latest(new) == new / "checkpoints" / "7"
    with pytest.raises(CommandError, match="there is a run in it already"):
        prepare(RUN, begin(tmp_path / "elsewhere", 7), command=[], fork=new)


@pytest.mark.parametrize("fork", [False, True])
def test_fewer_steps_than_were_done_are_refused_and_nothing_is_written(tmp_path, fork):
    old, new = begin(tmp_path / "old", 7), tmp_path / "new"
    before = {path: path.read_bytes() for path in old.rglob("*") if path.is_file()}
    words = r"old has done 7 steps, and 6 are asked for.*--steps 7 or more \(spanloom train .*old goes on with the 1,"
    with pytest.raises(CommandError, match=words):
        prepare(replace(RUN, steps=6), old, command=[], fork=new if fork else None)
    assert {path: path.read_bytes() for path in old.rglob("*") if path.is_file()} == before
    assert not new.exists()
    assert prepare(replace(RUN, steps=7), old, command=[]).step == 7


def test_a_fork_is_taken_while_the_run_goes_on(tmp_path):
    old = begin(tmp_path / "old", 7)
    with directory_lock(old):
        assert prepare(RUN, old, command=[], fork=tmp_path / "new").step == 7


def test_fork_that_cannot_be(tmp_path):
    with pytest.raises(CommandError, match="no checkpoint to go on from"):
        prepare(RUN, tmp_path / "old", command=[], fork=tmp_path / "new")
    old = begin(tmp_path / "old", 7)
    wider = replace(RUN, model=replace(RUN.model, d_ff=8))
    with pytest.raises(ChangedSettingsError, match="other shapes"):
        prepare(wider, old, command=[], fork=tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_places_that_are_taken(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(CommandError, match="is a file"):
        prepare(RUN, tmp_path / "file", command=[])
    (tmp_path / "a" / "checkpoints" / "3").mkdir(parents=True)
    with pytest.raises(CommandError, match=r"no run\.json"):
        prepare(RUN, tmp_path / "a", command=[])


def test_a_second_process_is_refused_and_a_killed_one_is_not_in_the_way(tmp_path):
    hold = "import sys, time; from pathlib import Path; from spanloom.training.lock import directory_lock\n"
    hold += "with directory_lock(Path(sys.argv[1])): print('held', flush=True); time.sleep(60)"
    process = subprocess.Popen([sys.executable, "-c", hold, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline() == "held\n"
        with pytest.raises(DirectoryInUseError, match=str(process.pid)):
            prepare(RUN, tmp_path, command=[])
        assert not (tmp_path / "run.json").exists()
    finally:
        process.kill()
        process.wait()
    prepare(RUN, tmp_path, command=[])
    with directory_lock(tmp_path):
        pass


def test_relative_paths_are_anchored(tmp_path):
    run = pretrain(text=("a/*.txt", "/b.txt", "gs://c/d"), heldout=("e",), vocabulary="v.model", model="t5_small")
    made = anchored(replace(run, start="runs/a"), tmp_path)
    assert made.task.source.files == (f"{tmp_path}/a/*.txt", "/b.txt", "gs://c/d")
    assert made.task.source.heldout_files == (f"{tmp_path}/e",)
    assert made.task.vocabulary == SentencePiece(f"{tmp_path}/v.model")
    assert made.start == f"{tmp_path}/runs/a"
    assert anchored(made, Path("/elsewhere")) == made
    assert anchored(RUN, tmp_path) == RUN


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (RowFiles(("a/*.csv", "s3://b/*.csv"), ("/c.csv",)), RowFiles(("{}/a/*.csv", "s3://b/*.csv"), ("/c.csv",))),
        (RecordFiles(("a.tfrecord",)), RecordFiles(("{}/a.tfrecord",))),
        (SeqioCaches(("cache/*", "gs://b/t")), SeqioCaches(("{}/cache/*", "gs://b/t"))),
        (TfdsFolder("imdb/1.0.0"), TfdsFolder("{}/imdb/1.0.0")),
        (HuggingFaceDataset("me/data"), HuggingFaceDataset("me/data")),
        (HuggingFaceDataset("saved"), HuggingFaceDataset("{}/saved")),
        (HuggingFaceDataset("./none"), HuggingFaceDataset("{}/none")),
        (HuggingFaceDataset("x/*.arrow"), HuggingFaceDataset("{}/x/*.arrow")),
        (PythonExamples(rows=({"a": 1},)), PythonExamples(rows=({"a": 1},))),
    ],
    ids=str,
)
def test_relative_paths_of_row_sources_are_anchored(source, expected, tmp_path):
    (tmp_path / "saved").mkdir()
    wanted = json.loads(json.dumps(to_json(expected)).replace("{}", str(tmp_path)))
    watched = Evaluation(also=(Task("watched", source),))
    made = anchored(replace(RUN, task=Task("t", source), eval=watched), tmp_path)
    assert to_json(made.task.source) == to_json(made.eval.also[0].source) == wanted
    assert anchored(made, Path("/elsewhere")) == made


def test_a_path_that_is_no_utf8_is_refused_by_name(tmp_path):
    name = b"caf\xe9.txt".decode("utf-8", "surrogateescape")
    with pytest.raises(CommandError, match=r"caf\\udce9\.txt': a name that is no UTF-8.*rename it"):
        anchored(pretrain(text=("a.txt", name)), tmp_path)


def test_a_failed_write_leaves_the_old_run_as_it_was(tmp_path, monkeypatch):
    begin(tmp_path)
    before = (tmp_path / "run.json").read_bytes()
    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="killed"):
        prepare(replace(RUN, steps=9), tmp_path, command=[])
    assert (tmp_path / "run.json").read_bytes() == before
    assert not list(tmp_path.glob("run.json?*"))


def test_a_fork_killed_halfway_never_begins_from_nothing(tmp_path, monkeypatch):
    old, new = begin(tmp_path / "old", 7), tmp_path / "new"
    with monkeypatch.context() as patch:
        patch.setattr(run_directory, "copy_checkpoint", fail)
        with pytest.raises(OSError, match="killed"):
            prepare(RUN, old, command=[], fork=new)
    with pytest.raises(CommandError, match=r"without a checkpoint.*--fork again"):
        prepare(RUN, new, command=[])
    assert prepare(RUN, old, command=[], fork=new).step == 7
    with pytest.raises(CommandError, match=r"no run\.json.*--fork again"):
        prepare(RUN, new, command=[])


def test_what_a_run_was_trained_with_is_what_its_checkpoint_says(tmp_path):
    out = begin(tmp_path, 7)
    write_run(replace(RUN, seed=1), out)  # as an editor would
    with pytest.raises(ChangedSettingsError, match=r"seed +0 +-> +1(.|\n)*run\.json is not what(.|\n)*checkpoints/7"):
        prepare(replace(RUN, seed=1), out, command=[])
    assert prepare(RUN, out, command=[]).step == 7  # the recipe still says what it was
    write_run(replace(RUN, model=replace(RUN.model, d_kv=65)), out)
    with pytest.raises(
        ChangedSettingsError, match=r"weights (.|\n)*model\.d_kv +64 +-> +65(.|\n)*run\.json is not what"
    ):
        prepare(read_run(out), out, command=[])
    write_run(replace(RUN, batch_size=-4), out)
    with pytest.raises(SettingsError, match=r"run\.json: batch_size is -4"):
        read_run(out)


def test_an_accepted_change_stays_accepted_until_it_is_trained_with_and_another_does_not(tmp_path):
    out, other = begin(tmp_path, 7), replace(RUN, seed=1)
    write_run(prepare(other, out, command=[], accepted=["seed"]).run, out)
    assert prepare(other, out, command=[]).accepted == ("seed",)
    with pytest.raises(ChangedSettingsError, match=r"seed +0 +-> +2"):
        prepare(replace(RUN, seed=2), out, command=[])
    save_bare(out, 9, other)
    with pytest.raises(ChangedSettingsError, match=r"seed +1 +-> +0"):
        prepare(RUN, out, command=[])


def test_a_folder_that_is_no_checkpoint_of_its_name_is_refused_by_name(tmp_path):
    out = begin(tmp_path, 7)
    (out / "checkpoints" / "99").mkdir()
    with pytest.raises(CheckpointError, match=r"checkpoints/99 is damaged.*step 7, is whole.*mv "):
        prepare(RUN, out, command=[])


def test_nothing_is_begun_over_the_metrics_of_lost_checkpoints(tmp_path):
    out = begin(tmp_path)
    (out / "metrics.jsonl").write_text('{"kind": "train", "step": 3}\n')
    before = {path: path.read_bytes() for path in out.iterdir() if path.is_file()}
    with pytest.raises(CheckpointError, match=r"has trained 3 steps.*checkpoints is missing"):
        prepare(replace(RUN, seed=1), out, command=[])
    assert {path: path.read_bytes() for path in out.iterdir() if path.is_file()} == before
    (out / "checkpoints").mkdir()  # a run that was killed before its first checkpoint
    assert prepare(replace(RUN, seed=1), out, command=[]).changed == ()
    (out / "metrics.jsonl").write_text(f'{{"kind": "train", "step": {2 * RUN.checkpoint.every + 1}}}\n')
    with pytest.raises(CheckpointError, match="holds none"):
        prepare(RUN, out, command=[])


@pytest.mark.parametrize(
    "line", [b"[" * 100_000, b"[]", b"7", b'{"step": 7, "accepted": 3, "forked_from": []}', b"\xff"]
)
def test_damaged_lines_of_commands_are_passed_over(tmp_path, line):
    out = begin(tmp_path, 7)
    (out / "commands.jsonl").write_bytes(line + b"\n")
    assert prepare(RUN, out, command=[]).accepted == ()


def test_a_torn_line_of_commands_takes_no_other_with_it(tmp_path):
    out = begin(tmp_path, 7)
    (out / "commands.jsonl").write_bytes(b'{"step": 7, "comm')
    prepare(replace(RUN, steps=9), out, command=["again"])
    torn, line = (out / "commands.jsonl").read_bytes().splitlines()
    assert torn == b'{"step": 7, "comm' and json.loads(line)["command"] == ["again"]


def fail(*_: object, **__: object) -> None:
    raise OSError("killed")
