"""PythonDocs: the English documentation inside every CPython, a corpus of about 2 MB that needs no download.

pydoc's topics and the standard library's docstrings are read from source files with `ast`; nothing is imported, so
what a module does on import, or lacks on this system, does not matter.
"""

import ast
import hashlib
import inspect
import platform
import re
import sysconfig
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

from spanloom.tasks.documents import Documents
from spanloom.tasks.read_report import BadInputError, ReadReport

LEAST_BYTES = 500_000
"""Less text than this means a Python whose library was stripped, and is an error."""

_TOPICS = Path("pydoc_data", "topics.py")
_LEFT_OUT = {
    "test", "tests", "idle_test",  # docstrings of tests say little
    "lib2to3", "pydoc_data", "_bundled",  # grammar fixtures; the topics, read otherwise; other people's wheels
    "site-packages", "dist-packages", "lib-dynload", "__pycache__",
}  # fmt: skip
_UNDERLINE = re.compile(r"^([*=\-~^#\"])\1{2,}$")


def read_python_docs(
    report: ReadReport, stdlib: Path | None = None, *, least_bytes: int = LEAST_BYTES
) -> Iterator[Documents]:
    """The documents, {"text": ...}: sections of pydoc topics, then docstrings by file and place; no text twice.

    `stdlib`: the library's folder; unset: this interpreter's. Raises BadInputError where there is no such text, and
    once all is read where it was less than `least_bytes`.
    """
    folder = library_folder() if stdlib is None else stdlib
    seen: set[str] = set()
    size = 0
    for texts in _texts_by_file(folder, report):
        new = []
        for text in texts:
            key = " ".join(text.split())
            if not key or key in seen:
                report.skip("duplicate")
            else:
                seen.add(key)
                new.append(text.encode("utf-8"))
        size += sum(map(len, new))
        if new:
            yield {"text": new}
    if size < least_bytes:
        raise BadInputError(
            str(folder),
            f"only {size:,} bytes of documentation in {report.files} source files: this Python's library "
            "came without sources or without docstrings",
            "Use a full CPython, or train on text of your own: --text FILES",
        )


def _texts_by_file(folder: Path, report: ReadReport) -> Iterator[list[str]]:
    topics = folder / _TOPICS
    if topics.is_file():
        yield _texts_of(topics, _topic_texts, report)
    else:
        report.note("no topics", f"{topics} is absent: docstrings only")
    for path in source_files(folder):
        yield _texts_of(path, docstrings, report)


def _texts_of(path: Path, read: Callable[[bytes], Iterator[str]], report: ReadReport) -> list[str]:
    report.files += 1
    try:
        texts = list(read(path.read_bytes()))
        "".join(texts).encode("utf-8")  # a literal may hold half a character
    except (SyntaxError, ValueError, RecursionError, OSError) as error:
        report.skip("does not parse", f"{path}: {error}")
        return []
    return texts


def library_folder() -> Path:
    """Where this interpreter's standard library stands as source files. Raises BadInputError where it does not."""
    folder = Path(sysconfig.get_path("stdlib"))
    if not folder.is_dir():
        what = "the standard library is no folder of source files (it may be zipped or frozen)"
        raise BadInputError(str(folder), what, "Use a full CPython, or train on text of your own: --text FILES")
    return folder


def fingerprint(folder: Path) -> str:
    """What decides the documents: the Python version and the content of every file read, as sha256 hex."""
    digest = hashlib.sha256(platform.python_version().encode())
    for path in (folder / _TOPICS, *source_files(folder)):
        if path.is_file():
            digest.update(path.relative_to(folder).as_posix().encode() + b"\0")
            digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def source_files(folder: Path) -> list[Path]:
    """The library's Python files in order of their paths, without tests, third-party packages and fixtures."""
    found: list[Path] = []
    folders = [folder]
    while folders:
        for path in folders.pop().iterdir():
            if path.name in _LEFT_OUT:
                continue
            if path.is_dir():
                if not path.is_symlink():  # which may lead anywhere, even back
                    folders.append(path)
            elif path.suffix == ".py":
                found.append(path)
    return sorted(found, key=lambda path: path.relative_to(folder).as_posix())


def docstrings(code: bytes) -> Iterator[str]:
    """The docstrings of a module, its classes and functions, in order, with their indentation taken off.

    Raises SyntaxError or ValueError for what is no Python of this version.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # invalid escapes in other people's code
        tree = ast.parse(code)
    nodes: list[ast.AST] = [tree]
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node, clean=False)
            if text and (text := inspect.cleandoc(text)):
                yield text
        if not isinstance(node, ast.expr):
            nodes += [child for child in ast.iter_child_nodes(node) if isinstance(child, ast.stmt | ast.excepthandler)][
                ::-1
            ]


def _read_topics(code: bytes) -> dict[str, str]:
    """The dictionary that the file assigns to `topics`. Raises SyntaxError or ValueError where there is none."""
    for node in ast.parse(code).body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if any(isinstance(target, ast.Name) and target.id == "topics" for target in targets):
            topics = ast.literal_eval(node.value)  # type: ignore[attr-defined]
            if isinstance(topics, dict):
                return {str(name): str(text) for name, text in topics.items()}
    raise ValueError("no dictionary named topics")


def _topic_texts(code: bytes) -> Iterator[str]:
    """The sections of all topics, without paragraphs that an earlier topic has: topics repeat each other's parts.

    Longest topic first, so that the whole stays whole and the extracts go, of which empty texts may be left.
    """
    topics = _read_topics(code)
    paragraphs_seen: set[str] = set()
    for name in sorted(topics, key=lambda name: (-len(topics[name]), name)):
        for section in sections(topics[name]):
            kept = []
            for paragraph in section.split("\n\n"):
                key = " ".join(paragraph.split())
                if key not in paragraphs_seen:
                    kept.append(paragraph)
                paragraphs_seen.add(key)
            yield "\n\n".join(kept).strip("\n") if any(not _is_heading(paragraph) for paragraph in kept) else ""


def sections(text: str) -> list[str]:
    """A topic cut before each of its underlined headings."""
    lines = text.split("\n")
    starts = [0] + [i for i in range(1, len(lines) - 1) if _UNDERLINE.match(lines[i + 1]) and not lines[i - 1].strip()]
    ends = [*starts[1:], len(lines)]
    return ["\n".join(lines[start:end]) for start, end in zip(starts, ends, strict=True) if end > start]


def _is_heading(paragraph: str) -> bool:
    lines = paragraph.strip("\n").split("\n")
    return not lines[0] or (len(lines) == 2 and bool(_UNDERLINE.match(lines[1])))
