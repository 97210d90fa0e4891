"""Real processes under jax.distributed, on loopback: the same losses as one, and nothing hangs when one goes."""

import functools
import signal
import time

import pytest
from crew_process import RECIPE, Crew, furthest, losses, steps_of
from tiny_training import same_arrays, write_text

from spanloom.scale.processes import EXIT_GONE
from spanloom.settings.run_layout import steps_in
from spanloom.training.checkpoint_paths import latest
from spanloom.training.checkpoints import restore

NEAR = 1e-5
STAGES = f"""{RECIPE}

from dataclasses import replace

alone = recipe


def recipe(text: str) -> list[Run]:
    run = alone(text)
    other = replace(run, name="other", task=replace(run.task, name="other"), steps=10)
    return [replace(run, name="first", steps=10), other]
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("crew")
    (folder / "recipe.py").write_text(RECIPE)
    write_text(folder / "text.txt")
    return folder


@pytest.fixture(scope="module")
def undisturbed(folder):
    """Runs that nothing happens to, by processes and flags: each is made once."""

    @functools.cache
    def made(processes, *flags):
        crew = start(folder, f"undisturbed-{processes}{''.join(flags)}", processes, *flags)
        assert set(crew.wait().values()) == {0}, crew.said(0)[-2000:]
        return crew

    return made


@pytest.fixture(scope="module")
def alone(undisturbed):
    """Losses of the run in one process, on one device."""
    return losses(undisturbed(1).out)


def start(folder, out, processes, *flags, **more):
    return Crew(folder / "recipe.py", folder / "text.txt", folder / out, processes, *flags, **more)


@pytest.mark.parametrize(
    ("processes", "flags"),
    [
        (2, ()),
        (2, ("--mesh.tensor", "2")),
        (4, ("--mesh.data", "auto")),
        (4, ("--mesh.tensor", "2", "--mesh.fsdp", "2")),
    ],
    ids=["2 data", "2 tensor", "4 data", "4 fsdp tensor"],
)
def test_the_same_losses_as_one_process(alone, undisturbed, processes, flags):
    crew = undisturbed(processes, *flags)
    assert furthest(alone, losses(crew.out)) < NEAR
    assert "step 20  held-out loss" in crew.said(0)
    assert not [line for line in crew.said(1).splitlines() if line and not line.startswith("[Gloo]")]


@pytest.mark.parametrize(
    ("processes", "asked", "devices", "flags", "later"),
    [
        (2, 0, 2, ("--mesh.fsdp", "2", "--mesh.tensor", "2"), 1),
        (4, 2, 1, ("--mesh.tensor", "2"), 1),
        (1, 0, 8, ("--mesh.fsdp", "8"), 2),
    ],
    ids=["the first of 2 processes of 2 devices to 1", "the third of 4 processes to 1", "8 devices to 2"],
)
def test_sigterm_on_any_process_saves_all_and_other_devices_go_on(
    folder, alone, processes, asked, devices, flags, later
):
    """All stop together; one process with fewer devices goes on with the same batches. Of stages, the last is asked."""
    out = folder / f"stopped-{processes}-{devices}"
    crew = start(folder, out.name, processes, *flags, devices=devices)
    crew.until(lambda: steps_of(out) >= 3)
    crew.kill(asked, how=signal.SIGTERM)
    assert set(crew.wait().values()) == {0}, crew.said(0)[-2000:]
    saved = steps_in(out / "checkpoints")[-1]
    assert 3 <= saved < 20
    assert f"stopped after step {saved}, which is saved" in crew.said(0)
    again = start(folder, out.name, 1, "--mesh.fsdp", "1", "--mesh.tensor", "1", devices=later)
    assert set(again.wait().values()) == {0}, again.said(0)[-2000:]
    assert furthest(alone, losses(out)) < NEAR


@pytest.mark.parametrize("victim", [0, 1])
def test_a_killed_process_ends_the_others_and_the_run_goes_on_exactly(folder, undisturbed, victim):
    """To the last bit: losses and weights are those of the two processes that nothing happened to."""
    out = folder / f"killed-{victim}"
    crew = start(folder, out.name, 2)
    crew.until(lambda: len(steps_in(out / "checkpoints")) > 0)
    crew.kill(victim)
    killed = time.monotonic()
    codes = crew.wait(timeout=100)
    assert time.monotonic() - killed < 60
    assert codes[victim] == -signal.SIGKILL and codes[1 - victim] in (EXIT_GONE, -signal.SIGABRT)
    assert f"process {victim} of 2 is gone (killed" in crew.said(1 - victim)
    again = start(folder, out.name, 2)
    assert set(again.wait().values()) == {0}, again.said(0)[-2000:]
    assert "resuming after step" in again.said(0)
    expected = undisturbed(2).out
    assert losses(out) == losses(expected)
    assert same_arrays(*(restore(latest(directory)).params for directory in (out, expected)))


def test_a_process_that_was_not_started_is_named(folder):
    crew = start(folder, "absent", 3, "--connect-timeout", "40", absent=[2])
    assert set(crew.wait().values()) == {1}
    for number in (0, 1):
        assert "process 2 of 3 did not connect in 40 s: start it with" in crew.said(number)
        assert "--process 2" in crew.said(number)
    assert not (folder / "absent").exists()


def test_an_error_of_the_first_process_is_told_to_the_others(folder):
    crew = start(folder, "wrong", 2, "--mesh.tensor", "3")
    assert all(crew.wait().values())
    assert "does not fit 2 devices" in crew.said(0)
    assert "does not fit 2 devices" in crew.said(1)  # found there as well, or told


@pytest.mark.parametrize(
    ("second", "message"),
    [
        (("--optimizer.learning-rate", "0.9"), "optimizer.learning_rate: 0.01 -> 0.9"),
        (("--out", "elsewhere"), "does not see the run directory of process 0"),
    ],
    ids=["settings", "directory"],
)
def test_processes_that_were_started_differently_are_refused(folder, second, message):
    words = second if second[0] != "--out" else ("--out", str(folder / "elsewhere"))
    crew = start(folder, f"different-{second[0].strip('-')}", 2, flags_of={1: words})
    assert crew.wait() == {0: 1, 1: EXIT_GONE}
    assert message in crew.said(0)
    assert "process 0 of 2 is gone (NotTogetherError" in crew.said(1)


def test_stages_of_several_processes_stop_together_and_go_on(folder):
    (folder / "stages.py").write_text(STAGES)
    straight, out = folder / "straight", folder / "stages"
    Crew(folder / "stages.py", folder / "text.txt", straight, 1).wait()
    crew = Crew(folder / "stages.py", folder / "text.txt", out, 2)
    crew.until(lambda: steps_of(out / "1-first") >= 9)
    crew.kill(1, how=signal.SIGTERM)
    assert set(crew.wait().values()) == {0}, crew.said(0)[-2000:]
    assert not (out / "forgetting.md").exists()
    again = Crew(folder / "stages.py", folder / "text.txt", out, 2)
    assert set(again.wait().values()) == {0}, again.said(0)[-2000:]
    for stage in ("1-first", "2-other"):
        assert furthest(losses(straight / stage), losses(out / stage)) < NEAR
    assert (out / "forgetting.md").exists()
