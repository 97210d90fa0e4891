"""Flags of a recipe: its own parameters, the kinds of its parts, and every field of its run, typed, by dotted name.

Overrides are applied in this order, whatever their order on the command line: the recipe's parameters make the run;
then `--model NAME`, `--optimizer KIND` and the like choose sizes and kinds; then single fields are set. Derived values
come after all of that, in `Run.resolve`.
"""

import dataclasses
import inspect
import os
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Generic, Literal, TypeVar

from spanloom.cli.errors import UsageError
from spanloom.cli.help import Entry, Group, entries_of, groups_of_run, render, shown, unknown_default
from spanloom.cli.parsing import hints_of_run, refuse_unknown, with_tyro
from spanloom.cli.recipe import Parameter, Recipe
from spanloom.cli.stage_flags import PLACES, by_number, described, differing, split_stages
from spanloom.cli.tokens import Flag, merge_repeated, split
from spanloom.model.sizes import named, sizes_in_short
from spanloom.scale.processes import Processes
from spanloom.settings.kinds import all_fields, get, holds_settings, kind_name, parts, put
from spanloom.settings.mixture import Mixture
from spanloom.settings.model import HOW_COMPUTED
from spanloom.settings.nearest import did_you_mean
from spanloom.settings.run import Run

Options = TypeVar("Options")


@dataclass(frozen=True)
class Resuming:
    """Ways on when --out holds a run whose settings differ."""

    accept_change: tuple[str, ...] = ()
    """Settings that may change from here on although they decide the result, by dotted name."""
    fork: str | None = None
    """New directory that goes on from the last checkpoint of --out; the old one stays as it is."""
    processes: int = 1
    """Processes, one a host, that train this run together; each is started with this very command and another
    --process."""
    process: int = 0
    """Which of them this is, from 0; the first one writes and speaks."""
    coordinator: str | None = None
    """HOST:PORT of process 0, the same everywhere; the next port is used as well."""
    connect_timeout: float = 120.0
    """Seconds to wait until all are there."""
    debug: bool = False
    """Show the whole traceback when something fails (or set SPANLOOM_DEBUG=1)."""

    @property
    def accepted(self) -> tuple[str, ...]:
        """The names in accept_change, which may also be joined by commas."""
        return tuple(part for name in self.accept_change for part in name.split(",") if part)

    @property
    def together(self) -> Processes | None:
        """The processes that train together; None for one alone. Raises UsageError where they make no sense."""
        if self.processes == 1 and self.process == 0:
            return None
        if self.processes < 1 or self.connect_timeout <= 0:
            raise UsageError("--processes must be at least 1, and --connect-timeout above 0")
        if not 0 <= self.process < self.processes:
            last = self.processes - 1
            raise UsageError(f"--process is {self.process}: with --processes {self.processes} it is 0 to {last}")
        if self.coordinator is None:
            raise UsageError("--processes needs --coordinator HOST:PORT, where process 0 can be reached by all")
        return Processes(self.coordinator, self.processes, self.process, self.connect_timeout)


@dataclass(frozen=True)
class Command(Generic[Options]):
    """What a command line asks for."""

    recipe: Recipe
    runs: tuple[Run, ...]
    """With overrides, not resolved; several are stages."""
    options: Options
    """What the command takes beside the recipe's flags."""
    asked: frozenset[str] = frozenset()
    """Dotted names of the flags that were given."""

    @property
    def run(self) -> Run:
        """The run, the first of stages."""
        return self.runs[0]


def parse(
    recipe: Recipe, argv: Sequence[str], prog: str, options: type[Options], usage: str | None = None
) -> Command[Options]:
    """The run that a recipe and its flags ask for, and the command's own `options`, a dataclass with defaults.

    `--help` prints, `usage` first, and raises SystemExit(0).
    Raises UsageError on unknown flags, naming the nearest, and on values of the wrong type.
    """
    words, flags = split(argv)
    if words:
        first = next((p.name for p in recipe.parameters if p.name in ("text", "data")), "")
        meant = f" (--{first} {words[0]}?)" if first and os.path.exists(words[0]) else ""
        raise UsageError(f"{words[0]!r} is left over; flags begin with --{meant}")
    wants_help = any(flag.name == "help" for flag in flags)
    flags, of_stages = split_stages(flag for flag in flags if flag.name != "help")
    own = {p.name: p for p in recipe.parameters}
    others = [name for name in _names(options) if name not in own]  # a recipe's own parameters come first
    kinds = _kind_flags(own)
    everywhere = [*flags, *(flag for told in of_stages.values() for flag in told)]
    _refuse_unknown(everywhere, own, [*own, *kinds, *others], prog, recipe.directory is not None)
    hints = typing.get_type_hints(options)
    lists = [name for name in others if _is_list(hints[name])]
    flags = merge_repeated(flags, [*_list_fields(), *lists, *(p.name for p in own.values() if _is_list(p.hint))])

    unknown: Mapping[str, str] = {}
    try:
        values = _parse_parameters(own.values(), flags, prog, lenient=wants_help)
        made = recipe.make(**values)
    except Exception:
        if not wants_help:
            raise
        made, unknown = recipe.example() if recipe.example else _stand_in()
    runs = made if isinstance(made, tuple) else (made,)
    if wants_help:
        usage = usage or f"{prog} [--out DIR] [--steps N] [flags]"
        print(_help(recipe, runs, flags, kinds, entries_of(options()), usage, {**differing(runs), **unknown}))
        raise SystemExit(0)
    fields = [flag for flag in flags if flag.name not in others]
    if len(runs) == 1:
        _refuse_replaced(recipe, values, runs[0], [flag for flag in flags if flag.name in kinds], fields, own)
    parsed = _parsed(runs, fields, by_number(of_stages, runs), own, prog)
    chosen: Options = with_tyro(options, options(), [flag for flag in flags if flag.name in others], prog)
    return Command(recipe, parsed, chosen, frozenset(flag.name for flag in flags))


