"""What tyro does for the commands: values of the right type, its complaints as one line each."""

import contextlib
import dataclasses
import io
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import PurePath
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

from spanloom.cli.errors import UsageError
from spanloom.cli.help import Group, entries_of_class, metavar, render
from spanloom.cli.other_names import of_flag
from spanloom.cli.tokens import Flag, Takes, merge_repeated, split
from spanloom.settings.kinds import parts
from spanloom.settings.nearest import did_you_mean, nearest
from spanloom.settings.run import Run
from spanloom.settings.weights import NO_FLOAT16

T = TypeVar("T")

NAMES = """Names may stand behind flags: a flag of one value takes one word, --flag=VALUE no other word, and -- ends all
flags."""
"""What help says of commands that take no recipe."""
_GUARD = "\0"
"""Before a value that begins with a dash, which tyro would take for a flag; no command line can hold it."""

_SWITCH = {"true": "True", "yes": "True", "on": "True", "1": "True"}
_SWITCH |= {"false": "False", "no": "False", "off": "False", "0": "False"}


def options(cls: type[T], argv: Sequence[str], prog: str, usage: str, description: str, rest: str = "") -> T:
    """The options of a command that takes no recipe, as a dataclass.

    `rest`: the flag whose values are the words that come after those that have a place. `--help` prints and raises
    SystemExit(0). Raises UsageError on unknown flags, naming the nearest.
    """
    words, flags = split_for(cls, argv)
    entries = entries_of_class(cls)
    if any(flag.name == "help" for flag in flags):
        print(render(f"{prog} {usage}", f"{description}\n{NAMES}", [Group("words and flags", "", entries)]))
        raise SystemExit(0)
    hints = {entry.name: entry.hint for entry in entries}
    lists = [name for name, hint in hints.items() if _item(hint)[0]]
    named = [entry.name for entry in entries if not entry.word]
    refuse_unknown(flags, [*named, "debug"], prog)
    if any(not word.strip() for word in words):
        raise UsageError(f"{prog}: one name is empty (is a variable of the shell unset?)")
    for flag in flags:
        if hints.get(flag.name) == str | None and flag.values and not "".join(flag.values).strip():
            raise UsageError(f"{flag.typed} is empty (is a variable of the shell unset?)")
    check_values(flags, hints)
    places = [entry.word for entry in entries if entry.word]
    absent = [f"--{name}" for name in named if _is_required(cls, name) and name not in {flag.name for flag in flags}]
    if len(words) < len(places) or absent:
        missing = " ".join([*places[len(words) :], *absent])
        raise UsageError(f"missing: {missing}{_taken(flags, lists)}; usage: {prog} {usage}")
    if rest and len(words) > len(places):
        flags = [Flag(f"--{rest}", rest, tuple(words[len(places) :])), *flags]
    elif len(words) > len(places):
        _refuse_left_over(argv, words[len(places)], len(places), hints, f"usage: {prog} {usage}")
    flags = merge_repeated(flags, lists)
    spelled = [_spelled(flag, hints.get(flag.name)) for flag in flags if flag.name != "debug"]
    told = [*(_GUARD + word for word in words[: len(places)]), *(word for flag in spelled for word in flag.argv())]
    result: T = _quietly(cls, told, prog)
    return result


def split_for(cls: type, argv: Sequence[str]) -> tuple[list[str], list[Flag]]:
    """Words and flags of a command line, each flag with as many values as its type in the class has room for."""
    return split(argv, _takes({entry.name: entry.hint for entry in entries_of_class(cls)}))


def _takes(hints: Mapping[str, Any]) -> Takes:
    def takes(flag: Flag, word: str) -> bool:
        if flag.name not in hints:
            return flag.name not in ("debug", "help")
        hint = hints[flag.name]
        return _item(hint)[0] or (not flag.values and (hint is not bool or word.lower() in _SWITCH))

    return takes


