"""Leaving out examples seen before: a step over all examples of a task, in order, as no preprocessor of one can be.

A task does it to the rows of its source (`Task.deduplicate`), before these are divided: so none is in both parts.
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import compress

from spanloom.tasks.documents import Documents
from spanloom.tasks.read_report import BadInputError, ReadReport
from spanloom.tasks.rows import ROW, unpack_row
from spanloom.tasks.templates import FieldError
from spanloom.tasks.text_preprocessors import fields
from spanloom.tasks.text_preprocessors.fields import Example

REASON = "repeated"


def key_of(example: Example, feature_keys: Sequence[str]) -> bytes:
    """16 bytes that only examples equal in these fields have in common. Raises FieldError for missing fields."""
    values = [fields.value(example, name) for name in feature_keys]
    # an array's own repr leaves out the middle of a long one
    plain = [one.tolist() if hasattr(one, "tolist") else one for one in values]
    written = [repr(one).encode("utf-8", "surrogatepass") for one in plain]
    return hashlib.blake2b(b"".join(b"%d:%b" % (len(one), one) for one in written), digest_size=16).digest()


def without_repeated_rows(
    batches: Iterable[Documents], names: Sequence[str], report: ReadReport
) -> Iterator[Documents]:
    """Documents, or packed rows, without those that are equal in these fields to one before; counted as repeated.

    It remembers 16 bytes of each (BLAKE2b): about 100 bytes of memory with Python's own. Raises BadInputError where a
    row lacks a field.
    """
    seen: set[bytes] = set()
    number = 0
    for documents in batches:
        keep = []
        for example in _examples(documents):
            try:
                key = key_of(example, names)
            except FieldError as error:
                where = f"row {number}, looking for repeated ones"
                raise BadInputError(where, str(error), error.fix) from error
            number += 1
            keep.append(key not in seen)
            seen.add(key)
        if not all(keep):
            report.skip(REASON, count=keep.count(False))
            documents = {name: list(compress(texts, keep)) for name, texts in documents.items()}
        if any(keep):
            yield documents


def _examples(documents: Documents) -> Iterator[Example]:
    if ROW in documents:
        yield from map(unpack_row, documents[ROW])
        return
    for texts in zip(*documents.values(), strict=True):
        yield dict(zip(documents, texts, strict=True))
