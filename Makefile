# Two commands do everything on a fresh machine: `make serve` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
CLIENTS := tests/clients/node_modules/.installed
OPENCLAW := tests/clients/openclaw/node_modules/.installed
LOCOMO ?=
# Packages, also those that a build needs, get the versions that were tested; `make lock` renews them.
LOCK := constraints.txt
INSTALL := $(BIN)/pip install --quiet --constraint $(LOCK)
# The parts of the tests; each is what one part of the program has to show. Longest first.
PARTS := engine three server matrices being orchestrator web postgres
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
TESTS_OF_engine := $(addprefix --ignore=,tests/dialects tests/cli tests/clients tests/integrations tests/server tests/web) tests
# The pages, in a real Chromium.
TESTS_OF_web := tests/web
OPTIONS_OF_web := -p no:schemathesis
# A selection of the engine's tests with PostgreSQL behind it; `make test-postgres` runs all that can.
TESTS_OF_postgres := $(shell $(PYTHON) tests/postgres_selection.py --smoke)
OPTIONS_OF_postgres := -p no:schemathesis
unit-postgres test-postgres: export COMMONPLACE_TEST_ENGINE := postgres
TEST_PART = $(BIN)/pytest -m "not soak" -o cache_dir=build/tests/$* $(OPTIONS_OF_$*) $(TESTS_OF_$*)
UNITS := $(addprefix unit-,$(PARTS)) unit-frameworks unit-hermes
# For `make quick`: the tests that tell most for their time, from every room and dialect.
QUICK := $(wildcard tests/test_text_*.py) \
  $(addprefix tests/test_,docs.py lock.py storage_sql.py) \
  $(addprefix tests/test_engine_,artifacts.py chains.py checks.py clusters.py commonplace.py \
    commonplace_units.py conversations.py events.py facts.py filters.py links.py memories.py \
    memories_usage.py recall.py timeline.py) \
  tests/server/test_gate.py tests/server/test_dialect_commonplace.py \
  tests/dialects/clawbrain/test_tools.py tests/dialects/orchestrator/test_palace.py

.PHONY: serve test test-postgres quick lint unit unit-quick $(UNITS) soak bench docs screenshots lock cowork clean

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

# A Chromium for the tests of the pages: any that is installed, or Debian's where that is allowed.
$(VENV)/.chromium: $(VENV)/.test
	@for name in "$$COMMONPLACE_TEST_CHROME" chromium chromium-browser google-chrome google-chrome-stable; do \
	  test -n "$$name" && command -v "$$name" > /dev/null && exit 0; done; \
	  apt-get install --yes --no-install-recommends chromium || \
	  { apt-get update && apt-get install --yes --no-install-recommends chromium; } || \
	  { echo "Install Chromium, or set COMMONPLACE_TEST_CHROME to a Chrome of yours." >&2; exit 1; }
	touch $@

# Clients that others wrote, which the tests talk to the server with (Node.js 20 or newer, and npm).
$(CLIENTS): tests/clients/package.json tests/clients/package-lock.json
	npm ci --prefix tests/clients --no-audit --no-fund --ignore-scripts --loglevel error
	touch $@

# 830 MB, for one part of `make soak`.
$(OPENCLAW): tests/clients/openclaw/package.json tests/clients/openclaw/package-lock.json
	npm ci --prefix tests/clients/openclaw --no-audit --no-fund --ignore-scripts --loglevel error
	touch $@

# Debian's packages that tests of several servers start. Elsewhere, install them by hand.
PROGRAMS := pgbouncer nginx
$(VENV)/.programs: $(VENV)/bin/python
	@export PATH="$$PATH:/usr/sbin"; for each in $(PROGRAMS); do command -v $$each >/dev/null || \
	  $(if $(filter 0,$(shell id -u)),,sudo -n) apt-get install --yes --quiet $$each || \
	  { echo "Install the package $$each: a test needs it."; exit 1; }; done
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

# Two at a time; each tells all it has to tell when it has ended. What fails while two parts share
# the machine is run once more by itself, so that a test that only ran out of time does not fail the
# whole: its first failure stays in the output, and the second one counts.
unit: $(VENV)/.test $(VENV)/.programs $(VENV)/.chromium $(CLIENTS)
	$(MAKE) --jobs=2 --output-sync=target $(UNITS)

$(addprefix unit-,$(PARTS)): unit-%: $(VENV)/.test $(VENV)/.programs $(CLIENTS)
	rm -rf build/tests/$*
	$(TEST_PART) || { test $$? -eq 1 && echo "$@: running again what failed" && \
	  $(TEST_PART) --last-failed --last-failed-no-failures=none; }

# Agent frameworks need other versions of some packages: each set has an environment of its own, in
# which the packages of $(VENV) are found after its own.
.venv-%/.installed: tests/integrations/%.txt $(VENV)/.test
	$(PYTHON) -m venv .venv-$*
	.venv-$*/bin/pip install --quiet --requirement $<
	$(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' \
	  > $$(.venv-$*/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/commonplace.pth
	echo '$(CURDIR)/src' >> $$(.venv-$*/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/commonplace.pth
	touch $@

unit-frameworks: .venv-frameworks/.installed
	.venv-frameworks/bin/python -m pytest -p no:cacheprovider -p no:schemathesis \
	  --ignore=tests/integrations/test_hermes.py tests/integrations

unit-hermes: .venv-hermes/.installed
	.venv-hermes/bin/python -m pytest -p no:cacheprovider -p no:schemathesis tests/integrations/test_hermes.py

unit-web: $(VENV)/.chromium

test-postgres: $(VENV)/.test $(VENV)/.programs $(VENV)/.chromium
	$(BIN)/pytest -m "not soak" -p no:cacheprovider $(OPTIONS_OF_postgres) tests/postgres \
	  $(shell $(PYTHON) tests/postgres_selection.py)
	COMMONPLACE_TEST_WITHOUT_SPACE=1 $(BIN)/pytest -p no:cacheprovider $(OPTIONS_OF_postgres) \
	  tests/server/test_isolation.py

# The long reliability runs, part by part; what has passed on this commit is not run again.
# One part: `make soak PART=kills`. The parts: `make soak OPTIONS=--list`. All again: OPTIONS=--again.
soak: $(VENV)/.test $(VENV)/.programs $(OPENCLAW)
	$(BIN)/python tools/soak.py $(OPTIONS) $(PART)

bench: $(VENV)/.bench $(CLIENTS)
	$(BIN)/python -m bench $(if $(LOCOMO),--locomo $(LOCOMO))

docs: $(VENV)/.test
	$(BIN)/python tools/write_docs.py
	$(BIN)/python tools/write_static.py
	$(BIN)/python tools/write_plugin.py

# Pictures of every page of the console, in build/screenshots; OPTIONS=--docs renews those of the docs.
screenshots: $(VENV)/.test $(VENV)/.chromium
	$(BIN)/python tools/screenshots.py $(OPTIONS)

lock: $(VENV)/bin/python
	$(BIN)/python tools/lock.py

# The TypeScript example of the Being contract against a real being; needs node and npm.
cowork: $(VENV)/.installed
	$(BIN)/python tools/cowork.py

clean:
	rm -rf $(VENV) .venv-frameworks .venv-hermes tests/clients/node_modules tests/clients/openclaw/node_modules .mypy_cache .ruff_cache .pytest_cache .hypothesis .soak build dist
