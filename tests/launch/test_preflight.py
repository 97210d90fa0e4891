"""What keeps hosts from training together, and how it is said."""

import pytest

from spanloom.launch.preflight import problems, summary


def report(**changes):
    good = {
        "changed": [],
        "versions": {"python": "3.11.7", "jax": "0.10.2", "spanloom": "0.1.0"},
        "devices": {"gpu": 0, "tpu": 4},
        "free": 2**40,
        "locks": [],
        "slots": 1,
    }
    return {**good, **changes}


def test_equal_hosts_have_no_problem():
    assert problems({"a": report(), "b": report()}) == []
    assert summary([report(), report()]) == "python 3.11.7, jax 0.10.2; 4 TPUs on each"


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"changed": ["code/a.py"]}, "b: 1 files are not as they were sent (code/a.py)"),
        ({"versions": {}, "broken": "no module"}, "b: Spanloom cannot be imported there: no module"),
        ({"versions": {"python": "3.11.7", "spanloom": "0.1.0"}}, "b: JAX is not installed there"),
        ({"locks": ["/tmp/libtpu_lockfile is held"]}, "b: /tmp/libtpu_lockfile is held"),
        ({"free": 2**20}, "b: only 1 MiB are free on the disk of the home directory"),
        ({"out_free": 0}, "b: only 0 MiB are free on the disk of the run directory"),
        ({"out_writable": False}, "b: nothing can be written in the run directory"),
        ({"in_use": "77"}, "b: another training process uses the run directory (id 77)"),
        ({"slots": 2}, "b: 2 processes would each claim its 4 TPUs"),
        (
            {"versions": {"python": "3.11.7", "jax": "0.9.0", "spanloom": "0.1.0"}},
            "the hosts have different versions of jax: 0.10.2 on a; 0.9.0 on b",
        ),
        ({"devices": {"tpu": 3}}, "the hosts have different numbers of TPUs: 4 on a; 3 on b"),
    ],
)
def test_each_problem_names_its_host_and_what_helps(changes, told):
    found = problems({"a": report(), "b": report(**changes)})
    assert any(line.startswith(told) for line in found), found
