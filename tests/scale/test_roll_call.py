import threading

import pytest
from crew_process import two_free_ports

from spanloom.scale import roll_call
from spanloom.scale.roll_call import RollCallError, call_roll


class Room:
    """Roll calls of several processes, in threads of this one."""

    def __init__(self, processes, timeout=20.0, absent=(), numbers=None, of=None):
        self.calls, self.errors, self.gone = {}, {}, {}
        port = two_free_ports()
        threads = []
        for key, number in enumerate(numbers or range(processes)):
            if number not in absent:
                size = (of or {}).get(number, processes)
                threads.append(threading.Thread(target=self._call, args=(key, number, size, port, timeout)))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)

    def _call(self, key, number, processes, port, timeout):
        heard = self.gone.setdefault(number, [])
        heard_it = threading.Event()

        def on_gone(process, why):
            heard.append((process, why))
            heard_it.set()

        try:
            self.calls[key] = call_roll(("127.0.0.1", port), number, processes, timeout, on_gone)
            self.calls[key].heard_it = heard_it
        except RollCallError as error:
            self.errors[key] = str(error)


def test_all_are_there_and_meet_at_barriers():
    room = Room(3)
    assert not room.errors
    passed = []

    def go(number):
        for _ in range(50):
            room.calls[number].barrier("again and again")
        passed.append(number)

    threads = [threading.Thread(target=go, args=(number,)) for number in room.calls]
    for thread in threads[:2]:
        thread.start()
    threads[0].join(0.2)
    assert not passed
    threads[2].start()
    for thread in threads:
        thread.join(30)
    assert sorted(passed) == [0, 1, 2]
    for call in room.calls.values():
        call.close()


def test_who_is_missing_is_said_everywhere():
    room = Room(4, timeout=1.5, absent=[1, 3])
    assert room.errors.keys() == {0, 2}
    for text in room.errors.values():
        assert "processes 1, 3 of 4 did not connect in 2 s" in text or "processes 1, 3 of 4 did not connect" in text
    alone = Room(2, timeout=1.0, absent=[0])
    assert "process 0 of 2 did not connect in 1 s: start it with" in alone.errors[1]


def test_two_of_one_number_and_other_counts_are_refused():
    twice = Room(3, timeout=3.0, numbers=[0, 1, 1])
    assert any("two processes were started as process 1 of 3" in text for text in twice.errors.values())
    other = Room(2, timeout=3.0, of={1: 5})
    assert "process 0 was started as one of 2, process 1 as one of 5" in other.errors[0]
    assert "--processes must be equal everywhere" in other.errors[1]


@pytest.mark.parametrize("victim", [0, 1])
def test_a_broken_line_is_a_process_that_is_gone(victim):
    room = Room(3)
    for line in room.calls[victim].lines:
        room.calls[victim]._closing = True
        line.socket.shutdown(2)
    for number in {0, 1, 2} - {victim}:
        assert room.calls[number].heard_it.wait(20)
        assert room.gone[number][0][0] == victim


def test_why_a_process_failed_is_told():
    room = Room(3)
    room.calls[2].fail("DataError: no such file")
    for number in (0, 1):
        assert room.calls[number].heard_it.wait(20)
        assert room.gone[number] == [(2, "DataError: no such file")]


def test_a_goodbye_is_no_failure():
    room = Room(2)
    for call in room.calls.values():
        call.close()
    assert not room.calls[0].heard_it.wait(1.0) and not room.gone[0] and not room.gone[1]


def test_what_all_say_reaches_the_first():
    room = Room(3)
    found = {}

    def say(number):
        found[number] = room.calls[number].gather("settings", f"those of {number}")

    threads = [threading.Thread(target=say, args=(number,)) for number in room.calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert found == {0: ["those of 0", "those of 1", "those of 2"], 1: [], 2: []}


def test_a_silent_process_is_gone(monkeypatch):
    monkeypatch.setattr(roll_call, "ALIVE_SECONDS", 0.2)
    monkeypatch.setattr(roll_call, "SILENT_SECONDS", 1.0)
    monkeypatch.setattr(roll_call, "FAREWELL_SECONDS", 0.1)
    room = Room(3)
    assert not room.calls[0].heard_it.wait(2.5), "those who say that they are there are not silent"
    room.calls[1]._closing = True  # its thread says nothing any more
    for number in (0, 2):
        assert room.calls[number].heard_it.wait(20)
        assert room.gone[number][0][0] == 1 and "silent for 1 s" in room.gone[number][0][1]
