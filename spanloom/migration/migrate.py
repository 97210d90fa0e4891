"""From gin files, and the SeqIO module of their tasks, to a recipe."""

import re
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from spanloom.migration.draft import Draft, MigrationError, TaskFinder
from spanloom.migration.fates import Bindings, Note, shown
from spanloom.migration.gin_config import GinConfig, read_gin
from spanloom.migration.mesh_run import is_mesh, mesh_draft
from spanloom.migration.recipe_text import recipe_text
from spanloom.migration.t5_tasks import find_without_module
from spanloom.migration.t5x_run import is_t5x, t5x_draft

_LIBRARIES = {
    "__gin__",
    "__main__",
    "seqio",
    "t5",
    "t5x",
    "mesh_tensorflow",
    "tensorflow",
    "jax",
    "flax",
    "optax",
    "clu",
}
"""Modules whose part is taken by Spanloom's own."""
_ODD = (TypeError, ValueError, OverflowError, AttributeError, ZeroDivisionError)
"""What reading a value raises that is of another kind."""


@dataclass(frozen=True)
class Migrated:
    """A recipe, and what there is to say of it."""

    text: str
    draft: Draft

    @property
    def notes(self) -> tuple[Note, ...]:
        """What became of every line."""
        return self.draft.notes


def migrate(
    files: Sequence[str],
    overrides: Sequence[tuple[str, str]] = (),
    *,
    search: Sequence[str | Path] = (),
    modules: Sequence[str] = (),
    prompts: Sequence[str] = (),
    path: str = "recipe.py",
) -> Migrated:
    """The recipe of a T5X or Mesh TensorFlow configuration, to be written to `path`.

    `modules` are SeqIO task modules, `prompts` folders of promptsource's templates that they use. Raises GinError for
    files that are no gin, MigrationError for runs that Spanloom cannot have.
    """
    config = read_gin(files, overrides, search)
    found = Bindings(config)
    finder = _finder(modules, prompts)
    name = re.sub(r"[^\w.-]+", "_", Path(path).stem).lstrip(".") or "migrated"
    if not is_t5x(found) and not is_mesh(found):
        raise MigrationError(
            f"{', '.join(files)}: neither T5X's train, infer or eval is configured here, nor Mesh TensorFlow's run. A "
            "file of a model alone goes with one of a run: spanloom migrate "
            f"{files[0]} t5x/configs/runs/pretrain.gin"
        )
    draft = _draft(found, name, finder)
    draft = replace(draft, notes=(*_of_includes(config), *_of_imports(config, modules), *draft.notes))
    return Migrated(recipe_text(draft, files, path), draft)


def _draft(found: Bindings, name: str, finder: TaskFinder) -> Draft:
    """What the bindings say. Raises MigrationError, with its line, for a value that is not what its reader expects."""
    try:
        return t5x_draft(found, name, finder) if is_t5x(found) else mesh_draft(found, name, finder)
    except _ODD as error:
        reader = Path(traceback.extract_tb(error.__traceback__)[-1].filename).name
        if type(error) not in _ODD or found.last is None or not reader.startswith(("t5x_", "mesh_")):
            raise
        raise MigrationError(
            f"{found.last.place}: {shown(found.last)}: a value here, or of a line that goes with it, is of a wrong "
            f"kind ({error})"
        ) from error


def _finder(modules: Sequence[str], prompts: Sequence[str]) -> TaskFinder:
    if not modules:
        return find_without_module
    from spanloom.migration.seqio_tasks import finder_of

    return finder_of(modules, prompts)


def _of_imports(config: GinConfig, modules: Sequence[str]) -> list[Note]:
    """Modules of the user's own that the files import."""
    given = {one for module in modules for one in Path(module).with_suffix("").parts}
    found = []
    for one in config.imports:
        words = (
            one.text.replace(" import ", ".").removeprefix("import ").removeprefix("from ").split(" as ")[0].split(".")
        )
        if words[0] in _LIBRARIES:
            continue
        if {words[0], words[-1]} & given:
            found.append(Note("needless", str(one.place), one.text, "given as --module"))
        else:
            why = f"imports are not carried out; if it registers the run's tasks: --module {words[-1]}.py"
            found.append(Note("lost", str(one.place), one.text, why))
    return found


def _of_includes(config: GinConfig) -> list[Note]:
    """Includes that are not there: T5X's own, which are known, and others, of which nothing is."""
    known = [
        Note(
            "changed",
            str(one.place),
            f"include {one.file!r}",
            "not there: what T5X has in it (cc342d4) is taken, as known:...",
        )
        for one in config.known
    ]
    why = "no such file: what it sets is missing (name its folder with --gin-search-paths)"
    return known + [Note("lost", str(one.place), f"include {one.file!r}", why) for one in config.missing]
