"""Jobs that each make a share of the shards: what they make together is what one makes alone, whatever befalls them."""

import random
import subprocess
import time
from collections import Counter
from pathlib import Path

import pytest
from build_store_process import HANGS, SHARD_BYTES, start_process
from pipeline_data import kill_seed, sentences, text_task
from share_process import build_share, start_share

from spanloom.pipeline import shard_maker as shard_maker_module
from spanloom.pipeline.share import BuildShare, share_of
from spanloom.pipeline.shared_build import open_or_build_share
from spanloom.pipeline.store import open_or_build_all
from spanloom.tasks.read_report import BadInputError
from spanloom.vocabularies.build import build


def files(directory: Path) -> dict[str, bytes]:
    """Every file of the stores below a directory; locks are left out, which are left behind."""
    found = {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}
    return {name: data for name, data in found.items() if not name.endswith(".lock")}


def build_alone(corpus: str, directory: Path) -> dict[str, bytes]:
    task = text_task(corpus, heldout_share=0.3)
    places = {split: directory / split for split in ("train", "heldout")}
    open_or_build_all(task, places, build(task.vocabulary), shard_bytes=SHARD_BYTES)
    return files(directory)


def finish(process: subprocess.Popen) -> str:
    said, errors = process.communicate(timeout=HANGS)
    assert process.returncode == 0, errors
    return said


@pytest.mark.short
def test_a_share_is_two_numbers_from_zero():
    assert (
        share_of("0/1") == BuildShare(0, 1)
        and share_of(" 7 / 8 ") == BuildShare(7, 8)
        and str(share_of("03/8")) == "3/8"
    )
    for text, said in {
        "8/8": r"counted from 0, so those of an array of 8 are 0/8 to 7/8 .*--array=0-7.*TASK_ID - 1\)\)/8",
        "1/1": "are 0/1 ",
        "0/0": "1 job or more",
        "3": "two numbers, job/jobs",
        "-1/8": "two numbers",
        "1/8/2": "two numbers",
        "": "two numbers",
    }.items():
        with pytest.raises(ValueError, match=said):
            share_of(text)


@pytest.mark.short
def test_each_shard_is_one_jobs_and_first_shards_are_spread():
    shares = [BuildShare(index, 8) for index in range(8)]
    assert all(sum(share.owns("en/train", number) for share in shares) == 1 for number in range(100))
    even = Counter(shares[0].owner("en/train", number) for number in range(800))
    assert set(even.values()) == {100}
    first = Counter(shares[0].owner(f"task {number}/train", 0) for number in range(800))
    assert min(first.values()) > 60 and len(first) == 8


def test_jobs_one_after_another_make_what_one_makes_alone(tmp_path, write_texts):
    corpus = write_texts(sentences(400))
    expected = build_alone(corpus, tmp_path / "alone")
    assert build_share(corpus, tmp_path / "a", "1/3").missing == (0, 2)
    assert build_share(corpus, tmp_path / "a", "0/3", workers=2).missing == (2,)
    assert not any((tmp_path / "a" / split).exists() for split in ("train", "heldout"))
    last = build_share(corpus, tmp_path / "a", "2/3")
    assert {*last.stores} == {"train", "heldout"} and not last.missing
    assert files(tmp_path / "a") == expected
    again = build_share(corpus, tmp_path / "a", "1/3")
    assert {*again.stores} == {"train", "heldout"} and files(tmp_path / "a") == expected


def test_a_job_makes_its_own_shards_alone_and_none_twice(tmp_path, write_texts, monkeypatch):
    corpus, made, write = write_texts(sentences(400)), [], shard_maker_module.write_shard
    monkeypatch.setattr(
        shard_maker_module, "write_shard", lambda path, *a, **o: made.append(path) or write(path, *a, **o)
    )
    counts = []
    for share in ("0/3", "0/3", "2/3", "1/3"):
        made.clear()
        build_share(corpus, tmp_path / "a", share)
        counts.append(len(made))
    whole = len([name for name in files(tmp_path / "a") if name.endswith(".arrow")])
    assert counts[1] == 0 and sum(counts) == whole and all(abs(count - whole / 3) < 2 for count in counts[::2])


def test_an_ordinary_build_goes_on_with_what_jobs_have_made(tmp_path, write_texts):
    corpus = write_texts(sentences(400))
    expected = build_alone(corpus, tmp_path / "alone")
    build_share(corpus, tmp_path / "a", "1/2")
    made = {path.name: path.stat().st_ino for path in (tmp_path / "a" / "train.building" / "store").iterdir()}
    assert build_alone(corpus, tmp_path / "a") == expected
    assert len(made) > 5 and all((tmp_path / "a" / "train" / name).stat().st_ino == made[name] for name in made)


