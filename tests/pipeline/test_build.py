import errno
import random
import resource
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest
from build_store_process import HANGS, build_store, content, start_process
from pipeline_data import kill_seed, open_or_build, sentences, text_task, tokens_of

from spanloom.pipeline import publish as publish_module
from spanloom.pipeline import shard_maker as shard_maker_module
from spanloom.pipeline import shards as shards_module
from spanloom.pipeline.durable import StorageError
from spanloom.pipeline.store import open_store
from spanloom.tasks.read_report import BadInputError
from spanloom.vocabularies.build import build


def test_a_rebuilt_store_has_the_same_bytes(tmp_path, write_texts):
    corpus = write_texts(sentences(300))
    build_store(corpus, tmp_path / "a")
    build_store(corpus, tmp_path / "b")
    assert content(tmp_path / "a") == content(tmp_path / "b")
    assert len(content(tmp_path / "a")) > 10


@pytest.mark.short
def test_where_shards_are_cut_decides_nothing_about_the_stream(tmp_path, write_texts):
    task = text_task(write_texts(sentences(200)))
    stores = [
        open_or_build(task, "train", tmp_path / str(size), build(task.vocabulary), shard_bytes=size)
        for size in (1, 1000, 2**25)
    ]
    assert [len(store.meta["shards"]) for store in stores][::2] == [stores[0].num_rows, 1]
    for store in stores[:2]:
        np.testing.assert_array_equal(tokens_of(store), tokens_of(stores[2]))
        np.testing.assert_array_equal(store.stream.lengths(), stores[2].stream.lengths())
        assert store.meta["counts"] == stores[2].meta["counts"]


def test_shards_are_cut_by_the_bytes_of_their_text(tmp_path, write_texts):
    store = build_store(write_texts(sentences(300)), tmp_path / "a")
    sizes = [entry["text_bytes"] for entry in store.meta["shards"]]
    assert all(1500 <= size < 1500 + 500 for size in sizes[:-1])
    assert sum(sizes) == store.text_bytes == store.num_tokens - store.num_rows  # bytes, and EOS after each document


def test_progress_tells_how_far_it_is(tmp_path, write_texts):
    told = []
    store = build_store(write_texts(sentences(300)), tmp_path / "a", progress=told.append)
    assert [step.finished for step in told] == [False] * (len(told) - 1) + [True]
    last = told[-1]
    assert (last.task, last.split) == ("text", "train")
    assert (last.examples, last.text_bytes) == (store.num_rows, store.text_bytes)
    assert (last.tokens, last.shards) == (store.num_tokens, len(store.meta["shards"]))


def interrupt_after(monkeypatch, shards: int, error: BaseException) -> None:
    """Makes the build fail in the middle of writing a later shard."""
    written, write = [], shards_module.write_shard

    def write_or_fail(path, columns, **options):
        if len(written) == shards:
            path.with_name(path.name + ".part").write_bytes(b"half a shard")
            raise error
        written.append(path)
        write(path, columns, **options)

    monkeypatch.setattr(shard_maker_module, "write_shard", write_or_fail)


def test_a_build_goes_on_after_the_last_whole_shard(tmp_path, write_texts, monkeypatch):
    corpus = write_texts(sentences(300))
    whole = build_store(corpus, tmp_path / "whole")
    with monkeypatch.context() as patch:
        interrupt_after(patch, 7, KeyboardInterrupt())
        with pytest.raises(KeyboardInterrupt):
            build_store(corpus, tmp_path / "a")
    with pytest.raises(FileNotFoundError):
        open_store(tmp_path / "a")
    with monkeypatch.context() as patch:
        rest = len(whole.meta["shards"]) - 7
        interrupt_after(patch, rest, AssertionError("more shards were made again than were missing"))
        build_store(corpus, tmp_path / "a")
    assert content(tmp_path / "a") == content(tmp_path / "whole")
    assert sorted(path.name for path in tmp_path.iterdir() if path.stem == "a") == ["a", "a.lock"]


