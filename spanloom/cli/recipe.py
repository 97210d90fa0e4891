"""What `RECIPE` on a command line stands for: a shipped recipe's name, a .py file or a run directory."""

import ast
import dataclasses
import importlib
import importlib.util
import inspect
import json
import re
import sys
import traceback
import typing
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spanloom import recipes
from spanloom.cli.errors import CommandError, UsageError
from spanloom.settings.kinds import parts
from spanloom.settings.nearest import did_you_mean
from spanloom.settings.published import Published
from spanloom.settings.run import Run
from spanloom.settings.run_layout import CHECKPOINTS, FACTS, RUN_FILE, STAGES_FILE
from spanloom.settings.serialize import SettingsError, from_json, to_json
from spanloom.settings.stages import linked


class RecipeError(CommandError):
    """A recipe file that fails; the message names the file and the line."""


@dataclass(frozen=True)
class Parameter:
    """One parameter of a recipe function, a flag of its own."""

    name: str
    hint: Any
    default: Any
    """`inspect.Parameter.empty` where it must be given."""
    help: str


@dataclass(frozen=True)
class Recipe:
    """A source of runs."""

    name: str
    """For the default output directory and in messages."""
    doc: str
    """What it is, for help."""
    parameters: tuple[Parameter, ...]
    """Typed flags of its own."""
    make: Callable[..., Run | tuple[Run, ...]]
    """The run of these parameters, or runs that follow one another (stages; never a tuple of one). Raises RecipeError
    with file and line, or SettingsError.
    """
    example: Callable[[], tuple[Run | tuple[Run, ...], dict[str, str]]] | None = None
    """For help, where no run can be made yet: a run with the recipe's defaults, and what decides the others."""
    published: Published | None = None
    """What others reached with it, for tables of `spanloom eval`."""
    source: Path | None = None
    """The recipe file, which is kept beside the run."""
    directory: Path | None = None
    """The run directory that it goes on with."""


def find(word: str) -> Recipe:
    """The recipe that a word on the command line stands for. Raises UsageError, naming the nearest recipe."""
    if not word:
        raise UsageError(
            "the recipe is empty: give a name that `spanloom recipes` lists, a .py file or a run directory"
        )
    shipped = recipes.shipped()
    name = word.replace("-", "_")
    path = Path(word)
    if path.is_dir():
        return _of_directory(path)
    if name in shipped:
        return _of_file(shipped[name], name)
    if word.endswith(".py"):
        if not path.is_file():
            raise UsageError(f"recipe {word}: no such file")
        return _of_file(path, path.stem)
    if path.name in (RUN_FILE, STAGES_FILE) and path.is_file():
        return _of_directory(path.parent)
    if path.is_file():
        raise UsageError(
            f"{word} is a file, but no recipe: that is a .py file. To train on text: spanloom pretrain --text {word}; "
            f"on pairs: spanloom finetune --data {word} --start CHECKPOINT. To judge a run by it: spanloom eval RUN "
            f"--task.source.heldout-files {word} --out NEW_DIR"
        )
    raise UsageError(
        f"unknown recipe {word!r}{did_you_mean(name, shipped)} "
        "(a recipe is a name that `spanloom recipes` lists, a .py file or a run directory)"
    )


def _of_directory(path: Path) -> Recipe:
    file = path / RUN_FILE
    if (path / STAGES_FILE).is_file():
        stages = read_stages(path)
        return Recipe(path.name, f"The stages in {path}, going on.", (), lambda: stages, directory=path)
    if not file.is_file():
        around = next((folder for folder in path.absolute().parents[:2] if _is_begun(folder)), None)
        if around is not None:
            raise UsageError(f"{path} is inside the run directory {around}: name that one to go on with it")
        raise UsageError(
            f"{path} is a directory without {RUN_FILE}, so not a run directory; a recipe is a name or a .py file"
        )
    run = read_run(path)
    return Recipe(run.name, f"The run in {path}, going on.", (), lambda: run, directory=path)


def _is_begun(path: Path) -> bool:
    return (path / RUN_FILE).is_file() or (path / STAGES_FILE).is_file()


def read_stages(directory: Path) -> tuple[Run, ...]:
    """The settings of the stages in a directory. Raises SettingsError with the file's name if they cannot be read."""
    file = directory / STAGES_FILE
    try:
        runs = tuple(from_json(one) for one in json.loads(file.read_text(encoding="utf-8"))["stages"])
        linked(runs, directory)
    except (ValueError, RecursionError, KeyError, TypeError, IndexError) as error:
        raise SettingsError(
            f"{file}: {error}. If the file is damaged, give the recipe again with --out {directory}, or go on with one "
            "stage, whose directory is a run of its own"
        ) from error
    return runs


def read_run(directory: Path) -> Run:
    """The settings that a run directory has. Raises SettingsError with the file's name if they cannot be read."""
    file = directory / RUN_FILE
    try:
        run = from_json(json.loads(file.read_text(encoding="utf-8")))
        assert isinstance(run, Run)
        run.resolve()  # refuses values that contradict, which a run that began never had
    except (ValueError, RecursionError) as error:
        copy = directory / CHECKPOINTS / "STEP" / FACTS
        raise SettingsError(
            f'{file}: {error}. If the file is damaged, put the object under "run" in {copy} in its place'
        ) from error
    return run


