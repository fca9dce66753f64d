# Two commands do everything: `make demo` and `make test`. Both make a virtual environment in .venv first. `make help` lists all.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
WORKERS ?= auto

.PHONY: help demo test lint types docs pytest coverage audit gl install clean

help:  ## this list
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' Makefile | expand -t 10

demo: $(VENV)/.installed  ## explore a maze without reward, then solve four tasks in it (minutes)
	$(BIN)/plan2explore demo

test: $(VENV)/.installed-dev gl lint types docs pytest  ## all that CI runs: lint, types, docs, pytest

lint: $(VENV)/.installed-dev  ## ruff
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.installed-dev  ## mypy
	$(BIN)/mypy

# A warning is an error (not with --quiet). The site is in site/; `mkdocs serve` shows it with search.
docs: $(VENV)/.installed-dev  ## the site, in site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

pytest: $(VENV)/.installed-dev  ## the tests (WORKERS=1 for one process)
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup --durations=30 $(TESTS)

coverage: $(VENV)/.installed-dev  ## branches that the tests take in agent/, replay/ and phases/ (TESTS=tests/agent for a part)
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup --cov-branch --cov-report=term:skip-covered \
	  --cov=plan2explore.agent --cov=plan2explore.replay --cov=plan2explore.phases $(TESTS)

audit: $(VENV)/.installed-dev  ## do packages fit together, and has any a known vulnerability? (needs a network)
	$(BIN)/python -m pip check
	$(BIN)/pip-audit --skip-editable --progress-spinner off

# The parity tests compare the ray-caster with OpenGL, and the report's page is opened in a real browser. Only root can add
# these; without them stored pictures are compared, and the browser's tests are skipped with one line.
gl:  ## OpenGL and a browser for the tests that need them (as root)
	@sh scripts/install-gl
	@sh scripts/install-chromium

install: $(VENV)/.installed  ## into .venv

$(VENV)/.installed: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 13))' || \
	  { echo "plan2explore needs Python 3.11 or 3.12, but $(PYTHON) is `$(PYTHON) -V 2>&1`: try make PYTHON=python3.12"; exit 1; }
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || \
	  { echo "$(PYTHON) cannot make virtual environments: install its venv package (Debian: python3-venv)"; exit 1; }
	@echo "Installing into $(VENV) (a minute or two) ..."
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e .
	@touch $@

# What only the checks need.
$(VENV)/.installed-dev: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@

clean:  ## remove .venv and caches
	rm -rf $(VENV) site .cache .mypy_cache .pytest_cache .ruff_cache
