"""Where raw examples come from: one way in for every kind of source."""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import compress
from typing import Any

import numpy as np

from spanloom.settings.row_sources import RowSource
from spanloom.settings.task import PairFiles, PythonDocs, Source
from spanloom.tasks import python_docs
from spanloom.tasks.deduplication import without_repeated_rows
from spanloom.tasks.documents import Documents
from spanloom.tasks.file_lists import list_files
from spanloom.tasks.file_system import identity, size_of
from spanloom.tasks.heldout import Mask, Split, bound_for, bound_of, check_share, is_heldout
from spanloom.tasks.pairs import read_pairs
from spanloom.tasks.parts import files_of
from spanloom.tasks.read_report import BadInputError, Intake, ReadReport, plural
from spanloom.tasks.rows import packed_batches
from spanloom.tasks.text_files import read_texts

_FAR = 2  # times the share asked for, or one part in so many


def read_parts(
    source: Source, reports: Mapping[Split, ReadReport], distinct: Sequence[str] = ()
) -> Iterator[tuple[Split, Documents]]:
    """The documents of the parts that `reports` names, in one pass: (part, some of its documents) after another.

    The same documents in the same order on every pass; train and heldout share none and are everything together. Where
    no held-out files are named, a document's own text decides its part (of pairs the inputs), see
    `spanloom.tasks.heldout`: about `source.heldout_share` of the documents are held out, and one where that is none
    of several. Each report counts the documents of its part; what is left out, repaired or noticed stands in that of
    the training part, which is also where what belongs to neither is; in that of the held-out part stands where it
    is another share of the text. Sources of rows give packed rows (`spanloom.tasks.rows`), in the one column ROW. Of
    those that are equal in the fields `distinct`, if any are named, only the first is given.
    Raises BadInputError for bad input as `source.errors` says (strict: the first one, naming file and line or byte;
    skip: only counted; replace: undecodable bytes become U+FFFD and are counted, all else is as strict), and in any
    mode where there is no file at all, or no example for training.
    """
    check_share(source.heldout_share)
    if _names_heldout(source):
        for split, report in reports.items():
            for documents in _read(source, split, report, distinct):
                report.give(documents)
                yield split, documents
        if "train" in reports:
            _check_any(source, reports["train"])
    else:
        yield from _divided(source, reports, distinct)


def read_examples(source: Source, split: Split, report: ReadReport) -> Iterator[dict[str, str]]:
    """The examples of one part as text: {"text": ...}, of pairs {"inputs": ..., "targets": ...}; see `read_parts`."""
    for _, documents in read_parts(source, {split: report}):
        for texts in zip(*documents.values(), strict=True):
            yield {name: text.decode("utf-8") for name, text in zip(documents, texts, strict=True)}


def _divided(
    source: Source, reports: Mapping[Split, ReadReport], distinct: Sequence[str]
) -> Iterator[tuple[Split, Documents]]:
    """All files, each document in the part that its text decides."""
    bound = bound_for(source.heldout_share, map(_deciding, _read(source, "train", ReadReport())))
    both: dict[Split, ReadReport] = {"train": ReadReport(), "heldout": ReadReport(), **reports}
    for documents in _read(source, "train", both["train"], distinct):
        held = is_heldout(_deciding(documents), bound) if bound else np.zeros(len(_deciding(documents)), np.bool_)
        masks: dict[Split, Mask] = {"train": ~held, "heldout": held}
        for split, mask in masks.items():
            if mask.any():
                part = documents if mask.all() else _chosen(documents, mask)
                both[split].give(part)
                if split in reports:
                    yield split, part
    train, heldout = both["train"], both["heldout"]
    heldout.files, heldout.file_bytes = train.files, train.file_bytes
    if "train" in reports:
        _check_any(source, train, heldout)
    if heldout.documents:
        _note_share(source, train, heldout, is_least=bound > bound_of(source.heldout_share))


def _note_share(source: Source, train: ReadReport, heldout: ReadReport, *, is_least: bool) -> None:
    """Says where the held-out part is another share of the text than was asked for."""
    share, of_text = source.heldout_share, heldout.bytes / (train.bytes + heldout.bytes)
    total = plural(train.documents + heldout.documents, heldout.noun)
    if is_least:
        why = f"none of the {total} fell into the share of {_percent(share)}, so the nearest one was taken"
    elif of_text > _FAR * share or of_text < share / _FAR:
        what = f"a share of the {heldout.noun}s: they are few, or of very different lengths"
        why = f"{_percent(share)} was asked for, {what}"
    else:
        return
    by_line = ", or documents by line (--task.source.unit line)" if getattr(source, "unit", "") == "document" else ""
    fix = f"another {_SHARE}, or more and shorter {heldout.noun}s{by_line}, come nearer"
    heldout.note("held-out share", f"{_percent(of_text)} of the text is held out; {why}; {fix}")


def _percent(share: float) -> str:
    return f"{100 * share:.3g}%"


def _chosen(documents: Documents, mask: Mask) -> Documents:
    choice = mask.tolist()
    return {name: list(compress(texts, choice)) for name, texts in documents.items()}


def _read(source: Source, split: Split, report: ReadReport, distinct: Sequence[str] = ()) -> Iterator[Documents]:
    documents = _read_all(source, split, report)
    return without_repeated_rows(documents, distinct, report) if distinct else documents


