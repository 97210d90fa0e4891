"""The nearest of the names that exist, for error messages."""

from collections.abc import Iterable


def nearest(name: str, known: Iterable[str], count: int = 3, likeness: float = 0.6, dotted: bool = True) -> list[str]:
    """At most `count` known names that resemble `name`, best first; `-` and `_`, and upper and lower case, are equal.

    `likeness` is the least ratio of letters in common (difflib's), 0 to 1. `dotted`: whether a point parts groups, so
    that a name is also near to one with the same last part; not so in file names.
    """
    import difflib

    plain: dict[str, str] = {}
    for candidate in known:
        plain.setdefault(candidate.replace("-", "_").lower(), candidate)
    wanted = name.replace("-", "_").lower()
    found = difflib.get_close_matches(wanted, plain, n=count, cutoff=likeness)
    if not dotted:
        return [plain[key] for key in found]
    # A dotted name is often given by its last part alone, or under the wrong parent.
    last = wanted.rsplit(".", 1)[-1]
    same_last = [key for key in plain if key.rsplit(".", 1)[-1] == last and key != wanted]
    exact_part = same_last if "." not in wanted or not found else []
    ordered = dict.fromkeys([*exact_part, *found, *same_last])
    return [plain[key] for key in list(ordered)[:count]]


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """'; did you mean x or y?', or what is known where nothing resembles the name (and the list is short)."""
    known = list(known)
    found = nearest(name, known)
    if found:
        return f"; did you mean {' or '.join(found)}?"
    if 0 < len(known) <= 12:
        return f"; known are {', '.join(known)}"
    return ""
