import contextlib
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from build_store_process import HANGS, build_store, content, start_process
from pipeline_data import kill_seed, pair_task, sentences, text_task

from spanloom.pipeline import build_workers
from spanloom.pipeline.build_workers import default_workers
from spanloom.pipeline.durable import StorageError
from spanloom.pipeline.store import open_or_build_all
from spanloom.tasks.read_report import BadInputError
from spanloom.vocabularies.build import build


def build_parts(task, directory: Path, **options) -> dict[str, bytes]:
    """Builds both parts in small shards; the content of all files."""
    directories = {split: directory / split for split in ("train", "heldout")}
    open_or_build_all(task, directories, build(task.vocabulary), shard_bytes=1500, **options)
    return {f"{split}/{name}": data for split, path in directories.items() for name, data in content(path).items()}


def test_the_bytes_are_the_same_whatever_the_number_of_processes(tmp_path, write_texts, write_pairs):
    pairs = list(zip(sentences(200), sentences(200, seed=1), strict=True))
    tasks = [
        text_task(write_texts(sentences(300)), heldout_share=0.3),
        pair_task(write_pairs(pairs), heldout_share=0.3),
    ]
    for task in tasks:
        one, two, three = (build_parts(task, tmp_path / task.name / str(n), workers=n) for n in (1, 2, 3))
        assert one == two == three and len(one) > 20
        assert {"train/meta.json", "heldout/meta.json", "heldout/shard-00003.arrow"} <= {*one}


def test_both_parts_at_once_have_the_bytes_of_each_alone(tmp_path, write_texts):
    task = text_task(write_texts(sentences(300)), heldout_share=0.3)
    together = build_parts(task, tmp_path / "together", workers=2)
    vocabulary = build(task.vocabulary)
    for split in ("train", "heldout"):
        open_or_build_all(task, {split: tmp_path / split}, vocabulary, shard_bytes=1500)
        alone = {f"{split}/{name}": data for name, data in content(tmp_path / split).items()}
        assert alone == {name: data for name, data in together.items() if name.startswith(split)}


def test_progress_is_over_all_processes(tmp_path, write_texts):
    told = []
    store = build_store(write_texts(sentences(300)), tmp_path / "a", workers=2, progress=told.append)
    last = told[-1]
    assert (last.examples, last.text_bytes, last.tokens) == (store.num_rows, store.text_bytes, store.num_tokens)
    assert (last.shards, last.finished) == (len(store.meta["shards"]), True)
    assert 0 < last.bytes_per_second < last.tokens_per_second and last.seconds_left == 0


@pytest.mark.parametrize("workers", [1, 2])
def test_what_is_left_is_known_where_held_out_files_are_read_too(tmp_path, write_texts, workers):
    task = text_task(write_texts(sentences(200)))
    held_out = write_texts(sentences(100, seed=1), "held.jsonl")
    task = replace(task, source=replace(task.source, heldout_files=(held_out,)))
    told = []
    build_parts(task, tmp_path / "a", workers=workers, progress=told.append)
    assert told[0].seconds_left > 0 and told[-1].seconds_left == 0
    assert told[-1].split == "train and heldout" and told[-1].examples == 300


@pytest.mark.parametrize(("documents", "most"), [(3, 0), (50, 2)])
def test_few_shards_start_few_processes(tmp_path, write_texts, monkeypatch, documents, most):
    started, start = [], build_workers._Workers._start
    monkeypatch.setattr(build_workers._Workers, "_start", lambda pool: (started.append(pool), start(pool)))
    store = build_store(write_texts(sentences(documents)), tmp_path / "a", workers=8)
    shards_made_elsewhere = max(0, len(store.meta["shards"]) - 2)
    assert shards_made_elsewhere == most
    assert min(most, 1) <= len(started) <= most


def test_no_more_processes_start_than_asked_for(tmp_path, write_texts, monkeypatch):
    started, start = [], build_workers._Workers._start
    monkeypatch.setattr(build_workers._Workers, "_start", lambda pool: (started.append(pool), start(pool)))
    build_store(write_texts(sentences(300)), tmp_path / "a", workers=2)
    assert 1 <= len(started) <= 2


def test_bad_input_is_the_same_error_as_with_one_process(tmp_path, write_texts):
    corpus = write_texts(sentences(100))
    Path(corpus).write_text(Path(corpus).read_text() + '{"text": broken\n')
    said = []
    for workers in (1, 2):
        with pytest.raises(BadInputError, match=r"corpus\.jsonl:101: broken JSON") as caught:
            build_store(corpus, tmp_path / "a", workers=workers)
        said.append(str(caught.value))
        assert not (tmp_path / "a").exists()
    assert said[0] == said[1]
    assert not multiprocessing.active_children()


def test_an_error_inside_a_process_arrives_and_ends_the_others(tmp_path, write_texts):
    def stop(progress):
        if progress.shards == 2:
            raise KeyboardInterrupt

    corpus = write_texts(sentences(300))
    with pytest.raises(KeyboardInterrupt):
        build_store(corpus, tmp_path / "a", progress=stop)
    (tmp_path / "a.building" / "store" / "shard-00015.arrow.part").mkdir()  # a folder where a file is to be written
    with pytest.raises(IsADirectoryError, match=r"shard-00015"):
        build_store(corpus, tmp_path / "a", workers=2)
    assert not (tmp_path / "a").exists() and not multiprocessing.active_children()


