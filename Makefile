# Everything a fresh machine needs: `make demo` and `make test` set themselves up.

VENV := .venv
BIN := $(VENV)/bin
PYTHON ?= python3
WORKERS ?= 2
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: demo test test-slow test-generic check wheel format bench clean

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

# What the demo needs, and no test tools.
$(VENV)/demo-installed: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) --editable '.[files,report]'
	@touch $@

$(VENV)/installed: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) --editable '.[all,test]'
	@touch $(VENV)/demo-installed $@

demo: $(VENV)/demo-installed
	$(BIN)/semicyclic demo

test: $(VENV)/installed
	$(BIN)/python -m pytest -m 'not slow' -n $(WORKERS) --dist loadfile --cov --cov-report=term:skip-covered

test-slow: $(VENV)/installed
	$(BIN)/python -m pytest -m slow -n $(WORKERS)

# The numeric tests without the instructions that only some processors have.
test-generic: $(VENV)/installed
	NUMBA_CPU_NAME=generic $(BIN)/python -m pytest -q -m 'not slow' -n $(WORKERS) --dist loadfile tests/method tests/auto

check: $(VENV)/installed
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Builds the distributions and tries the wheel in a new environment outside this folder. The tools have
# their own environment too: twine needs a newer `packaging` than Flower allows.
wheel:
	$(PYTHON) -m venv $(VENV)/release
	$(VENV)/release/bin/python -m pip install --quiet --disable-pip-version-check build twine
	rm -rf dist
	$(VENV)/release/bin/python -m build --outdir dist
	$(VENV)/release/bin/python -m twine check --strict dist/*
	$(VENV)/release/bin/python scripts/check_wheel.py dist constraints.txt

format: $(VENV)/installed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(VENV)/installed
	$(BIN)/python -m benchmarks --all

clean:
	rm -rf $(VENV) build dist .coverage .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis .numba_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