def _parsed(
    runs: tuple[Run, ...], flags: list[Flag], of_stages: Mapping[int, list[Flag]], own: Iterable[str], prog: str
) -> tuple[Run, ...]:
    """The runs with flags that hold for all, and with those of each, applied."""
    if len(runs) == 1:
        return (_with_flags(runs[0], flags, set(own) - _plain_fields(), own, prog),)
    flags, parsed = [flag for flag in flags if flag.name not in own], []
    for number, run in enumerate(runs, 1):
        common = [flag for flag in flags if number == 1 or flag.name not in PLACES]
        told = merge_repeated([*common, *of_stages.get(number, ())], [])
        try:
            parsed.append(_with_flags(run, told, set(), own, prog))
        except UsageError as error:
            raise UsageError(f"stage {number}, {run.name!r}: {error}") from None
    return tuple(parsed)


def _with_flags(run: Run, flags: list[Flag], consumed: set[str], own: Iterable[str], prog: str) -> Run:
    """A run with flags applied, but for those of the recipe that are `consumed`: kinds first, then single fields."""
    kinds = _kinds_of(run, _kind_flags(own))
    run = _apply_kinds(run, [flag for flag in flags if flag.name in kinds])
    run, flags = _apply_to_mixture(run, flags, prog)
    rest = [flag for flag in flags if flag.name not in consumed and flag.name not in kinds]
    _refuse_other_kinds(run, rest)
    parsed: Run = with_tyro(Run, _without_lists(run), rest, prog)
    task = run.task if isinstance(run.task, Mixture) else parsed.task
    return replace(parsed, task=task, eval=replace(parsed.eval, also=run.eval.also))


# Kinds and sizes.


