"""How text of a user's files is shown in a message: as Python would write it, and cut where it is long."""

from typing import Any

_MOST = 40


def shown(value: Any, most: int = _MOST) -> str:
    """The value's repr, of long text or a long number only the beginning (about `most` characters)."""
    if isinstance(value, str) and len(value) > most:
        return f"{value[:most]!r}..."
    try:
        text = repr(value)
    except ValueError:
        return "a number of thousands of digits" if isinstance(value, int) else f"an object of {type(value).__name__}"
    except Exception:  # the repr of a user's class
        return f"an object of {type(value).__name__}"
    return text if len(text) <= most + 2 else f"{text[:most]}..."