def _read_all(source: Source, split: Split, report: ReadReport) -> Iterator[Documents]:
    if isinstance(source, PythonDocs):
        return python_docs.read_python_docs(report)
    if isinstance(source, RowSource):
        from spanloom.tasks.row_sources import read_row_source

        return packed_batches(read_row_source(source, split, report))
    read: Any = read_pairs if isinstance(source, PairFiles) else read_texts
    documents: Iterator[Documents] = read(source, files_of(source, split, report), report)
    return documents


def _names_heldout(source: Source) -> tuple[str, ...]:
    """The files or the split that are held out, where such are named."""
    split = getattr(source, "heldout_split", None)
    return (split,) if split else tuple(getattr(source, "heldout_files", ()))


def _shown(source: Source) -> str:
    """What the source reads, for messages."""
    found = (getattr(source, name, None) for name in ("files", "folders", "folder", "dataset", "function"))
    place = next((one for one in found if one), "the rows of the source")
    return ", ".join(place) if isinstance(place, tuple) else str(place)


def _deciding(documents: Documents) -> list[bytes]:
    """The texts that decide where documents belong: pairs of the same inputs stay together."""
    return next(iter(documents.values()))


def has_heldout(source: Source) -> bool:
    """Whether the settings keep anything out of training."""
    return source.heldout_share > 0 or bool(_names_heldout(source))


def check_heldout(source: Source, train: ReadReport, heldout: ReadReport) -> None:
    """Once both parts were read: raises BadInputError where a held-out part is set and came out empty."""
    if heldout.documents or not has_heldout(source):
        return
    files = _names_heldout(source)
    if files:
        left = _left_out(heldout) or "its files are empty"
        raise BadInputError(", ".join(files), f"the held-out part has no document: {left}", "Name other held-out files")
    if not bound_of(source.heldout_share):
        raise BadInputError("held-out part", f"a share of {source.heldout_share:g} is none", f"Set {_SHARE} 0, or more")
    # of two different texts one is held out whatever the share, see `bound_for`
    raise BadInputError("held-out part", f"it is empty: {_all_one(train)}", _MORE_TEXT)


_SHARE = "--task.source.heldout-share"  # the flag's full name, which every command has
_MORE_TEXT = f"Add other text, name held-out files (--task.source.heldout-files), or train without: {_SHARE} 0"


def _all_one(report: ReadReport) -> str:
    """That one text is all there is, where it can be in one part alone."""
    if report.documents == 1:
        return f"there is 1 {report.noun} alone, which cannot be in both parts"
    what = {"document": "are one and the same text", "row": "are one and the same"}.get(
        report.noun, "have one and the same inputs"
    )
    return f"all {report.documents:,} {report.noun}s {what}, which cannot be in both parts"


def source_bytes(source: Source, splits: Sequence[Split]) -> int:
    """Bytes of the files that a pass over these parts reads, as they lie on disk; 0 where nobody can say."""
    if isinstance(source, PythonDocs):
        return 0
    if isinstance(source, RowSource):
        from spanloom.tasks.row_sources import row_source_bytes

        return row_source_bytes(source, splits if _names_heldout(source) else splits[:1])
    read = splits if source.heldout_files else splits[:1]
    return sum(size_of(path) for split in read for path in files_of(source, split, ReadReport()))


def source_fingerprint(source: Source) -> str:
    """What decides the examples, as sha256 hex: the settings, and each file's name, size, time and edges; for
    PythonDocs the Python version and the content of the library's files. Raises BadInputError for absent files.
    """
    if isinstance(source, RowSource):
        from spanloom.tasks.row_sources import row_source_fingerprint

        return row_source_fingerprint(source)
    digest = hashlib.sha256(json.dumps([type(source).__name__, asdict(source)], sort_keys=True).encode())
    if isinstance(source, PythonDocs):
        digest.update(python_docs.fingerprint(python_docs.library_folder()).encode())
        return digest.hexdigest()
    for patterns in (source.files, source.heldout_files):
        for path in list_files(patterns, Intake(ReadReport(), source.errors)) if patterns else ():
            digest.update(identity(path, source.errors))
        digest.update(b"|")
    return digest.hexdigest()


def _check_any(source: Source, train: ReadReport, heldout: ReadReport | None = None) -> None:
    """Raises BadInputError where nothing was read for training; `heldout` is given where it was read together."""
    if train.documents or isinstance(source, PythonDocs):
        return
    where = f" in {plural(train.files, 'file')}" if train.files else ""
    what, fix = f"no {train.noun} to train on{where}", "Check the files" if train.files else "Check the source"
    if heldout is None or not heldout.documents:
        why = _left_out(train) or f"{'it holds' if train.files == 1 else 'they hold'} no rows"
    elif _is_one_text(source):
        why, fix = _all_one(heldout), _MORE_TEXT
    else:
        why = f"the held-out part took all {plural(heldout.documents, heldout.noun)}"
        fix = f"Lower {_SHARE} (0: none is held out)"
    raise BadInputError(_shown(source), f"{what}: {why}", fix)


def _is_one_text(source: Source) -> bool:
    """Whether all documents are of the same text (pairs: of the same inputs); read up to the first other one."""
    texts = (text for documents in _read(source, "train", ReadReport()) for text in _deciding(documents))
    first = next(texts, b"")
    return all(text == first for text in texts)


def _left_out(report: ReadReport) -> str:
    reasons = ", ".join(f"{count:,} {reason}" for reason, count in sorted(report.skipped.items()))
    return "; ".join(filter(None, [reasons, *report.messages[:3]]))
