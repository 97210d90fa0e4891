"""Runs all checks, part by part, and prints a table of minutes: what `make check` and CI call.

Every part runs even if an earlier one failed, so that one run shows all there is to mend; the exit status is 1 if any
failed.
`--all` adds what takes long.
"""

import argparse
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BIN = ROOT / ".venv" / "bin"
OTHER_PYTHONS = ("3.12", "3.13")
PYTEST = ("-m", "pytest", "-q", "-n", "2", "--dist", "loadfile", "--no-loadscope-reorder")
"""Two workers, whole files, in the order of tests/conftest.py."""


@dataclass(frozen=True)
class Part:
    """One row of the table: a name, and the commands that must all succeed."""

    name: str
    commands: tuple[tuple[str, ...], ...]
    skipped: str = ""
    """Why nothing is run; in CI that counts as failed."""


def main() -> int:
    """Run the parts asked for; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--all", action="store_true", help="also what takes long")
    parser.add_argument("--only", default="", help="only parts whose name contains this")
    arguments = parser.parse_args()
    rows = [(part, *run(part)) for part in parts(arguments.all) if arguments.only in part.name]
    print(f"\n{'part':<40}{'minutes':>9}  result")
    for part, minutes, passed in rows:
        print(f"{part.name:<40}{minutes:>9.1f}  {result(part, passed)}")
    print(f"{'in all':<40}{sum(minutes for _, minutes, _ in rows):>9.1f}")
    return 0 if rows and all(passed for _, _, passed in rows) else 1


def result(part: Part, passed: bool) -> str:
    """What the table says of a part."""
    return f"{'skipped' if passed else 'FAILED'}: {part.skipped}" if part.skipped else "ok" if passed else "FAILED"


def parts(everything: bool) -> list[Part]:
    """The parts in order, quick ones first."""
    python = str(BIN / "python")
    pytest = (python, *PYTEST, "--durations=25")
    found = [
        Part("lint", ((str(BIN / "ruff"), "check", "."), (str(BIN / "ruff"), "format", "--check", "."))),
        Part("types", ((str(BIN / "mypy"),),)),
        # Apart, as tests/conftest.py has all others compiled more quickly than users have them.
        Part("golden and parity, Python 3.11", ((*pytest, "-m", "(golden or parity or exact) and not slow"),)),
        Part("other tests, Python 3.11", ((*pytest, "-m", "not golden and not parity and not exact and not slow"),)),
    ]
    found += [short_set(version) for version in OTHER_PYTHONS]
    if everything:
        found.append(Part("slow tests", ((*pytest, "-m", "slow and not beam"),)))
        found.append(beam())
        found.append(older_transformers())
    return found


def beam() -> Part:
    """The tests of Apache Beam, which holds protobuf and others at older releases than the rest of ours."""
    venv = ROOT / ".venvs" / "beam"
    python = str(venv / "bin" / "python")
    packages = ("-e", ".[beam]", "pytest>=8", "psutil>=6")
    install = (python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--upgrade", *packages)
    tests = (python, "-m", "pytest", "-q", "-m", "beam", "--durations=10", "tests/pipeline/test_beam_build.py")
    return Part("Apache Beam", ((str(BIN / "python"), "-m", "venv", str(venv)), install, tests))


def older_transformers() -> Part:
    """What is exported, read by the last release of transformers 4 that many still have: `parity` itself has 5.

    The tests run in our own environment, and what they start of transformers in that one.
    """
    venv = ROOT / ".venvs" / "transformers-4"
    python = str(venv / "bin" / "python")
    packages = ("torch==2.13.0", "transformers==4.46.3", "sentencepiece>=0.2.1", "protobuf")
    install = (python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages)
    ours = (str(BIN / "python"), "-m", "pytest", "-q", "-m", "parity", "--durations=10", "tests/conversion")
    tests = ("env", f"SPANLOOM_HF_PYTHON={python}", *ours)
    return Part("transformers 4.46.3", ((str(BIN / "python"), "-m", "venv", str(venv)), install, tests))


def short_set(version: str) -> Part:
    """The short set on another Python, with the newest releases its own environment resolves."""
    name = f"short set, Python {version}"
    finder = (str(ROOT / "scripts" / "find_python"), version)
    interpreter = subprocess.run(finder, capture_output=True, text=True, check=False).stdout.strip()
    if not interpreter:
        return Part(name, (), skipped="this Python was not found")
    venv = ROOT / ".venvs" / version
    python = str(venv / "bin" / "python")
    install = (python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--upgrade", "-e", ".[dev]")
    tests = (python, *PYTEST, "-m", "short and not slow")
    return Part(name, ((interpreter, "-m", "venv", str(venv)), install, tests))


def run(part: Part) -> tuple[float, bool]:
    """Minutes taken, and whether every command of the part succeeded (it stops at the first that did not).

    A part that is skipped succeeds, but in CI.
    """
    print(f"\n=== {part.name}", flush=True)
    start = time.monotonic()
    passed = not part.skipped or os.environ.get("CI") != "true"
    for command in part.commands:
        print("$", " ".join(command), flush=True)
        passed = subprocess.run(command, cwd=ROOT, check=False).returncode == 0
        if not passed:
            break
    return (time.monotonic() - start) / 60, passed


if __name__ == "__main__":
    sys.exit(main())