def _taken(flags: Iterable[Flag], lists: Iterable[str]) -> str:
    """What to do where names that are missing may have been taken for values."""
    flag = next((flag for flag in flags if flag.name in lists and len(flag.values) > 1), None)
    return f" ({flag.typed} took all {len(flag.values)} words after it: put -- before names there)" if flag else ""


def _refuse_left_over(argv: Sequence[str], word: str, places: int, hints: Mapping[str, Any], usage: str) -> None:
    """Raise UsageError for a word that has no place: a value too many, where all names stand before the flags."""
    before, flags = split(argv)
    if len(before) == places and "--" not in argv:
        check_values(flags, hints)
    raise UsageError(f"{word!r} is left over; {usage}")


def _is_required(cls: type, name: str) -> bool:
    return any(f.name == name and f.default is dataclasses.MISSING for f in dataclasses.fields(cls))


def refuse_unknown(flags: Iterable[Flag], known: Iterable[str], prog: str, begun: bool = False) -> None:
    """Raise UsageError for the first flag that is none of the known names, naming the nearest.

    `begun`: the flags are those of a run directory.
    """
    known = list(known)
    for flag in flags:
        if flag.name not in known:
            hint = (
                of_flag(flag.name, known, begun)
                or did_you_mean_flag(flag.name, known)
                or f"; `{prog} --help` lists them"
            )
            raise UsageError(f"unknown flag {flag.typed}{hint}")


def did_you_mean_flag(name: str, known: Iterable[str]) -> str:
    """'; did you mean --x or --y?'"""
    hint = did_you_mean(name.replace("_", "-"), [k.replace("_", "-") for k in known])
    return hint.replace("mean ", "mean --").replace(" or ", " or --").replace("known are ", "there are ")


def check_values(flags: Iterable[Flag], hints: Mapping[str, Any]) -> None:
    """Raise UsageError for the first flag without a value, with too many, or with one that is none of its type."""
    for flag in flags:
        hint = hints.get(flag.name)
        if hint is None:
            continue
        many, inner = _item(hint)
        if not flag.values and not _is_switch(hint):
            raise UsageError(f"{flag.typed} takes a value: {flag.typed} {metavar(hint)}")
        if len(flag.values) > 1 and not many:
            raise UsageError(f"{flag.typed} takes one value, not {len(flag.values)}: {' '.join(flag.values)}")
        for value in () if _empties(flag, hint) else flag.values:
            if (wanted := _misfit(value, inner)) is not None:
                raise UsageError(f"{flag.typed} {value!r}: must be {wanted}")


def _empties(flag: Flag, hint: Any) -> bool:
    """Whether this is a list made empty: --flag None. Without any value a variable of the shell may be unset."""
    return flag.values == ("None",) and _item(hint)[0]


def _item(hint: Any) -> tuple[bool, Any]:
    """Whether a flag takes several values, and the type of one."""
    if get_origin(hint) is Annotated:
        return _item(get_args(hint)[0])
    if get_origin(hint) in (tuple, list):
        return True, (get_args(hint) or (str,))[0]
    return False, hint


def _misfit(value: str, hint: Any) -> str | None:
    """What a value of this type must be, if this is none; None if it may be one."""
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        wanted = [_misfit(value, kind) for kind in args]
        return None if None in wanted else " or ".join(dict.fromkeys(map(str, wanted)))
    if origin is Literal:
        choices = [str(choice) for choice in args]
        why = f" ({NO_FLOAT16})" if value == "float16" else _near(value, choices)
        return None if value in choices else f"one of {', '.join(choices)}{why}"
    if hint is type(None):
        return None if value == "None" else "None"
    if hint is bool:
        return None if value.lower() in _SWITCH else "true or false"
    if hint in (int, float):
        try:
            hint(value)
        except ValueError:
            return "a whole number" if hint is int else "a number"
    return None


def _near(value: str, choices: list[str]) -> str:
    found = nearest(value, choices, count=1)
    return f" (did you mean {found[0]}?)" if found else ""


