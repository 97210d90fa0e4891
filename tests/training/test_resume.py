"""Processes are killed at planned and at random moments; what they leave must go on to the very same losses."""

import os
import random
import signal
import time
from pathlib import Path

import pytest
from tiny_training import events, finish, kill, last_step, losses, same_arrays, spawn, wait_until, write_text

import spanloom
from spanloom.settings.run_layout import PARTIAL, steps_in
from spanloom.training.checkpoint_paths import latest
from spanloom.training.checkpoints import restore

STEPS = 60


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """One compilation cache for all processes of this file: the first compiles, the others load."""
    return {"SPANLOOM_CACHE": str(tmp_path_factory.mktemp("cache")), "JAX_PLATFORMS": "cpu"}


@pytest.fixture(autouse=True, scope="module")
def same_code():
    """Each process reads the package anew: an edit in between may change the last bits, which is no failed resume."""
    before = _code()
    yield
    assert _code() == before, "spanloom's source was edited while these tests ran: run them again"


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    return write_text(tmp_path_factory.mktemp("text") / "lines.txt", lines=4000)


@pytest.fixture(scope="module")
def straight(tmp_path_factory, text, cache):
    """A run that nobody disturbed."""
    directory = tmp_path_factory.mktemp("straight") / "run"
    finish(spawn(text, directory, STEPS, cache), directory)
    assert sorted(s for kind, s in losses(directory) if kind == "train") == list(range(1, STEPS + 1))
    return directory


def saving(directory: Path):
    return lambda: any(p.name.endswith(PARTIAL) for p in (directory / "checkpoints").glob("*"))


def building(directory: Path):
    return lambda: any((directory / "stores").glob("*/*.building"))


def assert_same_run(directory: Path, straight: Path) -> None:
    assert losses(directory) == losses(straight)  # float32 written in full: equal to the last bit
    ours, theirs = restore(latest(directory)), restore(latest(straight))
    assert (ours.step, ours.position) == (theirs.step, theirs.position)
    assert same_arrays(ours.params, theirs.params)
    assert not [p.name for p in (directory / "checkpoints").iterdir() if not p.name.isdecimal()]
    keys = [(e["kind"], e.get("task"), e["step"]) for e in events(directory)]
    assert len(keys) == len(set(keys))


def test_killed_after_step_37_the_rest_is_the_same_to_the_last_bit(tmp_path, text, straight, cache):
    kill(spawn(text, tmp_path, STEPS, cache, hold=37))
    assert last_step(tmp_path) == 37
    assert steps_in(tmp_path / "checkpoints")
    finish(spawn(text, tmp_path, STEPS, cache), tmp_path)
    assert_same_run(tmp_path, straight)


def test_killed_inside_a_build_and_inside_a_save(tmp_path, text, straight, cache):
    for place, moment in (("build", building(tmp_path)), ("save", saving(tmp_path))):
        kill(spawn(text, tmp_path, STEPS, cache, hold=place))
        assert moment()
    finish(spawn(text, tmp_path, STEPS, cache), tmp_path)
    assert_same_run(tmp_path, straight)


def test_a_polite_stop_while_the_store_is_built(tmp_path, text, cache):
    assert kill(spawn(text, tmp_path, STEPS, cache, hold="build"), signal.SIGTERM) == 0
    assert "stopped before the first step" in (tmp_path / "process.log").read_text()
    assert latest(tmp_path) is None


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_polite_stop_saves_and_exits_0_and_steps_may_be_raised(tmp_path, text, straight, cache, number):
    assert kill(spawn(text, tmp_path, 23, cache, hold=3), number) == 0
    # A step's metrics are fetched once the next one is under way, which is then finished and saved.
    assert restore(latest(tmp_path)).step == 4
    assert restore(latest(tmp_path)).position == {"examples": 4 * 4}
    assert "stopped after step 4, which is saved" in (tmp_path / "process.log").read_text()
    for steps in (23, STEPS):
        finish(spawn(text, tmp_path, steps, cache), tmp_path)
    extra = {("eval", 23): losses(tmp_path)["eval", 23]}  # a last step is evaluated, and in a straight run it is none
    assert losses(tmp_path) == {**losses(straight), **extra}


@pytest.mark.slow
def test_many_random_kills(tmp_path, text, straight, cache):
    """24 SIGKILLs: 4 inside a build, 8 inside a save, 12 at random moments of a process's life."""
    seed = int(os.environ.get("SPANLOOM_KILL_SEED", time.time_ns() % 10**9))
    print(f"random kills with seed {seed}: repeat with SPANLOOM_KILL_SEED={seed}")
    draw = random.Random(seed)
    lifetime = _seconds(text, tmp_path / "timing", cache)
    kinds = draw.sample(["save"] * 8 + ["random"] * 12, 20)
    kills, directory, rounds = {"build": 0, "save": 0, "random": 0}, tmp_path / "0", 0
    while kinds or kills["build"] < 4:
        kind = "build" if kills["build"] < 4 and not directory.exists() else kinds.pop() if kinds else "finish"
        process = spawn(text, directory, STEPS, cache, hold="build" if kind == "build" else "")
        if kind == "build":
            happened = building(directory)()
        elif kind == "save":
            happened = wait_until(process, saving(directory))
        elif kind == "random":
            happened = not wait_until(process, lambda: False, draw.uniform(0, 1.1 * lifetime))
        else:
            happened = False
        if process.poll() is None and happened:
            time.sleep(draw.choice([0, 0, 0.005, 0.05]) if kind == "save" else 0)
            kill(process)
            kills[kind] += 1
            continue
        # The run was done before the moment came: check it, and go on killing a new one.
        finish(process, directory)
        assert_same_run(directory, straight)
        if kind in ("save", "random"):
            kinds.append(kind)
        rounds += 1
        directory = tmp_path / str(rounds)
    finish(spawn(text, directory, STEPS, cache), directory)
    assert_same_run(directory, straight)
    print(f"{sum(kills.values())} kills ({kills}) over {rounds + 1} runs of {STEPS} steps: the same losses")
    assert sum(kills.values()) == 24


def _code() -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in Path(spanloom.__file__).parent.rglob("*.py")}


def _seconds(text, directory, cache) -> float:
    started = time.monotonic()
    finish(spawn(text, directory, STEPS, cache), directory)
    return time.monotonic() - started
