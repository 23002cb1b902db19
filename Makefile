# capbench: `make help` lists the targets. Everything runs in .venv, which is made on first use.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# Files are spread over processes; a file stays together, because its tests share what was scored.
PYTEST_ARGS ?= -n auto --maxprocesses 8 --dist loadfile
STAMP := $(VENV)/.capbench-installed
# The lowest versions that pyproject.toml allows are installed beside it, for the lowest Python.
LOWEST_PYTHON ?= python3.11
LOWEST_VENV ?= .venv-lowest
LOWEST_STAMP := $(LOWEST_VENV)/.capbench-installed
# docs/cli/ is written with the newest typer and the schema with the newest pydantic; older ones write others.
WITH_NEWEST := tests/cli/test_app.py::test_the_command_reference_is_up_to_date \
  tests/studies/test_study_file.py::test_the_schema_of_the_documentation_is_that_of_the_model
# And once with the core alone, without any extra.
CORE_VENV ?= .venv-core
CORE_STAMP := $(CORE_VENV)/.capbench-installed
SHELL := /bin/bash
# Where this is set, each of the tests' processes would compile capbench anew.
unexport PYTHONDONTWRITEBYTECODE
# Exit code 1 says that rows wait (TIGEr's for its model and features): the rest of the table is there.
ROWS_MAY_WAIT := || [ $$? -eq 1 ]

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-all lowest core nightly docs dist check format reproduce-table1 reproduce-table2 reproduce-all leaderboard leaderboard-check bench bench-full clean

help: ## List the targets
	@grep -hE '^[a-z0-9%-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 20

setup: $(STAMP) ## Make .venv and install capbench with its development tools

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
	  { echo "capbench needs Python 3.11 or later; '$(PYTHON)' is $$($(PYTHON) --version 2>&1). Try: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev,docs]'
	@touch $@

demo: $(STAMP) ## Extract region features of the embedded synthetic sample, score, correlate, write a page of it
	$(BIN)/capbench extract-features --data sample --out features/sample.h5
	$(BIN)/capbench correlate configs/demo.yaml --data sample --report results/sample/demo/report.html

test: $(STAMP) ## Run the tests, all but the slow ones; what was skipped is listed with the reason
	$(BIN)/python -m pytest -m "not slow" $(PYTEST_ARGS)

test-all: $(STAMP) ## Run all tests, the slow ones too, with new examples in property tests
	$(BIN)/python -m pytest --hypothesis-profile default $(PYTEST_ARGS)

lowest: $(LOWEST_STAMP) ## Run the fast tests with the lowest versions that pyproject.toml allows (own .venv-lowest, gigabytes)
	$(LOWEST_VENV)/bin/python -m pytest -m "not slow and not real_data" $(PYTEST_ARGS) $(addprefix --deselect ,$(WITH_NEWEST))

$(LOWEST_STAMP): pyproject.toml
	$(LOWEST_PYTHON) -m venv --clear $(LOWEST_VENV)
	$(LOWEST_VENV)/bin/python -m pip install --quiet --disable-pip-version-check uv
	$(LOWEST_VENV)/bin/uv pip install --quiet --python $(LOWEST_VENV)/bin/python --resolution lowest-direct \
	  --only-binary :all: --no-binary capbench --editable '.[dev]'
	@touch $@

core: $(CORE_STAMP) ## Run the fast tests with the core alone, without any extra (own .venv-core)
	$(CORE_VENV)/bin/python -m pytest -m "not slow" $(PYTEST_ARGS)

$(CORE_STAMP): pyproject.toml
	$(PYTHON) -m venv --clear $(CORE_VENV)
	$(CORE_VENV)/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[test]'
	@touch $@

nightly: test-all lowest core ## Run all tests, the slow ones too, and the fast ones with the lowest versions and with the core alone

docs: $(STAMP) ## Build the documentation site into build/site
	$(BIN)/python scripts/make_docs.py

dist: $(STAMP) ## Build the wheel and the source distribution into dist/ and check them; uploads nothing
	rm -rf dist
	$(BIN)/python -m build --outdir dist
	$(BIN)/twine check --strict dist/*
	$(BIN)/python scripts/check_dist.py dist

check: $(STAMP) ## Lint, formatting and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(STAMP) ## Format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

reproduce-table1: $(STAMP) ## Table 1 of the TIGEr paper, ours beside the published numbers (needs CAPBENCH_DATA)
	$(BIN)/capbench correlate configs/tiger-table1.yaml $(ROWS_MAY_WAIT)

reproduce-table2: $(STAMP) ## Table 2 of the TIGEr paper (needs CAPBENCH_DATA)
	$(BIN)/capbench correlate configs/tiger-table2.yaml $(ROWS_MAY_WAIT)

reproduce-%: scripts/reproduce/%.mk $(STAMP) ## Train and evaluate the networks of a results page: reproduce-flickr8k-grid, ... (scripts/reproduce/; needs CAPBENCH_DATA; minutes to hours)
	$(MAKE) -f $< CAPBENCH=$(BIN)/capbench

# PAPERS_ARGS: features and models, such as '--features FILE --model tiger=FILE'.
reproduce-all: $(STAMP) ## Every table and figure of the five papers, as far as data is at hand; resumes (needs CAPBENCH_DATA; hours at first)
	$(BIN)/capbench papers all $(PAPERS_ARGS) $(ROWS_MAY_WAIT)

leaderboard: $(STAMP) ## Compute the numbers of results/leaderboard again and write their tables (needs CAPBENCH_DATA; minutes)
	$(BIN)/python scripts/leaderboard.py
	$(BIN)/python scripts/result_tables.py
	$(BIN)/python scripts/readme.py

leaderboard-check: $(STAMP) ## Compare results/leaderboard with what is computed; without CAPBENCH_DATA, schemas and checksums only
	$(BIN)/python scripts/leaderboard.py --check

# BENCH_ARGS: such as '--only meteor spice --no-store'.
bench: $(STAMP) ## Compare time, memory and outputs with other implementations; writes results/bench/small.json
	$(BIN)/python -m scripts.bench $(BENCH_ARGS)

bench-full: $(STAMP) ## The same on large inputs (hours; 8 GB of memory); writes results/bench/full.json
	$(BIN)/python -m scripts.bench --size full $(BENCH_ARGS)

clean: ## Remove the virtual environment and caches
	rm -rf $(VENV) $(LOWEST_VENV) $(CORE_VENV) build dist .pytest_cache .mypy_cache .ruff_cache
