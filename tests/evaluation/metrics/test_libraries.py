import subprocess
import sys

import pytest

from spanloom.evaluation.metrics.libraries import MissingLibraryError, library


def test_a_missing_library_says_how_to_have_it():
    with pytest.raises(
        MissingLibraryError, match=r"bleu needs the package no_such_package: pip install 'spanloom\[eval\]'"
    ):
        library("no_such_package", "bleu")


def test_metrics_are_light_to_import():
    heavy = "jax", "sacrebleu", "sklearn", "scipy", "rouge_score"
    code = (
        f"import sys, spanloom.evaluation.metrics as m; sys.exit(str([x for x in {heavy} if x in sys.modules] or ''))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert not done.stderr.strip(), done.stderr