def test_an_error_that_cannot_be_sent_is_told_in_words():
    sent = build_workers._as_sent(BadInputError("a.txt:1", "broken", "Mend it"))
    assert (type(sent), str(sent)) == (RuntimeError, "BadInputError: a.txt:1: broken. Mend it.")
    try:
        raise StorageError("no room")
    except StorageError as error:
        sent = build_workers._as_sent(error)
    assert (type(sent), str(sent)) == (StorageError, "no room")
    assert "test_build_workers.py" in sent.__notes__[0]


def workers_of(process: subprocess.Popen) -> list[psutil.Process]:
    """The processes that make shards for a reader that stands still."""
    children = psutil.Process(process.pid).children()
    return [child for child in children if "spawn_main" in " ".join(child.cmdline())]


def have_ended(processes: list[psutil.Process]) -> bool:
    """Whether none runs any more, those included that nobody has waited for."""
    return not any(map(is_alive, processes))


def is_alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_a_killed_process_is_named_and_the_next_build_goes_on(tmp_path, write_texts):
    corpus = write_texts(sentences(800))
    process = start_process(corpus, tmp_path / "a", workers=2, pause_after=10)
    workers = workers_of(process)
    workers[0].kill()
    _, said = process.communicate(timeout=HANGS)
    assert process.returncode == 1
    assert f"(pid {workers[0].pid}) was killed by SIGKILL" in said and "fewer --workers" in said
    assert have_ended(workers) and not (tmp_path / "a").exists()
    made = {path.name: path.stat().st_ino for path in (tmp_path / "a.building" / "store").glob("*.arrow")}
    build_store(corpus, tmp_path / "a", workers=2)
    kept = [name for name, inode in made.items() if (tmp_path / "a" / name).stat().st_ino == inode]
    assert len(kept) >= 10 and len(made) - len(kept) <= 2
    build_store(corpus, tmp_path / "alone")
    assert content(tmp_path / "a") == content(tmp_path / "alone")


def test_processes_whose_reader_was_killed_end_and_hold_the_lock_until_then(tmp_path, write_texts):
    corpus = write_texts(sentences(800))
    process = start_process(corpus, tmp_path / "a", workers=2, pause_after=10)
    workers = workers_of(process)
    assert workers
    for worker in workers:
        worker.suspend()
    process.kill()
    process.wait()
    waiting = start_process(corpus, tmp_path / "a", workers=2)
    assert waiting.stderr is not None and "waiting for another process" in waiting.stderr.readline()
    assert waiting.poll() is None and not (tmp_path / "a").exists()
    for worker in workers:
        worker.resume()
    assert "built" in waiting.communicate(timeout=HANGS)[0]
    assert have_ended(workers)
    build_store(corpus, tmp_path / "alone")
    assert content(tmp_path / "a") == content(tmp_path / "alone")


def test_ctrl_c_ends_all(tmp_path, write_texts):
    corpus = write_texts(sentences(800))
    process = start_process(corpus, tmp_path / "a", workers=2, pause_after=10, start_new_session=True)
    workers = workers_of(process)
    os.killpg(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=HANGS)
    assert said.count("KeyboardInterrupt") == 1
    assert workers and have_ended(workers) and not (tmp_path / "a").exists()


def kill_one_of_three(directory: Path, corpus: str, chance: random.Random, seconds: float) -> None:
    """Kills the reader or one of its two processes, at any moment."""
    process = start_process(corpus, directory, workers=2)
    time.sleep(chance.uniform(0, seconds))
    with contextlib.suppress(psutil.NoSuchProcess):  # it was done before
        reader = psutil.Process(process.pid)
        chance.choice([reader, *reader.children()]).kill()
    process.communicate()


def kill_many(tmp_path, write_texts, rounds: int, seed: int) -> None:
    chance = random.Random(seed)
    corpus = write_texts(sentences(1000))
    start = time.monotonic()
    build_store(corpus, tmp_path / "whole", workers=2)
    seconds = time.monotonic() - start
    expected = content(tmp_path / "whole")
    for number in range(rounds):
        directory = tmp_path / f"killed-{number}"
        for _ in range(3):
            kill_one_of_three(directory, corpus, chance, seconds)
            if directory.exists():
                assert content(directory) == expected
        build_store(corpus, directory, workers=2)
        assert content(directory) == expected
        left = sorted(path.name for path in tmp_path.glob(f"{directory.name}*"))
        assert left == [directory.name, f"{directory.name}.lock"]


def test_kills_of_any_process_leave_a_store_that_is_whole_or_none(tmp_path, write_texts):
    kill_many(tmp_path, write_texts, 1, kill_seed(fixed=True))


@pytest.mark.slow
def test_many_kills_of_any_process(tmp_path, write_texts):
    kill_many(tmp_path, write_texts, 25, kill_seed(fixed=False))


@pytest.mark.short
def test_workers_import_no_jax():
    code = "import sys, spanloom.pipeline.build_workers as w; assert w._work; print('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


@pytest.mark.short
def test_there_are_as_many_workers_as_cores(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {1, 5, 7})
    assert default_workers() == 3
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(500)))
    assert default_workers() == 16