def _of_file(path: Path, name: str) -> Recipe:
    module = _load(path, name)
    function = getattr(module, "recipe", None)
    if not callable(function):
        raise RecipeError(f"{path}: no function named `recipe`; a recipe file defines `def recipe() -> Run:`")
    return Recipe(
        name=name,
        doc=_docstring(path) or inspect.cleandoc(function.__doc__ or ""),
        parameters=tuple(_parameters(path, function)),
        make=lambda **values: _call(path, function, values),
        example=getattr(module, "example", None) if _ships(path) else None,
        published=getattr(module, "PUBLISHED", None) if _ships(path) else None,
        source=path,
    )


def _load(path: Path, name: str) -> Any:
    if _ships(path):
        return importlib.import_module(f"spanloom.recipes.{name}")
    spec = importlib.util.spec_from_file_location(f"spanloom_recipe_{name}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses and get_type_hints look their module up
    # A recipe may import its neighbours. Last: a numbers.py among them must not take the place of Python's own.
    sys.path.append(str(path.resolve().parent))
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise _located(path, error) from error
    return module


def _ships(path: Path) -> bool:
    return path.parent == Path(recipes.__file__).parent


def _docstring(path: Path) -> str:
    """The docstring of a file as it stands there: from Python 3.13 on, `__doc__` may have lost its indentation."""
    return (ast.get_docstring(ast.parse(path.read_bytes()), clean=False) or "").strip()


def _parameters(path: Path, function: Callable[..., Any]) -> typing.Iterator[Parameter]:
    try:
        hints = typing.get_type_hints(function)
    except Exception as error:
        raise _located(path, error, function) from error
    helps = _argument_help(inspect.cleandoc(function.__doc__ or ""))
    for p in inspect.signature(function).parameters.values():
        if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD):
            raise RecipeError(f"{path}: recipe(*{p.name}) cannot be flags; name the parameters one by one")
        if p.name not in hints:
            raise RecipeError(
                f"{path}:{_first_line(function)}: parameter {p.name!r} of recipe() has no type; "
                f"a flag needs one, such as `{p.name}: int = 3`"
            )
        yield Parameter(p.name, hints[p.name], p.default, helps.get(p.name, ""))


def _argument_help(doc: str) -> dict[str, str]:
    """`name: what it is` lines under `Args:`; longer ones are continued with deeper indentation."""
    found: dict[str, str] = {}
    body = doc.partition("Args:\n")[2].lstrip("\n")
    indentation = body[: len(body) - len(body.lstrip(" "))]
    name = ""
    for line in body.splitlines():
        if line.strip() and not line.startswith(" "):
            break
        match = re.match(rf"{indentation}(\w+): (.*)$", line)
        if match:
            name = match[1]
            found[name] = match[2]
        elif name and line.strip():
            found[name] += " " + line.strip()
    return found


def _call(path: Path, function: Callable[..., Any], values: dict[str, Any]) -> Run | tuple[Run, ...]:
    try:
        made = function(**values)
    except SettingsError:
        raise
    except ValueError as error:
        if _ships(path):
            if type(error) is not ValueError:
                raise  # what a parameter names is damaged: not a matter of the command line
            raise UsageError(str(error)) from error  # it can only be a parameter's value
        raise _located(path, error, function) from error
    except (Exception, SystemExit) as error:
        raise _located(path, error, function) from error
    where = f"{path}:{_first_line(function)}"
    if not isinstance(made, list | tuple):
        return _checked(made, where)
    if not made:
        raise RecipeError(f"{where}: recipe() returned no run, and must return a spanloom Run, or a list of them")
    runs = tuple(_checked(run, where) for run in made)
    return runs if len(runs) > 1 else runs[0]


def _checked(run: Any, where: str) -> Run:
    """A run that a recipe made, its values of the types that they should have."""
    if not isinstance(run, Run):
        kind = type(run).__name__
        raise RecipeError(f"{where}: recipe() returned {kind}, and must return a spanloom Run, or a list of them")
    try:
        checked = from_json(to_json(run))  # dataclasses check no types; lists become tuples
    except SettingsError as error:
        raise RecipeError(f"{where}: recipe() returned a Run with a value of the wrong type: {error}") from None
    assert isinstance(checked, Run)
    return checked


def _first_line(function: Callable[..., Any]) -> int:
    """The line on which a function begins; 1 for callables that are none, such as classes."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    return 1 if code is None else int(code.co_firstlineno)


def _located(path: Path, error: BaseException, function: Callable[..., Any] | None = None) -> RecipeError:
    """The error as one message that begins with the line of the recipe file it came from."""
    line = _first_line(function) if function else 1
    if isinstance(error, SyntaxError) and error.filename and Path(error.filename).name == path.name:
        return RecipeError(f"{path}:{error.lineno or 1}: {error.msg}: {(error.text or '').strip()}")
    code = ""
    for frame in traceback.extract_tb(error.__traceback__):
        if frame.filename == str(path) or Path(frame.filename).resolve() == path.resolve():
            line, code = frame.lineno or line, frame.line or ""
    message = str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
    return RecipeError(f"{path}:{line}: {message}{_unexpected_field(error)}" + (f"\n    {code}" if code else ""))


def _unexpected_field(error: BaseException) -> str:
    """The nearest field where a settings class was given one that it does not have."""
    match = re.match(r"(\w+)\.__init__\(\) got an unexpected keyword argument '(\w+)'", str(error))
    classes = {Run.__name__: Run, **{c.__name__: c for part in parts() for c in part.kinds.values()}}
    if not isinstance(error, TypeError) or not match or match[1] not in classes:
        return ""
    return did_you_mean(match[2], [f.name for f in dataclasses.fields(classes[match[1]])])
