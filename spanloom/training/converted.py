"""Models that came from elsewhere, in Spanloom's own format: with a list of their files, as checkpoints have it."""

from pathlib import Path

from spanloom.conversion.convert import Format, Output
from spanloom.conversion.converted import open_converted, write_converted
from spanloom.conversion.errors import ConversionError
from spanloom.conversion.stored_model import StoredModel
from spanloom.training.integrity import MANIFEST, DamagedError, seal, verify


def stored_converted(folder: Path) -> StoredModel:
    """The model in `folder`, whose every file is what was written. ConversionError names one that is not."""
    try:
        verify(folder)
    except DamagedError as error:
        raise ConversionError(folder, f"is damaged: {error}. Convert it again, or take it from a backup") from None
    return open_converted(folder)


def _write(folder: Path, source: StoredModel, output: Output) -> tuple[str, ...]:
    notes = write_converted(folder, source, output, MANIFEST)
    seal(folder)
    return notes


SPANLOOM = Format("a Spanloom model", _write, stored_converted)
