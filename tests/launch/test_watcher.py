"""When a launch starts again, when it gives up, and what it says then; processes and hosts are imagined."""

import dataclasses
import os

import pytest

from spanloom.launch import attempt
from spanloom.launch.attempt import Outcome
from spanloom.launch.calls import HostError
from spanloom.launch.failure import Ended
from spanloom.launch.record import Launch, LaunchError, claim, find, folders, is_watched, read_state, save
from spanloom.launch.watcher import Watcher

DONE, FAILED = Outcome({0: Ended(0, 1.0)}, {0: "process 0 on a"}), Outcome({0: Ended(1, 1.0)}, {0: "process 0 on a"})


@pytest.fixture
def launch(tmp_path, monkeypatch):
    monkeypatch.setenv("SPANLOOM_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(attempt, "FIRST_WAIT", 0.01)
    made = Launch("20260101-000000-a-0000", "local:1", ("a",), str(tmp_path / "out"), "/", "/", "0" * 64, "", "python")
    save(made, b"")
    return made


def watched(launch, *outcomes, **changes):
    """The state in which a launch ends that has these outcomes, and how many there were."""
    left = list(outcomes)

    class Imagined:
        def __init__(self, launch, number, say, tell, stopping):
            self.number = number

        def run(self):
            outcome = left.pop(0)
            if isinstance(outcome, Exception):
                raise outcome
            launch.log(self.number, 0).write_text(outcome.names.get("log", "its words\n"))
            return outcome

    state = Watcher(dataclasses.replace(launch, **changes), Imagined).run()
    assert state == read_state(launch)
    return state, len(outcomes) - len(left)


def at(step, outcome=FAILED):
    return dataclasses.replace(outcome, step=step)


def test_a_failure_ends_it_with_the_words_of_who_failed(launch):
    state, starts = watched(launch, FAILED, DONE)
    assert (state.state, starts) == ("failed", 1)
    assert "process 0 on a failed first: it ended with exit code 1" in state.message
    assert "its words" in state.message and f"spanloom launch retry {launch.id}" in state.message


def test_keep_going_starts_again_until_it_is_done(launch):
    state, starts = watched(launch, at("5"), HostError("preempted"), at("10"), DONE, keep_going=True)
    assert (state.state, starts, state.attempt, state.restarts, state.message) == ("done", 4, 4, 3, "")


def test_keep_going_has_a_limit(launch):
    state, starts = watched(launch, *(at(str(n)) for n in range(9)), keep_going=True, restarts=3)
    assert (state.state, starts) == ("failed", 4)
    assert "given up after 3 restarts (--restarts)" in state.message


def test_keep_going_gives_up_where_the_run_gets_no_further(launch):
    state, starts = watched(launch, at("4"), at("5"), at("5"), at("5"), DONE, keep_going=True)
    assert (state.state, starts) == ("failed", 4)
    assert "3 starts in a row got no further than 5" in state.message
    state, starts = watched(launch, at(None), at(None), at(None), DONE, keep_going=True)
    assert (state.state, starts) == ("failed", 3)


def test_hosts_that_are_away_for_long_are_no_lack_of_progress(launch):
    away = [HostError("away")] * 6
    assert watched(launch, at("5"), *away, at("10"), DONE, keep_going=True)[0].state == "done"


def test_a_run_that_saved_itself_before_its_end_is_not_done(launch):
    """A preemption is a SIGTERM, on which training saves and exits 0."""
    preempted = Outcome({0: Ended(0, 1.0)}, {0: "a", "log": "stopped after step 7, which is saved\n"})
    assert watched(launch, preempted)[0].state == "failed"
    assert watched(launch, preempted, DONE, keep_going=True)[0].state == "done"


def test_a_stop_ends_it_without_another_start(launch):
    (launch.folder / "stop").touch()
    assert watched(launch, FAILED, DONE, keep_going=True)[0].state == "stopped"


def test_one_process_watches_a_launch(launch):
    assert not is_watched(launch)
    held = claim(launch)
    assert is_watched(launch)
    with pytest.raises(LaunchError, match="is under way: spanloom launch logs"):
        claim(launch)
    os.close(held)
    assert not is_watched(launch)


def test_launches_are_found_by_id_part_and_directory(launch, tmp_path, monkeypatch):
    other = dataclasses.replace(launch, id="20260102-000000-b-1111", out="/b")
    save(other, b"")
    assert folders() == [launch.folder, other.folder]
    assert find(None) == other and find("-a-") == launch and find("/b") == other
    monkeypatch.chdir(tmp_path)
    assert find("out") == launch
    with pytest.raises(LaunchError, match="stands for several launches"):
        find("2026")
    with pytest.raises(LaunchError, match="is no launch, nor the directory of one"):
        find("c")


def test_a_damaged_record_is_named(launch):
    (launch.folder / "launch.json").write_text('{"id": 3')
    other = dataclasses.replace(launch, id="20260102-000000-b-1111", out="/b")
    save(other, b"")
    assert find("/b") == other and find(None) == other
    with pytest.raises(LaunchError, match=r"launch.json is damaged"):
        find("-a-")
