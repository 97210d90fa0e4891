"""Files of several names on a command line: NAME=FILES."""

from pathlib import Path

from spanloom.settings.serialize import SettingsError


def by_name(flag: str, words: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """Files of each name, in the order of first mention; without NAME= it is that of the file.

    Raises SettingsError for an empty name or file.
    """
    found: dict[str, tuple[str, ...]] = {}
    for word in words:
        name, equals, files = word.partition("=")
        if not equals:
            name, files = Path(word).name.partition(".")[0], word
        if not name.strip() or not files.strip() or "*" in name:
            raise SettingsError(f"{flag} {word!r}: must be NAME=FILES, such as de='corpus/de/*.txt'")
        found[name] = (*found.get(name, ()), files)
    return found
