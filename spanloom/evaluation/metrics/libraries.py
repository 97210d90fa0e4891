"""Libraries that compute a metric better than we would: imported when it is asked for."""

import importlib
from typing import Any


class MissingLibraryError(ImportError):
    """A metric's library is not installed; the message says how to have it."""


def library(module: str, metric: str) -> Any:
    """The module. Raises MissingLibraryError."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingLibraryError(f"{metric} needs the package {module}: pip install 'spanloom[eval]'") from error