def test_another_number_of_jobs_may_finish(tmp_path, write_texts):
    corpus = write_texts(sentences(400))
    build_share(corpus, tmp_path / "a", "0/5")
    build_share(corpus, tmp_path / "a", "1/2")
    assert not build_share(corpus, tmp_path / "a", "0/2").missing
    assert files(tmp_path / "a") == build_alone(corpus, tmp_path / "alone")


def test_shards_of_other_text_are_not_taken(tmp_path, write_texts):
    corpus = write_texts(sentences(400, seed=1))
    build_share(corpus, tmp_path / "a", "0/2")
    corpus = write_texts(sentences(400))
    assert build_share(corpus, tmp_path / "a", "1/2").missing == (0,)
    build_share(corpus, tmp_path / "a", "0/2")
    assert files(tmp_path / "a") == build_alone(corpus, tmp_path / "alone")


def test_a_store_of_older_text_stands_until_all_jobs_are_done(tmp_path, write_texts):
    texts = sentences(400)
    old = build_alone(write_texts(texts), tmp_path / "a")
    old = {name: data for name, data in old.items() if name.startswith("train/")}
    corpus = write_texts(["one line more", *texts])
    said = []
    assert build_share(corpus, tmp_path / "a", "0/2", warn=said.append).missing
    assert {name: data for name, data in files(tmp_path / "a").items() if name in old} == old
    assert len(said) == len({*said}) == 2 and all("is built anew: changed" in text for text in said)
    build_share(corpus, tmp_path / "a", "1/2", warn=said.append)
    assert files(tmp_path / "a") == build_alone(corpus, tmp_path / "alone")


def test_damaged_shards_of_others_are_missing(tmp_path, write_texts):
    corpus = write_texts(sentences(400))
    build_share(corpus, tmp_path / "a", "0/2")
    shard = next((tmp_path / "a" / "train.building" / "store").iterdir())
    shard.write_bytes(shard.read_bytes()[:-8])
    assert build_share(corpus, tmp_path / "a", "1/2").missing == (0,)
    assert not build_share(corpus, tmp_path / "a", "0/2").missing
    assert files(tmp_path / "a") == build_alone(corpus, tmp_path / "alone")


def test_more_jobs_than_shards_and_a_store_without_any(tmp_path, write_texts):
    corpus = write_texts(sentences(30))
    for index in range(40):
        last = build_share(corpus, tmp_path / "a", f"{index}/40")
        assert bool(last.missing) == (len(last.stores) < 2)
    assert {*last.stores} == {"train", "heldout"}
    assert files(tmp_path / "a") == build_alone(corpus, tmp_path / "alone")


def test_bad_input_is_the_error_of_every_job(tmp_path, write_texts):
    corpus = write_texts(sentences(100))
    Path(corpus).write_text(Path(corpus).read_text() + '{"text": broken\n')
    for share in ("0/2", "1/2"):
        with pytest.raises(BadInputError, match=r"corpus\.jsonl:101: broken JSON"):
            build_share(corpus, tmp_path / "a", share)
    assert not (tmp_path / "a" / "train").exists()


def test_rows_and_their_preprocessors_give_the_same_store(tmp_path, write_pairs):
    import task_functions as own

    from spanloom.settings.objectives import Supervised
    from spanloom.settings.task import PairFiles, Task

    pairs = list(zip(sentences(300), sentences(300, seed=1), strict=True))
    source = PairFiles((write_pairs(pairs),), heldout_share=0.2)
    task = Task("p", source, objective=Supervised(), preprocessors=(own.not_third, own.doubled, own.prefixed))
    vocabulary = build(task.vocabulary)

    def places(name):
        return {split: tmp_path / name / split for split in ("train", "heldout")}

    for index in range(3):
        open_or_build_share(task, places("a"), vocabulary, BuildShare(index, 3), shard_bytes=1500)
    open_or_build_all(task, places("alone"), vocabulary, shard_bytes=1500)
    assert files(tmp_path / "a") == files(tmp_path / "alone") and len(files(tmp_path / "a")) > 20


