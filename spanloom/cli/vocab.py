"""`spanloom vocab train|check|trim`: vocabularies made, looked at, and made smaller."""

import importlib
from collections.abc import Sequence

from spanloom.cli.errors import UsageError
from spanloom.settings.nearest import did_you_mean

COMMANDS = {
    "train": ("--text FILES --size N --out FILE", "a SentencePiece model from text, with sentinels"),
    "check": ("VOCABULARY [--text FILES]", "sentinels, unknown text, tokens a word, and what does not come back"),
    "trim": ("CHECKPOINT OUT --text FILES --coverage 1", "a model with only the pieces that a text needs"),
}
"""Command, its arguments and what it does; each is a module vocab_COMMAND of this package."""


def main(argv: Sequence[str]) -> int:
    """Run the command; the exit code."""
    if not argv or argv[0] in ("-h", "--help", "help"):
        lines = ["usage: spanloom vocab COMMAND ...", ""]
        for name, (arguments, text) in COMMANDS.items():
            lines += [f"  spanloom vocab {name} {arguments}", f"      {text}"]
        print("\n".join([*lines, "", "Flags of a command: `spanloom vocab COMMAND --help`."]))
        return 0 if argv else 2
    if argv[0] not in COMMANDS:
        raise UsageError(f"unknown command vocab {argv[0]!r}{did_you_mean(argv[0], COMMANDS)}")
    code: int = importlib.import_module(f"spanloom.cli.vocab_{argv[0]}").main(argv[1:])
    return code
