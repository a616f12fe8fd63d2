# Two commands do everything on a fresh machine: `make serve` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
CLIENTS := tests/clients/node_modules/.installed
LOCOMO ?=
# Packages, also those that a build needs, get the versions that were tested; `make lock` renews them.
LOCK := constraints.txt
INSTALL := $(BIN)/pip install --quiet --constraint $(LOCK)
# The parts of the tests; each is what one part of the program has to show. Longest first.
PARTS := engine three server matrices being orchestrator postgres
TESTS_OF_being := tests/dialects/being
TESTS_OF_orchestrator := tests/dialects/orchestrator
# Every tool and route of every dialect, against other spaces, scopes and odd input. With the part
# `server` this is what the server has to show; apart, the two can run beside each other.
TESTS_OF_matrices := $(addprefix tests/server/test_,errors.py isolation.py scopes.py)
TESTS_OF_server := $(addprefix --ignore=,$(TESTS_OF_matrices)) tests/cli tests/clients tests/server
# What no test there uses, and is slow to load.
OPTIONS_OF_matrices := -p no:schemathesis
OPTIONS_OF_server := $(OPTIONS_OF_matrices)
TESTS_OF_three := $(addprefix --ignore=,$(TESTS_OF_being) $(TESTS_OF_orchestrator)) tests/dialects
TESTS_OF_engine := $(addprefix --ignore=,tests/dialects tests/cli tests/clients tests/server) tests
# A selection of the engine's tests with PostgreSQL behind it; `make test-postgres` runs all that can.
TESTS_OF_postgres := $(shell $(PYTHON) tests/postgres_selection.py --smoke)
OPTIONS_OF_postgres := -p no:schemathesis
unit-postgres test-postgres: export COMMONPLACE_TEST_ENGINE := postgres
UNITS := $(addprefix unit-,$(PARTS))
# For `make quick`: the tests that tell most for their time, from every room and dialect.
QUICK := $(wildcard tests/test_text_*.py) \
  $(addprefix tests/test_,docs.py lock.py storage_sql.py) \
  $(addprefix tests/test_engine_,artifacts.py chains.py checks.py clusters.py commonplace.py \
    commonplace_units.py conversations.py events.py facts.py filters.py links.py memories.py \
    memories_usage.py recall.py timeline.py) \
  tests/server/test_gate.py tests/server/test_dialect_commonplace.py \
  tests/dialects/clawbrain/test_tools.py tests/dialects/orchestrator/test_palace.py

.PHONY: serve test test-postgres quick lint unit unit-quick $(UNITS) soak bench docs lock cowork clean

serve: $(VENV)/.installed
	$(BIN)/commonplace serve

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Commonplace needs Python 3.11 or newer; run make PYTHON=python3.12 …")'
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) --upgrade pip

$(VENV)/.installed: $(VENV)/bin/python pyproject.toml tools/build_model.py $(LOCK)
	$(INSTALL) pip
	$(INSTALL) --build-constraint $(LOCK) --editable '.[all]'
	touch $@

$(VENV)/.test: $(VENV)/.installed
	$(INSTALL) --group test
	touch $@

$(VENV)/.bench: $(VENV)/.installed
	$(INSTALL) --group bench
	touch $@

# Clients that others wrote, which the tests talk to the server with (Node.js 20 or newer, and npm).
$(CLIENTS): tests/clients/package.json tests/clients/package-lock.json
	npm ci --prefix tests/clients --no-audit --no-fund --ignore-scripts --loglevel error
	touch $@

test: lint unit cowork

# While working: lint, types and the tests that tell most, in under a minute. Needs no npm.
quick: $(VENV)/.test
	$(MAKE) --jobs=2 --output-sync=target lint unit-quick

unit-quick: $(VENV)/.test
	$(BIN)/pytest -q -p no:cacheprovider -p no:schemathesis $(QUICK)

lint: $(VENV)/.test
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Two at a time; each tells all it has to tell when it has ended.
unit: $(VENV)/.test $(CLIENTS)
	$(MAKE) --jobs=2 --output-sync=target $(UNITS)

$(UNITS): unit-%: $(VENV)/.test $(CLIENTS)
	$(BIN)/pytest -m "not soak" -p no:cacheprovider $(OPTIONS_OF_$*) $(TESTS_OF_$*)

test-postgres: $(VENV)/.test
	$(BIN)/pytest -m "not soak" -p no:cacheprovider $(OPTIONS_OF_postgres) tests/postgres \
	  $(shell $(PYTHON) tests/postgres_selection.py)

# The long reliability runs, part by part; what has passed on this commit is not run again.
# One part: `make soak PART=kills`. The parts: `make soak OPTIONS=--list`. All again: OPTIONS=--again.
soak: $(VENV)/.test
	$(BIN)/python tools/soak.py $(OPTIONS) $(PART)

bench: $(VENV)/.bench $(CLIENTS)
	$(BIN)/python -m bench $(if $(LOCOMO),--locomo $(LOCOMO))

docs: $(VENV)/.test
	$(BIN)/python tools/write_docs.py

lock: $(VENV)/bin/python
	$(BIN)/python tools/lock.py

# The TypeScript example of the Being contract against a real being; needs node and npm.
cowork: $(VENV)/.installed
	$(BIN)/python tools/cowork.py

clean:
	rm -rf $(VENV) tests/clients/node_modules .mypy_cache .ruff_cache .pytest_cache .hypothesis .soak build dist
