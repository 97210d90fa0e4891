"""Which of several processes failed first, and what is shown of it."""

from spanloom.launch.failure import GONE, Ended, first_failure, how, shown


def test_the_first_by_time_failed_first_whatever_its_number():
    assert first_failure({0: Ended(1, 20.0), 1: Ended(1, 10.0), 2: Ended(0, 5.0)}) == 1


def test_those_that_followed_and_those_that_were_stopped_are_not_the_first():
    ended = {0: Ended(GONE, 9.0), 1: Ended(-9, 10.0), 2: Ended(-6, 9.5), 3: Ended(-15, 8.0, stopped=True)}
    assert first_failure(ended) == 1


def test_where_all_only_followed_the_first_of_them_is_named_and_none_where_none_failed():
    assert first_failure({0: Ended(GONE, 2.0), 1: Ended(GONE, 1.0)}) == 1
    assert first_failure({0: Ended(0, 1.0), 1: Ended(-15, 1.0, stopped=True)}) is None
    assert first_failure({}) is None


def test_a_lost_host_is_named_before_those_that_missed_it():
    assert first_failure({0: Ended(GONE, 1.0), 1: Ended(None, 60.0)}) == 1


def test_codes_in_words():
    assert how(3) == "ended with exit code 3"
    assert how(-9).startswith("was killed by SIGKILL, perhaps because memory")
    assert how(-64).startswith("was killed by") and "lost" in how(None)


def test_the_last_traceback_is_shown_with_what_follows(tmp_path):
    log = tmp_path / "log"
    lines = [
        "start",
        "Traceback (most recent call last):",
        "  old",
        "more",
        "Traceback (most recent call last):",
        "  new",
    ]
    log.write_text("\n".join([*lines, "ValueError: \x1b[31mred\x07", "spanloom: error: x"]))
    told = shown(log).splitlines()
    assert told[0].strip() == "Traceback (most recent call last):" and "  old" not in shown(log)
    assert told[-2:] == ["  ValueError: [31mred", "  spanloom: error: x"]


def test_a_log_without_one_shows_its_end(tmp_path):
    log = tmp_path / "log"
    log.write_text("".join(f"line {number}\n" for number in range(100_000)))
    assert shown(log).splitlines()[-1] == "  line 99999" and len(shown(log).splitlines()) == 30
    assert "left no log" in shown(tmp_path / "none")
    log.write_text("")
    assert "empty" in shown(log)
