"""`spanloom migrate run.gin`: a T5X or Mesh TensorFlow configuration, and its SeqIO tasks, as a recipe."""

import re
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from spanloom.cli.errors import CommandError, UsageError
from spanloom.cli.parsing import options
from spanloom.pipeline.interrupts import ended_by_sigterm

if TYPE_CHECKING:
    from spanloom.migration.fates import Note

ABOUT = """A T5X or Mesh TensorFlow configuration as a recipe that train, plan, show, cache and eval take.

GIN are gin files, one after the other; --gin.NAME=VALUE sets what follows them, as T5X's own command line has it
(--gin_file and --gin_search_paths are understood, too). T5X need not be installed: imports are not carried out, and
what T5X's own files hold (t5x/configs/runs, t5x/examples/t5) is known where they are not there. --module is the Python
file that registers the run's SeqIO tasks: it is imported with stand-ins for seqio, t5 and TensorFlow, which need not
be installed either. What it registers becomes tasks in the recipe.

Every line of the input is in the recipe, or listed: what could not be carried over on stderr, with file, line and
reason, and what became of each of the others at the end of the recipe.

    spanloom migrate small_c4_pretrain.gin --gin.TRAIN_STEPS=1000 --out c4.py
    spanloom migrate ro_t5x_base.gin --module ro_t5x_base_tasks.py --gin-search-paths t5x_models --out ro.py
    spanloom migrate operative_config.gin --module tasks.py --out hmbyt5.py
"""
_USAGE = "GIN [GIN ...] [--gin.NAME=VALUE ...] [--module tasks.py] [--out recipe.py]"
_OVERRIDE = re.compile(r"--gin\.(?P<name>[^=\s]+)(?:=(?P<value>.*))?", re.DOTALL)


def main(argv: Sequence[str]) -> int:
    """Run the command; the exit code."""
    from tyro.conf import Positional, arg

    @dataclass(frozen=True)
    class Options:
        gin: Annotated[Positional[str], arg(metavar="GIN")]
        """The first gin file."""
        gin_file: tuple[str, ...] = ()
        """Further gin files, read after those before them."""
        gin_search_paths: tuple[str, ...] = ()
        """Folders in which included files are looked for, beside those of the files themselves and all above these."""
        module: tuple[str, ...] = ()
        """Python files that register the SeqIO tasks of the run."""
        prompts: tuple[str, ...] = ()
        """Folders of promptsource's templates, for modules that use promptsource."""
        out: str = "recipe.py"
        """Recipe to write."""
        overwrite: bool = False
        """Write over a file that is there."""

    words, overrides = _overrides(argv)
    chosen = options(Options, words, "spanloom migrate", _USAGE, ABOUT, rest="gin_file")
    named = [one for word in (chosen.gin, *chosen.gin_file) for one in word.split(",")]
    place = _place(chosen.out, chosen.overwrite)
    from spanloom.migration.migrate import migrate
    from spanloom.pipeline.durable import write_file

    search = [one for word in chosen.gin_search_paths for one in word.split(",")]
    made = migrate(named, overrides, search=search, modules=chosen.module, prompts=chosen.prompts, path=chosen.out)
    problem = _check(made.text, place.name)
    write_file(place, lambda file: file.write(made.text.encode()))
    _say(made.notes, place)
    if problem:
        print(f"{place}: to be mended before it runs: {problem}", file=sys.stderr)
    return 0


def _overrides(argv: Sequence[str]) -> tuple[list[str], list[tuple[str, str]]]:
    """The words without --gin.NAME=VALUE (or --gin_bindings=NAME=VALUE), and these; files of --gin_file as words."""
    words: list[str] = []
    found: list[tuple[str, str]] = []
    files: list[str] = []
    rest = iter(argv)
    for word in rest:
        if match := re.fullmatch(r"--gin[_-]bindings?(?:=(.*))?", word, re.DOTALL):
            name, _, value = (match[1] if match[1] is not None else next(rest, "")).partition("=")
            found.append((name.strip(), value.strip()))
        elif match := _OVERRIDE.fullmatch(word):
            value = match["value"] if match["value"] is not None else next(rest, "")
            found.append((match["name"], value))
        elif match := re.fullmatch(r"--gin[_-]file(?:=(.*))?", word):
            files.append(match[1] if match[1] is not None else next(rest, ""))
        else:
            words.append(word)
    for name, value in found:
        if not name or not value.strip():
            raise UsageError(f"--gin.{name}={value}: must be --gin.NAME=VALUE, such as --gin.TRAIN_STEPS=1000")
    return [*files, *words], found


def _place(name: str, overwrite: bool) -> Path:
    """The file to write. Raises what is wrong with it now, not after the work is done."""
    path = Path(name).expanduser()
    if path.suffix != ".py":
        raise UsageError(f"--out {name}: a recipe is a .py file")
    if path.is_dir() or (path.exists() and not path.is_file()):
        raise CommandError(f"--out {name} is no file: name one, such as {path / 'recipe.py'}")
    if path.exists() and not overwrite:
        raise CommandError(f"--out {name} is there already: name another file, or give --overwrite")
    if not path.parent.is_dir():
        raise CommandError(f"--out {name}: there is no folder {path.parent}; make it, or name another file")
    return path


def _check(text: str, name: str) -> str:
    """What keeps the recipe from running, empty if nothing does. It must be one before it is written: raises
    RecipeError with its line where it is not.
    """
    from spanloom.cli.recipe import RecipeError, find
    from spanloom.settings.run import Run
    from spanloom.settings.serialize import SettingsError

    with ended_by_sigterm(), tempfile.TemporaryDirectory(prefix="spanloom-") as folder:
        path = Path(folder) / name
        path.write_text(text, encoding="utf-8")
        try:
            recipe = find(str(path))
            run = recipe.make(**{one.name: one.default or ("files",) for one in recipe.parameters})
        except RecipeError as error:
            raise RecipeError(f"the recipe would not run: {str(error).replace(str(path), name)}") from error
    assert isinstance(run, Run)
    try:
        run.resolve()
    except SettingsError as error:
        return str(error)
    return ""


def _say(notes: "Sequence[Note]", place: Path) -> None:
    """What could not be carried over on stderr, the rest as numbers."""
    counts = {
        kind: sum(note.kind == kind for note in notes) for kind in ("carried", "changed", "needless", "overridden")
    }
    lost = [note for note in notes if note.kind == "lost"]
    if lost:
        print("not carried over:", file=sys.stderr)
    for note in lost:
        print(f"  {note.place}{': ' if note.place else ''}{note.what}\n      {note.why}", file=sys.stderr)
    print(
        f"{place}: a recipe. {counts['carried']} lines carried over, {counts['changed']} as something else, "
        f"{counts['needless']} need nothing here, {counts['overridden']} set again by later ones, {len(lost)} not "
        f"carried over; the end of the file says what became of each. Next: spanloom plan {place}"
    )
