"""`spanloom recipes`: what ships, one line each."""

from collections.abc import Sequence

from spanloom.cli.errors import UsageError
from spanloom.recipes import shipped, summary


def main(argv: Sequence[str]) -> int:
    """Run the command; the exit code."""
    if list(argv) in (["-h"], ["--help"]):
        print("usage: spanloom recipes\n\nLists the recipes that ship; `spanloom train NAME --help` shows one's flags.")
        return 0
    if argv:
        raise UsageError(f"spanloom recipes takes no arguments, not {' '.join(argv)}")
    found = {name: summary(path) for name, path in shipped().items()}
    width = max(map(len, found))
    for name, text in found.items():
        print(f"{name:<{width}}  {text}")
    print("\nspanloom train NAME            begins one (--help: its flags)")
    print("spanloom train my_recipe.py    begins one of your own")
    return 0
