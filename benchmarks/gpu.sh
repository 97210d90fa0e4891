#!/usr/bin/env bash
# Numerics and speed on one GPU, beside transformers and torch; under 8 minutes on an H100.
#
#   benchmarks/gpu.sh              with `python3`, which must have jax[cuda], torch and transformers
#   benchmarks/gpu.sh --dry-run    the same path on CPU with tiny models, in a minute: what the tests run
#   PYTHON=.venv/bin/python benchmarks/gpu.sh
set -euo pipefail
cd "$(dirname "$0")/.."
export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}"
# Memory is measured, so nothing may be taken in advance.
export XLA_PYTHON_CLIENT_PREALLOCATE=false
exec "${PYTHON:-python3}" benchmarks/gpu.py "$@"
