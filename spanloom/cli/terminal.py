"""What a command's tables are printed on."""

import os
from typing import TextIO


def width_and_colour(out: TextIO) -> tuple[int | None, bool]:
    """Columns, None where it is no terminal, and whether colours are wanted (FORCE_COLOR, NO_COLOR)."""
    terminal = out.isatty()
    width = os.get_terminal_size(out.fileno()).columns if terminal else None
    return width, (terminal or bool(os.environ.get("FORCE_COLOR"))) and not os.environ.get("NO_COLOR")