def _kinds_of(run: Run, kinds: dict[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    """The flags of `kinds` that a run takes: a mixture takes none of a task's."""
    mixed = isinstance(run.task, Mixture)
    return {path: choices for path, choices in kinds.items() if not (mixed and path.startswith("task."))}


def _kind_flags(own: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Flags that choose a kind, with their choices (none listed for --model, whose choices are many)."""
    kinds = {part.path: tuple(part.kinds) for part in parts() if len(part.kinds) > 1 and part.path != "task"}
    return {path: choices for path, choices in {"model": (), **kinds}.items() if path not in own}


def _apply_kinds(run: Run, flags: Iterable[Flag]) -> Run:
    available = {part.path: part.kinds for part in parts()}
    for flag in sorted(flags, key=lambda flag: flag.name.count(".")):
        if len(flag.values) != 1:
            raise UsageError(f"{flag.typed} takes one name, not {len(flag.values)}")
        if flag.name == "model":
            run = replace(run, model=_named_model(flag.values[0], run))
            continue
        kind = flag.values[0].replace("_", "-").lower()
        kinds = available[flag.name]
        if kind not in kinds:
            raise UsageError(f"{flag.typed} {flag.values[0]}: no such kind{did_you_mean(kind, kinds)}")
        old = get(run, flag.name)
        if not isinstance(old, kinds[kind]):
            run = put(run, flag.name, replace(_blank(kinds[kind]), **_shared(old, kinds[kind])))
    return run


def _shared(old: Any, kind: type) -> dict[str, Any]:
    """Values of the fields that both kinds inherit from one class, and which so mean the same in both."""
    bases = [base for base in type(old).__mro__ if base in kind.__mro__ and dataclasses.is_dataclass(base)]
    return {name: getattr(old, name) for base in bases for name in _names(base)}


def _named_model(name: str, run: Run) -> Any:
    """A published size; how it is computed (dropout, dtype, remat and so on) stays as the recipe has it."""
    computed = {field: getattr(run.model, field) for field in HOW_COMPUTED}
    try:
        return named(name, **computed)
    except ValueError as error:
        raise UsageError(f"--model {name}: {error}") from None


def _blank(cls: type) -> Any:
    """An instance with defaults; what has none must be given as a flag."""
    import tyro

    missing = {f.name: tyro.MISSING for f in dataclasses.fields(cls) if f.default is f.default_factory}
    return cls(**missing)


# Mixtures. Their tasks are long lists, which flags could not say.


def _without_lists(run: Run) -> Run:
    """The run with one task in the place of many. Raises UsageError where there is none."""
    if not run.tasks:
        raise UsageError(f"mixture {run.task.name!r} has no task in it: give it parts, Weighted(task, rate)")
    return replace(run, task=run.tasks[0], eval=replace(run.eval, also=()))


def _apply_to_mixture(run: Run, flags: list[Flag], prog: str) -> tuple[Run, list[Flag]]:
    """Sets the fields of a mixture itself; the flags that are left. Refuses those that would be a task's."""
    if not isinstance(run.task, Mixture):
        return run, flags
    own = [flag for flag in flags if flag.name.startswith("task.")]
    plain = [f for f in dataclasses.fields(Mixture) if f.name != "parts"]
    for flag in own:
        if flag.name.removeprefix("task.") not in {f.name for f in plain}:
            raise UsageError(
                f"{flag.typed}: this run mixes {len(run.tasks)} tasks, whose settings stand in its recipe; flags set "
                + " and ".join(f"--task.{f.name}" for f in plain)
            )
    fields = [(f.name, f.type, _always(getattr(run.task, f.name))) for f in plain]
    cls = dataclasses.make_dataclass("Mixed", fields, frozen=True, namespace={"__doc__": "Fields of a mixture."})
    told = [replace(flag, name=flag.name.removeprefix("task.")) for flag in own]
    values = dataclasses.asdict(with_tyro(cls, cls(), told, prog))
    return replace(run, task=replace(run.task, **values)), [flag for flag in flags if flag not in own]


# Unknown names.


def _refuse_unknown(flags: list[Flag], own: Iterable[str], named: list[str], prog: str, begun: bool) -> None:
    """Refuse what no flag can say; `named` are those that are no field of a run."""
    _refuse_code(flags, own)
    refuse_unknown(flags, [*named, *all_fields()], prog, begun)
    _refuse_groups(flags, named)


def _refuse_groups(flags: Iterable[Flag], others: Iterable[str]) -> None:
    """Refuse a part of the run where one of its fields is meant."""
    groups = {part.path for part in parts()} - set(others)
    for flag in flags:
        if flag.name in groups:
            inside = [name for name in all_fields() if name.startswith(f"{flag.name}.") and name not in groups]
            names = ", ".join("--" + name.replace("_", "-") for name in inside[:4])
            raise UsageError(
                f"{flag.typed} is a group of settings: name one of them ({names}{', ...' if inside[4:] else ''})"
            )


def _refuse_code(flags: Iterable[Flag], own: Iterable[str]) -> None:
    """Refuse what stands in recipes alone."""
    hints = {} if not flags else hints_of_run()
    for flag in flags:
        if flag.name not in own and holds_settings(hints.get(flag.name)):
            raise UsageError(f"{flag.typed}: no flag can say what this holds (code, rows or settings): write a recipe")


def _refuse_other_kinds(run: Run, flags: Iterable[Flag]) -> None:
    """Refuse a field that exists, but not in the kind of part that this run has."""
    owners = all_fields()
    for flag in flags:
        path, _, last = flag.name.rpartition(".")
        if not path or flag.name not in owners or last in _names(type(get(run, path))):
            continue
        here = kind_name(type(get(run, path)))
        ways = " or ".join("--" + kind for kind in owners[flag.name])
        near = did_you_mean(last, _names(type(get(run, path)))) if not ways else ""
        raise UsageError(f"{flag.typed}: {path} is {here} here, which has no {last}; it belongs to {ways}{near}")


def _refuse_replaced(
    recipe: Recipe, values: dict[str, Any], made: Run, kinds: Sequence[Flag], flags: Iterable[Flag], own: Iterable[str]
) -> None:
    """Refuse a parameter of the recipe that sets only fields of a part that another kind has taken the place of."""
    kinds = [flag for flag in kinds if flag.name in _kinds_of(made, _kind_flags(own))]
    run = _apply_kinds(made, kinds)
    for flag in flags if kinds else ():
        if flag.name not in own:
            continue
        try:
            without = recipe.make(**{name: value for name, value in values.items() if name != flag.name})
        except Exception:  # a recipe may fail in any way without what must be given; then it is more than those fields
            continue
        if isinstance(without, Run) and without != made and _apply_kinds(without, kinds) == run:
            chosen = " ".join(word for kind in kinds for word in (kind.typed, *kind.values))
            raise UsageError(
                f"{flag.typed} says nothing with {chosen}: it is for the kind that this takes the place of; "
                f"`--help` lists the fields of {chosen}"
            )


def _names(cls: type) -> tuple[str, ...]:
    return tuple(f.name for f in dataclasses.fields(cls))


def _plain_fields() -> set[str]:
    """Fields of a run that are no parts; a recipe's parameter of that name and the field get the same value."""
    return set(_names(Run)) - {part.path for part in parts()}


def _list_fields() -> list[str]:
    return [name for name, hint in hints_of_run().items() if _is_list(hint)]


def _is_list(hint: Any) -> bool:
    return typing.get_origin(hint) in (tuple, list)


# Parsing with tyro.


def _parse_parameters(own: Iterable[Parameter], flags: Iterable[Flag], prog: str, lenient: bool) -> dict[str, Any]:
    own = list(own)
    given = [flag for flag in flags if flag.name in {p.name for p in own}]
    if lenient and not given:
        return {}
    parsed = with_tyro(_parameters_class(own), None, given, prog)
    return {p.name: getattr(parsed, p.name) for p in own}


def _parameters_class(own: Iterable[Parameter]) -> type:
    """The recipe's parameters as a dataclass, whose fields tyro makes flags of."""
    import tyro

    required, optional = [], []
    for p in own:
        hint = Annotated[p.hint, tyro.conf.arg(help=p.help)] if p.help else p.hint
        if p.default is inspect.Parameter.empty:
            required.append((p.name, hint))
        else:
            optional.append((p.name, hint, _always(p.default)))
    name, doc = "Parameters", "Parameters of this recipe."
    return dataclasses.make_dataclass(name, [*required, *optional], namespace={"__doc__": doc}, frozen=True)


# Help.

_STAGE = (Entry("stage.N.FLAG", str, "That flag of stage N alone.", "as all have it"),)


def _help(
    recipe: Recipe,
    runs: tuple[Run, ...],
    flags: list[Flag],
    kinds: dict[str, tuple[str, ...]],
    others: tuple[Entry, ...],
    usage: str,
    unknown: Mapping[str, str],
) -> str:
    """A recipe's own flags come first: they are what must be given."""
    own = tuple(Entry(p.name, p.hint, p.help, shown(p.default)) for p in recipe.parameters)
    kinds = _kinds_of(runs[0], kinds)
    run = _filled(_apply_kinds(runs[0], [flag for flag in flags if flag.name in kinds]))
    groups = groups_of_run(run, left_out={p.name for p in recipe.parameters}, unknown=unknown)
    return render(
        usage,
        recipe.doc,
        [
            Group("flags of this recipe", "", own),
            *([Group("stages", described(runs), _STAGE)] if len(runs) > 1 else ()),
            groups[0],
            Group("kinds and sizes", "", tuple(_kind_entries(run, kinds, unknown))),
            Group("flags of this command", "", others),
            *groups[1:],
        ],
    )


def _kind_entries(run: Run, kinds: dict[str, tuple[str, ...]], unknown: Mapping[str, str]) -> Iterator[Entry]:
    for path, choices in kinds.items():
        if path == "model":
            text = f"A published size: {sizes_in_short()}. Its fields are under --model."
            yield Entry(path, str, text, unknown_default("model.name", unknown) or shown(run.model.name))
        else:
            text = f"Kind of {path.rpartition('.')[2]}; its fields are under --{path}."
            default = unknown_default(path, unknown) or kind_name(type(get(run, path)))
            yield Entry(path, Literal.__getitem__(choices), text, default)


def _filled(settings: Any) -> Any:
    """The settings with `inspect.Parameter.empty` for what must still be given."""
    import tyro

    if dataclasses.is_dataclass(settings) and not isinstance(settings, type):
        names = _names(type(settings))
        return replace(settings, **{name: _filled(getattr(settings, name)) for name in names})
    return inspect.Parameter.empty if settings is tyro.MISSING else settings


def _always(value: Any) -> Any:
    """A dataclass field with this default, mutable or not."""
    return dataclasses.field(default_factory=lambda: value)


def _stand_in() -> tuple[Run, dict[str, str]]:
    """A run to list fields of, where the recipe makes none before its parameters are given, so no default is known."""
    from spanloom.settings.objectives import Supervised
    from spanloom.settings.task import PairFiles, Task

    run = Run(name="run", task=Task("task", PairFiles(), objective=Supervised()), model=named("byt5_small"))
    return run, dict.fromkeys(_names(Run), "the recipe's")