def test_shards_left_behind_of_other_text_are_not_taken(tmp_path, write_texts, monkeypatch):
    corpus = write_texts(sentences(300))
    with monkeypatch.context() as patch:
        interrupt_after(patch, 7, KeyboardInterrupt())
        with pytest.raises(KeyboardInterrupt):
            build_store(corpus, tmp_path / "a")
    corpus = write_texts(sentences(300, seed=1))
    build_store(corpus, tmp_path / "a")
    build_store(corpus, tmp_path / "b")
    assert content(tmp_path / "a") == content(tmp_path / "b")


def test_damaged_shards_left_behind_are_made_again(tmp_path, write_texts, monkeypatch):
    corpus = write_texts(sentences(300))
    with monkeypatch.context() as patch:
        interrupt_after(patch, 7, KeyboardInterrupt())
        with pytest.raises(KeyboardInterrupt):
            build_store(corpus, tmp_path / "a")
    left = tmp_path / "a.building" / "store"
    flipped = bytearray((left / "shard-00001.arrow").read_bytes())
    flipped[-50] ^= 1
    (left / "shard-00001.arrow").write_bytes(flipped)
    (left / "shard-00002.arrow").unlink()
    build_store(corpus, tmp_path / "a")
    build_store(corpus, tmp_path / "b")
    assert content(tmp_path / "a") == content(tmp_path / "b")


def test_a_full_disk_is_an_error_that_leaves_no_store_and_the_next_build_goes_on(tmp_path, write_texts, monkeypatch):
    corpus = write_texts(sentences(300))
    with monkeypatch.context() as patch:
        interrupt_after(patch, 3, OSError(errno.ENOSPC, "No space left on device"))
        with pytest.raises(OSError, match="No space left"):
            build_store(corpus, tmp_path / "a")
    assert not (tmp_path / "a").exists()
    build_store(corpus, tmp_path / "a").verify()


class Kill(BaseException):
    """Ends a build at a certain operation, as SIGKILL would."""


def die_at(patch: pytest.MonkeyPatch, number: int) -> None:
    """Ends the build before its `number`-th rename, flush of a directory, or removal of one; at 0 before the first."""
    done = []

    def counted(operation):
        def run(*arguments, **options):
            if len(done) == number:
                raise Kill
            done.append(operation)
            return operation(*arguments, **options)

        return run

    patch.setattr(Path, "rename", counted(Path.rename))
    patch.setattr(publish_module, "sync_directory", counted(publish_module.sync_directory))
    patch.setattr(publish_module.shutil, "rmtree", counted(publish_module.shutil.rmtree))


@pytest.mark.parametrize("replacing", [False, True])
def test_a_kill_at_any_operation_of_publishing_leaves_no_half_store_and_nothing_behind(
    tmp_path, write_texts, monkeypatch, replacing
):
    corpus = write_texts(sentences(50))
    build_store(corpus, tmp_path / "whole")
    expected = content(tmp_path / "whole")
    older = write_texts(sentences(50, seed=1), "older.jsonl")
    outcomes = []
    for number in range(20):
        directory = tmp_path / f"killed-{number}"
        if replacing:
            build_store(older, directory)
        try:
            with monkeypatch.context() as patch:
                die_at(patch, number)
                build_store(corpus, directory)
        except Kill:
            outcomes.append((directory.exists(), directory.exists() and content(directory) == expected))
        else:
            break
        build_store(corpus, directory)
        assert content(directory) == expected
        assert sorted(path.name for path in tmp_path.glob(f"{directory.name}*")) == [
            directory.name,
            f"{directory.name}.lock",
        ]
    assert (False, False) in outcomes and (True, True) in outcomes  # killed before the store stood there, and after
    assert number == len(outcomes) < 20


