# make demo   publishes three recipes on an embedded Hub, verifies them, and prints what came of it
# make test   all checks and tests that Python packages can give to
# Both need Python 3.11 or later and a way to the package registries, and nothing else.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
DEMO ?= demo
# Two workers suit two cores; the tests of one file stay together.
PYTEST_ARGS ?=
JOBS ?= 2

.PHONY: demo test lint clean

demo: $(VENV)/.demo
	$(BIN)/python -m tools.demo --dir $(DEMO)

test: $(VENV)/.test lint
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile $(PYTEST_ARGS)

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "error: Python 3.11 or later is needed; found " + sys.version.split()[0] + ". Name another with make PYTHON=python3.12 …")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.demo: $(BIN)/python pyproject.toml
	$(BIN)/python -m pip install --quiet --editable '.[cpu]'
	@touch $@

$(VENV)/.test: $(BIN)/python pyproject.toml
	$(BIN)/python -m pip install --quiet --editable '.[cpu,export,test,lint]'
	@touch $@

clean:
	rm -rf $(VENV) $(DEMO) .cache build dist *.egg-info
