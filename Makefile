# make quickstart   set up .venv and train a small byte model on the documentation inside this Python, or show it again
# make test         set up .venv and run the tests that need nothing but the core and pytest, in under ten minutes
# make check        everything CI runs: lint, types, all tests but slow ones, parity with torch and transformers, newer Pythons
# make check-all    that, and the slow ones: random kills, Apache Beam, transformers 4.46.3
# make bench        the benchmarks: a training step beside transformers; data, mixing, packing, loading, the command

VENV := .venv
PY := $(VENV)/bin/python
PYTHON ?= $(shell scripts/find_python 3.11 3.12 3.13)
PYTEST_FLAGS ?=

.PHONY: quickstart test check check-all bench lint types clean

quickstart: $(VENV)/.core
	$(VENV)/bin/spanloom train $(if $(wildcard runs/quickstart/run.json),runs/quickstart,quickstart)

test: $(VENV)/.dev
	$(PY) -m pytest -q -n 2 --dist loadfile --no-loadscope-reorder -m "not slow and not long and not parity and not golden and not exact" $(PYTEST_FLAGS)

check: $(VENV)/.parity
	$(PY) scripts/check.py

check-all: $(VENV)/.parity
	$(PY) scripts/check.py --all

bench: $(VENV)/.parity
	$(PY) benchmarks/train_step.py
	$(PY) benchmarks/generate.py
	$(PY) benchmarks/data.py
	$(PY) benchmarks/mixing.py
	$(PY) benchmarks/packing.py
	$(PY) benchmarks/loader.py
	$(PY) benchmarks/growth.py
	$(PY) benchmarks/loop.py
	$(PY) benchmarks/cli.py

lint: $(VENV)/.dev
	$(VENV)/bin/ruff check . && $(VENV)/bin/ruff format --check .

types: $(VENV)/.dev
	$(VENV)/bin/mypy

$(VENV)/bin/python:
	@test -n "$(PYTHON)" || { echo "Spanloom needs Python 3.11, 3.12 or 3.13; none was found. Set one with: make $(MAKECMDGOALS) PYTHON=/path/to/python"; exit 1; }
	@echo "Making $(VENV) with $(PYTHON)"
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); echo "The venv module is missing: on Debian or Ubuntu, apt install python3-venv"; exit 1; }

# One stamp for each set of extras: a change in pyproject.toml installs again.
$(VENV)/.core: pyproject.toml $(VENV)/bin/python
	$(PY) -m pip install --quiet --disable-pip-version-check --editable .
	@touch $@

$(VENV)/.dev: pyproject.toml $(VENV)/bin/python
	$(PY) -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@ $(VENV)/.core

$(VENV)/.parity: pyproject.toml $(VENV)/bin/python
	$(PY) -m pip install --quiet --disable-pip-version-check --editable '.[hub,eval,prompts,gin,tpu,wandb,trackio,parity,dev]'
	@touch $@ $(VENV)/.dev $(VENV)/.core

clean:
	rm -rf $(VENV) .venvs .pytest_cache .ruff_cache .mypy_cache
