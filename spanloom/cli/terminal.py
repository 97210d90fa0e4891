"""What a command's tables are printed on."""

import os
from typing import TextIO


def width_and_colour(out: TextIO) -> tuple[int | None, bool]:
    """Columns, None where it is no terminal, and whether colours are wanted (FORCE_COLOR, NO_COLOR, TERM=dumb)."""
    is_terminal, told = out.isatty(), os.environ
    width = os.get_terminal_size(out.fileno()).columns if is_terminal else None
    colour = bool(told.get("FORCE_COLOR")) or (is_terminal and told.get("TERM") != "dumb")
    return width, colour and not told.get("NO_COLOR")