def hints_of_run() -> dict[str, Any]:
    """The type of every field that a run may have, by dotted name."""
    found = typing.get_type_hints(Run)
    for part in parts():
        for cls in part.kinds.values():
            found |= {f"{part.path}.{name}": hint for name, hint in typing.get_type_hints(cls).items()}
    return found


def _hints_of(settings: Any, prefix: str = "") -> dict[str, Any]:
    """The type of every field that these very settings have, by dotted name: kinds differ in them."""
    hints = typing.get_type_hints(type(settings))
    found = {prefix + name: hint for name, hint in hints.items()}
    for name in hints:
        value = getattr(settings, name)
        if dataclasses.is_dataclass(value):
            found |= _hints_of(value, f"{prefix}{name}.")
    return found


def with_tyro(cls: type, default: Any, flags: Sequence[Flag], prog: str) -> Any:
    """tyro's answer, its complaint as one line. Without flags nothing is parsed where nothing is missing."""
    if default is not None and not flags and not _missing(default):
        return default
    hints = typing.get_type_hints(cls) if default is None else _hints_of(default)
    check_values(flags, hints)
    argv = [word for flag in flags for word in _spelled(flag, hints.get(flag.name)).argv()]
    return _quietly(cls, argv, prog, **({} if default is None else {"default": default}))


def _quietly(cls: Any, argv: Sequence[str], prog: str, **more: Any) -> Any:
    import tyro

    complaint = io.StringIO()
    try:
        with contextlib.redirect_stderr(complaint), contextlib.redirect_stdout(complaint):
            made = tyro.cli(cls, args=argv, prog=prog, config=tyro_config(), **more)
    except SystemExit:
        raise UsageError(_one_line(complaint.getvalue())) from None
    return _unguarded(made) if any(word.startswith(_GUARD) for word in argv) else made


def _guarded(words: Iterable[str]) -> tuple[str, ...]:
    """Values of a flag, none of which tyro takes for another flag."""
    return tuple(_GUARD + word if word.startswith("-") and not _is_number(word) else word for word in words)


def _unguarded(value: Any) -> Any:
    if isinstance(value, str):
        return value.removeprefix(_GUARD)
    if isinstance(value, PurePath):
        return type(value)(_unguarded(str(value)))
    if type(value) in (tuple, list, set, frozenset):
        return type(value)(_unguarded(item) for item in value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        found = {field.name: getattr(value, field.name) for field in dataclasses.fields(value) if field.init}
        return replace(value, **{name: _unguarded(item) for name, item in found.items()})
    return value


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def tyro_config() -> tuple[Any, ...]:
    """Unions take the kind that the default has; switches take a value."""
    import tyro

    return (tyro.conf.AvoidSubcommands, tyro.conf.FlagConversionOff)


def _is_switch(hint: Any) -> bool:
    """Whether a flag may come without a value, which is true then: a switch, or one that may have a name."""
    return hint is bool or hint == bool | str


def _spelled(flag: Flag, hint: Any) -> Flag:
    """Switches may be given as --flag, --flag true, --flag no; tyro wants True or False, and no value for no list."""
    if _empties(flag, hint):
        return replace(flag, values=())
    if not _is_switch(hint) and flag.name != "debug":
        return replace(flag, values=_guarded(flag.values))
    values = tuple(_SWITCH.get(value.lower(), value) for value in flag.values) or ("True",)
    return replace(flag, values=values)


def _missing(settings: Any) -> bool:
    import tyro

    if dataclasses.is_dataclass(settings):
        return any(_missing(getattr(settings, f.name)) for f in dataclasses.fields(settings))
    return settings is tyro.MISSING


def _one_line(box: str) -> str:
    """What tyro's boxed message says, without its title, its frame and its pointers to more help."""
    said: list[str] = []
    separators = 0
    for line in box.splitlines():
        text = line.strip(" │|")
        separators += line.startswith("╭") or (bool(text) and not text.strip("─-"))
        if separators >= 2:
            break
        if separators and text.strip("─-╭╮╰╯ ") and not line.startswith("╭"):
            said.append(text)
    return " ".join(said) or box.strip()
