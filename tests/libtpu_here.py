"""Tests that compile for TPUs: skipped where TPU's compiler is not installed, but never in CI."""

import importlib.util
import os

import pytest

needs_libtpu = pytest.mark.skipif(
    importlib.util.find_spec("libtpu") is None and os.environ.get("CI") != "true",
    reason="libtpu is not installed: pip install 'spanloom[tpu]'",
)
