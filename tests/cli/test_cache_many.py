"""`spanloom cache` of many tasks: some of them, a share of them, and some that fail."""

import json
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
import stream_functions
from pipeline_data import sentences

from spanloom.cli.main import main
from spanloom.pipeline.store import open_store

RECIPE = '''"""Many tasks."""
from spanloom.model.sizes import named
from spanloom.settings.mixture import Mixture, Weighted
from spanloom.settings.objectives import SpanCorruption, Supervised
from spanloom.settings.run import Run
from spanloom.settings.task import PairFiles, Task, TextFiles

def shout(example):
    return {"text": example["text"].upper()}

def fails(example):
    raise KeyError("no such thing")

def task(name, file, *preprocessors):
    source = TextFiles((file,), heldout_share=0.1)
    return Task(name, source, objective=SpanCorruption(inputs_length=64), preprocessors=preprocessors)

BAD = {
    "broken": task("broken", "broken.jsonl"),
    "missing": task("missing", "nothing.txt"),
    "raises": task("raises", "corpus0.jsonl", fails),
    "short": task("short", "short.txt"),
}

def recipe(bad: tuple[str, ...] = (), texts: int = 3) -> Run:
    found = [task(f"novels{n}", f"corpus{n}.jsonl", *([shout] if n % 2 else [])) for n in range(texts)]
    pairs = PairFiles(("pairs.tsv",), heldout_share=0.0)
    found = [*[BAD[name] for name in bad], *found, Task("sounds", pairs, objective=Supervised())]
    return Run("many", Mixture("many", tuple(map(Weighted, found))), named("byt5_tiny"), batch_size=4, steps=10)
'''


