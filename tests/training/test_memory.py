import os
import platform
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pytest

from spanloom.cli.main import main
from spanloom.training import memory
from spanloom.training.memory import memory_of, return_freed_memory


@pytest.mark.short
def test_returning_memory_leaves_arrays_alone() -> None:
    x = jnp.arange(1000)
    return_freed_memory()
    assert int(x.sum()) == 499500


@pytest.mark.short
def test_memory_is_of_the_fullest_device_or_of_this_process() -> None:
    def device(stats: dict[str, int] | None) -> SimpleNamespace:
        return SimpleNamespace(memory_stats=lambda: stats)

    two = [device({"bytes_in_use": 5, "peak_bytes_in_use": 9}), device({"bytes_in_use": 7, "peak_bytes_in_use": 8})]
    assert memory_of(two) == {"memory_in_use": 7, "memory_peak": 9}
    assert memory_of([device({"bytes_in_use": 5})]) == {"memory_in_use": 5}
    block = np.ones(2**24, np.uint8)
    found = memory_of([device(None)])
    assert block.nbytes < found["memory_in_use"] <= found["memory_peak"] < 2**42


def page_faults_for_64_mib(before: str, tunables: str | None = None) -> float:
    """Page faults of a fresh process for each of 20 buffers of 64 MiB, made and freed one by one."""
    script = f"""
import resource
from spanloom.training.memory import use_huge_pages
{before}
for number in range(22):
    if number == 2:
        start = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    b"x" * 2**26
print((resource.getrusage(resource.RUSAGE_SELF).ru_minflt - start) / 20)
"""
    environment = {name: value for name, value in os.environ.items() if name != memory.TUNABLES}
    if tunables is not None:
        environment[memory.TUNABLES] = tunables
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, env=environment)
    return float(ended.stdout)


@pytest.mark.skipif(not memory._offered(), reason="this system has no huge pages for those who ask")
def test_memory_comes_in_huge_pages_unless_the_user_decided_otherwise() -> None:
    small = page_faults_for_64_mib("")
    assert small > 16_000
    assert page_faults_for_64_mib("use_huge_pages()") < small / 4
    assert page_faults_for_64_mib("use_huge_pages()", "glibc.malloc.tcache_count=3") < small / 4
    assert page_faults_for_64_mib("use_huge_pages()", "glibc.malloc.hugetlb=0") > 16_000


class RestartedError(BaseException):
    """In place of a program that is not there any more: nothing of it may answer."""


@pytest.mark.parametrize(
    ("words", "restarts"),
    [
        (["train", "quickstart"], True),
        (["finetune"], True),
        (["convert", "one", "other"], True),
        (["train", "quickstart", "--help"], False),
        (["inspect", "one"], False),
        ([], False),
    ],
)
def test_only_what_computes_is_started_again(words: list[str], restarts: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def restart(program: str, argv: list[str]) -> None:
        assert (program, argv[0], argv[1:]) == (sys.executable, sys.executable, sys.orig_argv[1:])
        raise RestartedError

    monkeypatch.setattr(memory, "_offered", lambda: True)
    monkeypatch.setattr(os, "execv", restart)
    monkeypatch.setenv(memory.TUNABLES, "")
    monkeypatch.setattr(sys, "argv", ["spanloom", *words])
    if restarts:
        with pytest.raises(RestartedError):
            main()
    else:
        main()
    assert restarts == (memory.HUGE_PAGES in os.environ[memory.TUNABLES])


def test_nothing_is_asked_where_all_or_none_get_huge_pages(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(platform, "libc_ver", lambda: ("glibc", "2.35"))
    monkeypatch.setattr(memory, "OFFERED", tmp_path / "enabled")
    assert not memory._offered()
    for text, offered in [("always [madvise] never", True), ("[always] madvise never", False), ("", False)]:
        (tmp_path / "enabled").write_text(text + "\n")
        assert memory._offered() == offered
    for other in [("glibc", "2.34"), ("musl", "1.2"), ("", "")]:
        monkeypatch.setattr(platform, "libc_ver", lambda other=other: other)
        assert not memory._offered()
