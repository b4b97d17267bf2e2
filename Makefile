# Everything a fresh machine needs: `make demo` and `make test` set themselves up.

VENV := .venv
BIN := $(VENV)/bin
PYTHON ?= python3
WORKERS ?= 2

.PHONY: demo test test-slow check format bench clean

$(VENV)/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[all,test]'
	@touch $@

demo: $(VENV)/installed
	$(BIN)/semicyclic demo

test: $(VENV)/installed
	$(BIN)/python -m pytest -m 'not slow' -n $(WORKERS) --dist loadfile --cov --cov-report=term:skip-covered

test-slow: $(VENV)/installed
	$(BIN)/python -m pytest -m slow -n $(WORKERS)

check: $(VENV)/installed
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/installed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(VENV)/installed
	$(BIN)/python -m benchmarks --all

clean:
	rm -rf $(VENV) build dist .coverage .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis .numba_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