def test_jobs_at_once_and_one_of_them_twice(tmp_path, write_texts):
    corpus = write_texts(sentences(600))
    expected = build_alone(corpus, tmp_path / "alone")
    jobs = [start_share(corpus, tmp_path / "a", share, workers=1) for share in ("0/3", "1/3", "1/3", "2/3")]
    said = [finish(job) for job in jobs]
    assert files(tmp_path / "a") == expected
    assert any(text.startswith("whole: train heldout; missing: []") for text in said)


def test_a_job_at_work_keeps_others_from_publishing_and_ordinary_builds_wait(tmp_path, write_texts):
    corpus = write_texts(sentences(400))
    expected = build_alone(corpus, tmp_path / "alone")
    slow = start_share(corpus, tmp_path / "a", "0/2", pause_after=2)
    assert build_share(corpus, tmp_path / "a", "1/2").missing == (0,)
    twin = build_share(corpus, tmp_path / "a", "0/2")
    assert not twin.stores and not twin.missing  # all is made, and the slow one may still write
    waiting = start_process(corpus, tmp_path / "a" / "train")
    assert waiting.stderr is not None and "waiting for another process" in waiting.stderr.readline()
    waiting.kill()
    waiting.communicate()
    assert finish(slow).endswith("whole: train heldout; missing: []\n")
    assert files(tmp_path / "a") == expected


def test_a_job_waits_for_an_ordinary_build(tmp_path, write_texts):
    corpus = write_texts(sentences(400))
    alone = start_process(corpus, tmp_path / "a" / "train", pause_after=2)
    job = start_share(corpus, tmp_path / "a", "0/1")
    time.sleep(1)
    assert job.poll() is None and not (tmp_path / "a" / "heldout.building").exists()
    alone.kill()
    alone.communicate()
    assert finish(job).endswith("whole: train heldout; missing: []\n")
    assert files(tmp_path / "a") == build_alone(corpus, tmp_path / "alone")


def test_processes_of_a_killed_job_keep_others_from_publishing_until_they_end(tmp_path, write_texts):
    import psutil

    corpus = write_texts(sentences(800))
    job = start_share(corpus, tmp_path / "a", "0/2", workers=2, pause_after=6)
    workers = psutil.Process(job.pid).children()
    workers = [child for child in workers if "spawn_main" in " ".join(child.cmdline())]
    assert workers
    for worker in workers:
        worker.suspend()
    job.kill()
    job.wait()  # its pipes are its processes', too
    build_share(corpus, tmp_path / "a", "1/2")
    assert not build_share(corpus, tmp_path / "a", "0/2").stores
    for worker in workers:
        worker.resume()
    psutil.wait_procs(workers, timeout=HANGS)
    assert {*build_share(corpus, tmp_path / "a", "0/2").stores} == {"train", "heldout"}
    assert files(tmp_path / "a") == build_alone(corpus, tmp_path / "alone")


def kill_many(tmp_path, write_texts, rounds: int, seed: int) -> None:
    """Jobs at once, killed at any moment, some twice at once; then all run again."""
    chance = random.Random(seed)
    corpus = write_texts(sentences(800))
    start = time.monotonic()
    expected = build_alone(corpus, tmp_path / "alone")
    seconds = time.monotonic() - start
    for number in range(rounds):
        directory, of = tmp_path / f"killed-{number}", chance.choice([2, 3])
        jobs = [f"{index}/{of}" for index in range(of)]
        jobs = [
            start_share(corpus, directory, job, workers=chance.choice([1, 2])) for job in [*jobs, chance.choice(jobs)]
        ]
        for job in chance.sample(jobs, chance.randrange(1, len(jobs) + 1)):
            time.sleep(chance.uniform(0, seconds / 2))
            job.kill()
            check_whole_or_none(directory, expected)
        for job in jobs:
            job.communicate(timeout=HANGS)  # its processes have ended then, too
        check_whole_or_none(directory, expected)
        for index in range(of):
            build_share(corpus, directory, f"{index}/{of}")
        assert files(directory) == expected


def check_whole_or_none(directory: Path, expected: dict[str, bytes]) -> None:
    for split in ("train", "heldout"):
        if (directory / split).exists():
            assert files(directory / split) == {
                name.removeprefix(f"{split}/"): data for name, data in expected.items() if name.startswith(f"{split}/")
            }


def test_kills_at_random_moments_leave_stores_that_are_whole_or_none(tmp_path, write_texts):
    kill_many(tmp_path, write_texts, 2, kill_seed(fixed=True))


@pytest.mark.slow
def test_many_kills_at_random_moments(tmp_path, write_texts):
    kill_many(tmp_path, write_texts, 25, kill_seed(fixed=False))
