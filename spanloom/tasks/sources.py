"""Where raw examples come from: one way in for every kind of source."""

import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import asdict

from spanloom.settings.task import PairFiles, PythonDocs, Source, TextFiles
from spanloom.tasks import python_docs
from spanloom.tasks.file_lists import list_files
from spanloom.tasks.heldout import Split
from spanloom.tasks.pairs import read_pairs
from spanloom.tasks.read_report import BadInputError, ReadReport
from spanloom.tasks.text_files import read_texts

__all__ = ["BadInputError", "ReadReport", "Split", "check_heldout", "has_heldout", "read_batches", "read_examples"]
__all__ += ["read_texts_of", "source_fingerprint"]

_EDGE = 1 << 12


def read_examples(source: Source, split: Split, report: ReadReport) -> Iterator[dict[str, str]]:
    """The examples of a part of a source: {"text": ...}, of pairs {"inputs": ..., "targets": ...}.

    The same examples in the same order on every pass; train and heldout share none and are everything together.
    `report` counts them, and all that is left out. Raises BadInputError for bad input as `source.errors` says
    (strict: the first one, naming file and line or byte; skip: only counted; replace: undecodable bytes become
    U+FFFD and are counted, all else is as strict), and in any mode where files are not found, or where all of them
    hold no example for training.
    """
    for batch in read_batches(source, split, report):
        yield from batch


def read_batches(source: Source, split: Split, report: ReadReport) -> Iterator[list[dict[str, str]]]:
    """Like `read_examples`, some examples at a time, which is faster for short ones."""
    if isinstance(source, PairFiles):
        yield from read_pairs(source, split, report)
        _check_any(source, split, report)
    else:
        for texts in read_texts_of(source, split, report):
            yield [{"text": text} for text in texts]


def read_texts_of(source: TextFiles | PythonDocs, split: Split, report: ReadReport) -> Iterator[list[str]]:
    """The texts of a source of text alone, some at a time: the fastest way."""
    if isinstance(source, PythonDocs):
        yield from python_docs.read_python_docs(source, split, report)
    else:
        yield from read_texts(source, split, report)
        _check_any(source, split, report)


def has_heldout(source: Source) -> bool:
    """Whether the settings keep anything out of training."""
    return source.heldout_share > 0 or bool(getattr(source, "heldout_files", ()))


def check_heldout(source: Source, train: ReadReport, heldout: ReadReport) -> None:
    """Once both parts were read: raises BadInputError where a held-out part is set and came out empty."""
    if heldout.documents or not has_heldout(source):
        return
    files = getattr(source, "heldout_files", ())
    if files:
        left = _left_out(heldout) or "its files are empty"
        raise BadInputError(", ".join(files), f"the held-out part has no document: {left}", "Name other held-out files")
    total = train.documents
    share = min(0.5, max(2 * source.heldout_share, 2 / total)) if total > 1 else 0
    fix = f"Set a larger share (--heldout-share {share:.2g}) or name --heldout-files" if share else "Add documents, or"
    raise BadInputError(
        "held-out part",
        f"none of the {total:,} documents fell into the held-out share of {source.heldout_share:g}",
        f"{fix if share else 'Add documents'}; or train without a held-out part: --heldout-share 0",
    )


def source_fingerprint(source: Source) -> str:
    """What decides the examples, as sha256 hex: the settings, and each file's name, size, time and edges; for
    PythonDocs the Python version and the content of the library's files. Raises BadInputError for absent files.
    """
    digest = hashlib.sha256(json.dumps([type(source).__name__, asdict(source)], sort_keys=True).encode())
    if isinstance(source, PythonDocs):
        digest.update(python_docs.fingerprint(python_docs.library_folder()).encode())
        return digest.hexdigest()
    for patterns in (source.files, source.heldout_files):
        for path in list_files(patterns) if patterns else ():
            digest.update(_file_identity(path))
        digest.update(b"|")
    return digest.hexdigest()


def _file_identity(path: str) -> bytes:
    """A file's name without its folders, size, time of change, first and last bytes, hashed."""
    try:
        with open(path, "rb") as file:
            stat = os.fstat(file.fileno())
            head = file.read(_EDGE)
            file.seek(max(0, stat.st_size - _EDGE))
            tail = file.read(_EDGE)
    except OSError as error:
        raise BadInputError(path, f"cannot be read: {error.strerror or error}", "Check its permissions") from error
    facts = f"{os.path.basename(path)!r} {stat.st_size} {stat.st_mtime_ns} ".encode()
    return hashlib.sha256(facts + hashlib.sha256(head).digest() + hashlib.sha256(tail).digest()).digest()


def _check_any(source: TextFiles | PairFiles, split: Split, report: ReadReport) -> None:
    if report.documents or split == "heldout":
        return
    left = _left_out(report)
    what = f"no document to train on in {report.files} file{'' if report.files == 1 else 's'}"
    fix = "Check the files" if left else "The held-out part took all: lower --heldout-share"
    raise BadInputError(", ".join(source.files), f"{what}{': ' if left else ''}{left}", fix)


def _left_out(report: ReadReport) -> str:
    reasons = ", ".join(f"{count:,} {reason}" for reason, count in sorted(report.skipped.items()))
    return "; ".join(filter(None, [reasons, *report.messages[:3]]))
