"""How long the command takes to answer: seconds of help and listing commands, and what they import.

.venv/bin/python benchmarks/cli.py [--repeat 5]
"""

import argparse
import statistics
import subprocess
import sys
import time

COMMANDS = (
    ("--help",),
    ("recipes",),
    ("train", "quickstart", "--help"),
    ("pretrain", "--help"),
    ("finetune", "--help"),
    ("train", "quickstart", "--stpes", "4"),
)
START = "import sys; from spanloom.cli.main import main; sys.exit(main(sys.argv[1:]))"


def seconds(argv: tuple[str, ...]) -> float:
    """Wall seconds of one command in a fresh process."""
    begin = time.perf_counter()
    subprocess.run([sys.executable, "-c", START, *argv], capture_output=True, check=False)
    return time.perf_counter() - begin


def slowest_imports(argv: tuple[str, ...], count: int) -> list[tuple[float, str]]:
    """The modules that take longest to import (milliseconds, those they import included)."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", START, *argv], capture_output=True, text=True, check=False
    )
    found = []
    for line in done.stderr.splitlines():
        parts = line.removeprefix("import time:").split("|")
        if len(parts) == 3 and parts[1].strip().isdigit():
            found.append((int(parts[1]) / 1000, parts[2].strip()))
    return sorted(found, reverse=True)[:count]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=5)
    repeat = parser.parse_args().repeat
    print(f"{'command':<40} {'median s':>9} {'best s':>9}")
    for argv in COMMANDS:
        times = [seconds(argv) for _ in range(repeat)]
        print(f"{'spanloom ' + ' '.join(argv):<40} {statistics.median(times):>9.3f} {min(times):>9.3f}")
    print("\nslowest imports of `spanloom train quickstart --help`, milliseconds:")
    for milliseconds, name in slowest_imports(("train", "quickstart", "--help"), 8):
        print(f"{milliseconds:>8.1f}  {name}")


if __name__ == "__main__":
    main()