def test_a_process_that_may_write_no_more_says_so(tmp_path, write_texts):
    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))

    process = start_process(write_texts(sentences(100)), tmp_path / "a", preexec_fn=limit)
    _, said = process.communicate(timeout=HANGS)
    assert process.returncode == 1
    assert "StorageError: no room to write" in said
    assert not (tmp_path / "a").exists()
    assert not list(tmp_path.glob("a.building/store/*.part"))


def test_bad_input_leaves_no_store(tmp_path, write_texts):
    corpus = write_texts(sentences(100))
    Path(corpus).write_text(Path(corpus).read_text() + '{"text": broken\n')
    with pytest.raises(BadInputError, match="101"):
        build_store(corpus, tmp_path / "a")
    assert not (tmp_path / "a").exists()


def test_a_directory_with_other_files_is_left_alone(tmp_path, write_texts):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "thesis.txt").write_text("years of work")
    with pytest.raises(StorageError, match=r"no part of a store \(thesis.txt\)"):
        build_store(write_texts(sentences(10)), tmp_path / "a")
    assert (tmp_path / "a" / "thesis.txt").read_text() == "years of work"


def test_of_processes_that_build_one_store_one_builds_and_the_others_wait(tmp_path, write_texts):
    corpus = write_texts(sentences(300))
    first = start_process(corpus, tmp_path / "a", pause_after=3)
    others = [start_process(corpus, tmp_path / "a") for _ in range(2)]
    for other in others:
        assert other.stderr is not None and "waiting for another process" in other.stderr.readline()
        assert not (tmp_path / "a").exists()
    outputs = [process.communicate(timeout=HANGS) for process in (first, *others)]
    assert outputs == [("built\n", "")] * 3
    build_store(corpus, tmp_path / "alone")
    assert content(tmp_path / "a") == content(tmp_path / "alone")


def kill_and_reopen(process: subprocess.Popen, directory: Path, corpus: str, expected: dict[str, bytes]) -> None:
    """Kills a building process, then opens its store."""
    process.kill()
    process.communicate()
    if directory.exists():
        assert content(directory) == expected
    build_store(corpus, directory)
    assert content(directory) == expected
    assert sorted(path.name for path in directory.parent.glob(f"{directory.name}*")) == [
        directory.name,
        f"{directory.name}.lock",
    ]


@pytest.mark.parametrize("shards", [1, 7])
def test_a_kill_amid_shards_leaves_none_and_the_next_build_goes_on(tmp_path, write_texts, shards):
    corpus = write_texts(sentences(300))
    build_store(corpus, tmp_path / "whole")
    process = start_process(corpus, tmp_path / "a", pause_after=shards)
    assert len(list((tmp_path / "a.building" / "entries").iterdir())) >= shards and not (tmp_path / "a").exists()
    kill_and_reopen(process, tmp_path / "a", corpus, content(tmp_path / "whole"))


def kill_many(tmp_path, write_texts, times: int, seed: int) -> None:
    """Kills at moments that are random anyhow, as machines are now fast and now slow: the seed only spreads them."""
    chance = random.Random(seed)
    corpus = write_texts(sentences(1000))
    start = time.monotonic()
    build_store(corpus, tmp_path / "whole")
    whole = time.monotonic() - start
    expected = content(tmp_path / "whole")
    for number in range(times):
        directory = tmp_path / f"killed-{number:03}"
        process = start_process(corpus, directory)
        time.sleep(chance.uniform(0, whole))
        kill_and_reopen(process, directory, corpus, expected)


def test_kills_at_random_moments_leave_a_store_that_is_whole_or_none(tmp_path, write_texts):
    kill_many(tmp_path, write_texts, 3, kill_seed(fixed=True))


@pytest.mark.slow
def test_many_kills_at_random_moments(tmp_path, write_texts):
    kill_many(tmp_path, write_texts, 40, kill_seed(fixed=False))