@pytest.fixture(scope="module")
def texts(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("texts")
    for number in range(6):
        with (folder / f"corpus{number}.jsonl").open("w") as file:
            file.writelines(json.dumps({"text": text}) + "\n" for text in sentences(300, seed=number))
    (folder / "broken.jsonl").write_text('{"text": "fine"}\n' * 100 + '{"text": oh\n')
    (folder / "short.txt").write_text("a\nb\nc\n")
    (folder / "pairs.tsv").write_text("inputs\ttargets\n" + "".join(f"{n}\t{'y' * (n % 20)}z\n" for n in range(200)))
    (folder / "many.py").write_text(RECIPE)
    return folder


@pytest.fixture
def folder(texts, tmp_path, monkeypatch) -> Path:
    """The working directory: corpora, and a recipe of many tasks on them."""
    for path in texts.iterdir():
        (tmp_path / path.name).symlink_to(path)
    (tmp_path / "many.py").unlink()
    (tmp_path / "many.py").write_text(RECIPE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def stores(directory: Path) -> dict[str, bytes]:
    found = {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}
    return {name: data for name, data in found.items() if not name.endswith(".lock")}


def rows_of(said: str) -> dict[tuple[str, str], list[str]]:
    """The lines of the table by task and part."""
    lines = [line.split() for line in said.splitlines()]
    begin = next(number for number, line in enumerate(lines) if line[:2] == ["task", "part"])
    end = next(number for number, line in enumerate(lines) if line[:2] == ["in", "all:"])
    return {(line[0], line[1]): line[2:] for line in lines[begin + 1 : end]}


def test_the_table_says_what_the_stores_hold(folder, capsys):
    assert main(["cache", "many.py", "--out", "a"]) == 0
    said = capsys.readouterr().out
    rows = rows_of(said)
    assert {*rows} == {(f"novels{n}", split) for n in range(3) for split in ("train", "heldout")} | {
        ("sounds", "train")
    }
    store = open_store(folder / "a" / "stores" / "novels1" / "train")
    size = sum(entry["bytes"] for entry in store.meta["shards"])
    examples, tokens, unknown, mean, longest, *disk, seconds = rows["novels1", "train"]
    assert (examples, tokens, unknown) == (f"{store.num_rows:,}", f"{store.num_tokens:,}", "0.000%")
    assert mean == f"{store.num_tokens / store.num_rows:,.1f}" and longest == str(store.stream.lengths().max())
    assert disk == [f"{size / 1000:.3g}", "kB"] and 0 < float(seconds) < 100
    pairs = open_store(folder / "a" / "stores" / "sounds" / "train")
    assert rows["sounds", "train"][:2] == ["200", f"{sum(c.num_tokens for c in pairs.columns.values()):,}"]
    assert rows["sounds", "train"][4] == "3+20"
    assert main(["cache", "many.py", "--out", "a"]) == 0
    again = rows_of(capsys.readouterr().out)
    assert {*again} == {*rows} and all(row[-2:] == ["there", "already"] for row in again.values())


def test_other_libraries_open_the_shards_and_what_describes_them_stands_beside(folder):
    assert main(["cache", "many.py", "--out", "a"]) == 0
    for name, columns in (("novels1", ["tokens"]), ("sounds", ["inputs", "targets"])):
        directory = folder / "a" / "stores" / name / "train"
        store, meta = open_store(directory), json.loads((directory / "meta.json").read_bytes())
        with pa.memory_map(str(directory / "shard-00000.arrow")) as file, pa.ipc.open_stream(file) as stream:
            table = stream.read_all()
        assert table.column_names == columns and table.num_rows == store.num_rows
        assert table.column(columns[0])[7].as_py() == store.stream.row(7).tolist()
        lengths = store.stream.lengths()
        counts = meta["counts"]["columns"][columns[0]]
        assert (counts["rows"], counts["tokens"], counts["longest"]) == (len(lengths), lengths.sum(), lengths.max())
        assert {int(most): count for most, count in counts["histogram"].items()} == Counter(
            1 << int(length - 1).bit_length() for length in lengths
        )
        assert {"source", "source_settings", "vocabulary", "version"} <= {*meta["fingerprint"]}
        assert len(meta["probes"]) == 64 and all(probe["ids"] for probe in meta["probes"])
    preprocessors = open_store(folder / "a" / "stores" / "novels1" / "train").meta["fingerprint"]["preprocessors"]
    assert [one["name"] for one in preprocessors] == ["many.py:shout"] and preprocessors[0]["code"]


def test_hugging_face_datasets_opens_the_shards(folder):
    datasets = pytest.importorskip("datasets", reason="the hub extra is not installed")
    assert main(["cache", "many.py", "--out", "a", "--task", "novels1"]) == 0
    directory = folder / "a" / "stores" / "novels1" / "train"
    rows, store = datasets.Dataset.from_file(str(directory / "shard-00000.arrow")), open_store(directory)
    assert len(rows) == store.num_rows and rows[7]["tokens"] == store.stream.row(7).tolist()


def test_unknown_tokens_and_examples_made_when_read_have_their_place(folder, capsys):
    from spanloom.pipeline.build_tasks import Opened, Outcome
    from spanloom.report.stores import stores_line, stores_table
    from spanloom.settings.task import Task, TextFiles

    main(["cache", "many.py", "--out", "a", "--task", "novels0"])
    store = open_store(folder / "a" / "stores" / "novels0" / "train")
    task = Task("x", TextFiles(("a.txt",)))
    store.meta["counts"]["columns"]["tokens"]["unknown"] = store.num_tokens
    assert stores_table([Outcome(task, Opened({"train": store}), 61.25)])[1][0][4::4] == ("100.000%", "61.2")
    store.meta["counts"]["columns"] = {"row": store.meta["counts"]["columns"]["tokens"]}
    outcome = Outcome(task, Opened({"train": store}, whole=False))
    read, unfinished = stores_table([outcome])[1]
    assert read[3:7] == ("-",) * 4 and read[-1] == "there already" and unfinished[-1] == "not whole yet"
    assert "built" not in stores_line([outcome])


def test_some_tasks_are_built_alone(folder, capsys):
    assert main(["cache", "many.py", "--out", "a", "--task", "novels2", "sounds"]) == 0
    assert {task for task, _ in rows_of(capsys.readouterr().out)} == {"novels2", "sounds"}
    assert {path.name for path in (folder / "a" / "stores").iterdir()} == {"novels2", "sounds"}
    assert main(["cache", "many.py", "--out", "a", "--task", "nobels2"]) == 2
    assert "--task nobels2: the run has no such task; did you mean novels2" in capsys.readouterr().err


def test_what_fails_is_named_and_the_others_are_built(folder, capsys):
    bad = ["broken", "missing", "raises", "short"]
    assert main(["cache", "many.py", "--out", "a", "--bad", *bad]) == 1
    told = capsys.readouterr()
    rows = rows_of(told.out)
    assert all(rows[name, "failed"] == [] for name in bad) and len(rows) == 7 + len(bad)
    assert "4 of 8 tasks failed" in told.err
    for name, said in {
        "broken": "broken.jsonl:101: broken JSON",
        "missing": "nothing.txt: does not exist",
        "raises": "no such thing",
        "short": "one example takes",
    }.items():
        lines = [line for line in told.err.splitlines() if line.startswith(f"spanloom: error: task '{name}': ")]
        assert len(lines) == 1 and said in lines[0] + told.err, name
        assert f"warning: task '{name}' fails" in told.out
    place = told.out.index
    assert place("task 'missing' fails") < place("task 'broken' fails")  # known before anything was built
    assert main(["cache", "many.py", "--out", "b"]) == 0
    whole = {name: data for name, data in stores(folder / "a" / "stores").items() if name.split("/")[0] not in bad}
    assert whole == stores(folder / "b" / "stores")


def test_one_task_alone_fails_as_ever(folder, capsys):
    assert main(["cache", "many.py", "--out", "a", "--bad", "broken", "--task", "broken"]) == 1
    told = capsys.readouterr()
    assert "broken.jsonl:101: broken JSON" in told.err and "tasks failed" not in told.err and "task " not in told.out


def test_a_full_disk_ends_all(folder, capsys, monkeypatch):
    from spanloom.pipeline import build_tasks
    from spanloom.pipeline.durable import StorageError

    def no_room(*arguments, **options):
        raise StorageError("no room")

    monkeypatch.setattr(build_tasks, "open_task", no_room)
    assert main(["cache", "many.py", "--out", "a"]) == 1
    told = capsys.readouterr()
    assert told.err == "spanloom: error: no room\n" and "fails" not in told.out


def test_jobs_one_after_another_say_what_is_missing(folder, capsys):
    main(["cache", "many.py", "--out", "alone"])
    capsys.readouterr()
    for job, rest in ((2, "0/3, 1/3"), (1, "0/3")):
        assert main(["cache", "many.py", "--out", "a", "--shard", f"{job}/3"]) == 0
        told = capsys.readouterr()
        assert (
            f"job {job}/3 made its share; run the remaining jobs, but for those that are at work now: {rest}."
            in told.out
        )
        assert "not whole yet" in told.out and not told.err
    assert main(["cache", "many.py", "--out", "a", "--shard", "0/3"]) == 0
    assert "made its share" not in capsys.readouterr().out
    assert stores(folder / "a") == stores(folder / "alone")


def test_an_ordinary_command_finishes_what_jobs_began(folder, capsys):
    main(["cache", "many.py", "--out", "alone"])
    main(["cache", "many.py", "--out", "a", "--shard", "3/8"])
    assert main(["cache", "many.py", "--out", "a"]) == 0
    assert stores(folder / "a") == stores(folder / "alone")


@pytest.mark.parametrize("words", [[], ["--shard", "1/3"]])
def test_a_stream_is_begun_by_every_way(folder, capsys, words):
    recipe = RECIPE.replace("return Run(", "found = found[:1] + [STREAM]; return Run(")
    stream = (
        "from spanloom.settings.function import Function\n"
        "from spanloom.settings.row_sources import PythonExamples\n"
        f"ENDLESS = PythonExamples(Function({stream_functions.__file__ + ':endless'!r}, {{}}), "
        "streaming=True, shard_rows=64)\n"
        'STREAM = Task("stream", ENDLESS, objective=SpanCorruption(inputs_length=64))\n\n'
    )
    (folder / "many.py").write_text(recipe.replace("def recipe(", stream + "def recipe("))
    assert main(["cache", "many.py", "--out", "a", *words]) == 0
    said = capsys.readouterr().out
    assert rows_of(said)["stream", "train"][0] != "0" and "a stream: " in said
    assert "there already" not in said


def test_a_job_at_work_is_waited_for_by_none(folder, capsys):
    from spanloom.pipeline.durable import locked

    main(["cache", "many.py", "--out", "a", "--shard", "0/2", "--task", "sounds"])
    with locked(folder / "a" / "stores" / "sounds" / "train.lock", lambda: None, shared=True):
        assert main(["cache", "many.py", "--out", "a", "--shard", "1/2", "--task", "sounds"]) == 0
    assert "all shards are there: a job that is still at work puts the stores in place" in capsys.readouterr().out


def test_jobs_at_once_make_what_one_makes(folder):
    main(["cache", "many.py", "--out", "alone", "--texts", "6"])
    jobs = [f"{job}/3" for job in (0, 1, 2, 1)]

    def run(job: str) -> subprocess.CompletedProcess:
        words = ["cache", "many.py", "--out", "a", "--texts", "6", "--shard", job]
        return subprocess.run([sys.executable, "-m", "spanloom.cli.main", *words], capture_output=True, text=True)

    with ThreadPoolExecutor(len(jobs)) as pool:
        done = list(pool.map(run, jobs))
    assert [job.returncode for job in done] == [0] * 4, [job.stderr for job in done]
    made = stores(folder / "a")
    assert made == stores(folder / "alone")
    assert any("made its share" not in job.stdout for job in done)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--shard", "8/8"], "--shard 8/8: jobs are counted from 0, so those of an array of 8 are 0/8 to 7/8"),
        (["--shard", "3"], "--shard 3: must be two numbers"),
        (["--shard", "1/2", "--runner", "beam"], "--shard says nothing with --runner beam"),
        (["--workers", "2", "--runner", "beam"], "--workers says nothing with --runner beam"),
        (["--runner", "bean"], "did you mean beam"),
        (["--", "--runner=FlinkRunner"], "what follows -- is for --runner beam"),
        (["--task"], "--task takes a value"),
    ],
)
def test_options_that_make_no_sense(folder, words, said, capsys):
    assert main(["cache", "many.py", *words]) == 2
    assert said in capsys.readouterr().err


def test_beam_that_is_not_installed_is_said(folder, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "apache_beam", None)
    assert main(["cache", "many.py", "--runner", "beam"]) == 1
    assert "pip install 'spanloom[beam]'" in capsys.readouterr().err
