"""Imports a SeqIO task module where neither SeqIO nor TensorFlow is: with stand-ins that are there for it alone, and
gone once it is imported.
"""

import contextlib
import importlib
import importlib.abc
import importlib.machinery
import os
import sys
import types
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from spanloom.migration.draft import MigrationError
from spanloom.migration.hub_shape import HubLog
from spanloom.migration.prompt_shape import prompt_names
from spanloom.migration.seqio_shape import RegisteredMixture, RegisteredTask, Registry, known_names
from spanloom.migration.stand_ins import StandInModule, caller

LIBRARIES = {
    "seqio", "t5", "tensorflow", "tensorflow_datasets", "tensorflow_text", "tensorflow_probability", "t5x", "gin",
    "mesh_tensorflow", "datasets", "promptsource", "byt5", "multilingual_t5", "clu", "airio", "flaxformer",
}  # fmt: skip
"""Top-level modules that are always stood in for."""
_OWN = str(Path(__file__).resolve().parent)


@dataclass(frozen=True)
class Registered:
    """What modules have registered."""

    found: Mapping[str, RegisteredTask | RegisteredMixture]
    absent: tuple[str, ...] = ()
    """Modules that were imported and are not installed."""
    hub: HubLog = field(default_factory=HubLog)


def import_modules(files: Sequence[str], prompts: Sequence[str] = ()) -> Registered:
    """Import task modules and return what they registered. `prompts`: folders of promptsource's templates.

    A file of a package is imported as a part of it. Raises MigrationError, with file and line, where one fails.
    """
    paths = [_path(file) for file in files]
    roots = [_root(path) for path in paths]
    window = _Window(roots)
    hub = HubLog()
    registry = Registry(lambda: caller(window.is_users))
    window.known |= known_names(registry) | hub.known_names() | prompt_names(prompts)
    with window.open():
        for path, root in zip(paths, roots, strict=True):
            name = ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")
            _import(name, path, window)
    return Registered(registry.found, tuple(dict.fromkeys(window.absent)), hub)


def _path(file: str) -> Path:
    """The file of a module, given by its path or by its dotted name."""
    path = Path(file).expanduser()
    dotted = Path(*file.split(".")).with_suffix(".py")
    found = next((one for one in (path, path / "__init__.py", dotted) if one.is_file()), None)
    if found is None or found.suffix != ".py":
        raise MigrationError(f"--module {file}: no such file; name the .py file that registers the tasks")
    return found.resolve()


def _root(path: Path) -> Path:
    """The folder that is to be on sys.path: the first one above that is no package."""
    folder = path.parent
    while (folder / "__init__.py").is_file():
        folder = folder.parent
    return folder


def _import(name: str, path: Path, window: "_Window") -> None:
    try:
        importlib.import_module(name)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        place, code = window.place_in(error) or (str(path), "")
        said = f"{type(error).__name__}: {error}"
        raise MigrationError(
            f"{place}: {said}{f' ({code})' if code else ''}. The module was imported with stand-ins for seqio, t5, "
            "TensorFlow and what is not installed; what asks these for values must be left out or moved into a function"
        ) from None


class _Window(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Stand-ins that the user's files alone can import."""

    def __init__(self, roots: Sequence[Path]):
        self.roots = tuple(f"{root}/" for root in roots)
        self.known: dict[str, Any] = {}
        self.absent: list[str] = []

    def is_users(self, file: str) -> bool:
        """Whether a file is the user's."""
        return file.startswith(self.roots) and not file.startswith(_OWN) and "site-packages" not in file

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """A stand-in for a library, and for what is not there, where a file of the user's asks for it."""
        top = fullname.partition(".")[0]
        if not self._asked_by_user() or self._own(top):
            return None
        if top not in LIBRARIES:
            if self._installed(fullname, path):
                return None
            self.absent.append(top)
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        """The stand-in."""
        return StandInModule(spec.name, self.known)

    def exec_module(self, module: types.ModuleType) -> None:
        """Nothing is in it."""

    def _own(self, top: str) -> bool:
        """Whether a name is that of a file or folder of the user's, which comes before any library."""
        return any(Path(root, f"{top}.py").is_file() or Path(root, top, "__init__.py").is_file() for root in self.roots)

    def _installed(self, fullname: str, path: Sequence[str] | None) -> bool:
        finders = [one for one in sys.meta_path if one is not self and hasattr(one, "find_spec")]
        return any(one.find_spec(fullname, path) is not None for one in finders)

    def _asked_by_user(self) -> bool:
        """Whether the import that is being carried out stands in a file of the user's, or of a stand-in's."""
        frame: types.FrameType | None = sys._getframe(1)
        while frame is not None:
            file = frame.f_code.co_filename
            if file != __file__ and not file.startswith("<frozen importlib") and "importlib/__init__" not in file:
                return self.is_users(file)
            frame = frame.f_back
        return False

    @contextlib.contextmanager
    def open(self) -> Iterator[None]:
        """The stand-ins are there inside of this; sys.modules and the working directory are as they were afterwards."""
        before = dict(sys.modules)
        for name in before:
            if name.partition(".")[0] in LIBRARIES or self._own(name.partition(".")[0]):
                del sys.modules[name]
        path, here = list(sys.path), os.getcwd()
        sys.path[:0] = [root.rstrip("/") for root in self.roots]
        sys.meta_path.insert(0, self)
        importlib.invalidate_caches()
        writes, sys.dont_write_bytecode = sys.dont_write_bytecode, True
        try:
            yield
        finally:
            os.chdir(here)
            sys.dont_write_bytecode = writes
            sys.meta_path.remove(self)
            sys.path[:] = path
            for name, module in list(sys.modules.items()):
                file = getattr(module, "__file__", None) or ""
                if isinstance(module, StandInModule) or (name not in before and self.is_users(file)):
                    del sys.modules[name]
            for name, module in before.items():
                sys.modules.setdefault(name, module)
                if name.partition(".")[0] in LIBRARIES or self._own(name.partition(".")[0]):
                    sys.modules[name] = module

    def place_in(self, error: BaseException) -> tuple[str, str] | None:
        """File, line and text of the last line of the user's in an error."""
        import traceback

        if isinstance(error, SyntaxError) and error.filename:
            return f"{error.filename}:{error.lineno}", (error.text or "").strip()
        frames = [one for one in traceback.extract_tb(error.__traceback__) if self.is_users(one.filename)]
        return (f"{frames[-1].filename}:{frames[-1].lineno}", frames[-1].line or "") if frames else None
