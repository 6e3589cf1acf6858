# Every target sets up .venv first, once, and again only after pyproject.toml or constraints.txt changed.
# Another Python than the first one found: make PYTHON=/path/to/python3.12 test
# More arguments to a tool:                make test ARGS="-k mask"

BIN := .venv/bin
READY := .venv/.ready
ARGS ?=
TSC := npx --yes --package typescript@7.0.2 tsc
NEW_ENOUGH := import sys; sys.exit(sys.version_info < (3, 11))

.PHONY: help setup demo test test-all slow test-plain real contract lint lint-js tsc pictures docs axe format types bench laws house clean python

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' Makefile | awk -F'|' '{ printf "%-16s %s\n", $$1, $$2 }'

setup: $(READY) ## .venv with everything that the other targets need
	@:

demo: $(READY) ## train a small transformer (under a minute) and show what it learned
	@$(BIN)/glassformer demo $(ARGS)

test: $(READY) ## the tests, as on every push
	@$(BIN)/python -m pytest -m "not slow" -n auto -rfEs $(ARGS)

test-all: $(READY) ## the tests, and those that take long
	@$(BIN)/python -m pytest -n auto -rfEs $(ARGS)

slow: $(READY) ## choose anew what `make test` leaves to `make test-all`, by what each test takes (an hour)
	@rm -f .pytest_cache/durations
	@$(BIN)/python -m pytest -n auto -m "not slow" --durations-to $(CURDIR)/.pytest_cache/durations $(ARGS); $(BIN)/python tests/durations.py .pytest_cache/durations

test-plain: $(READY) ## model, training and decoding in plain torch, as without a C++ compiler (minutes)
	@GLASSFORMER_FAST=0 $(BIN)/python -m pytest tests/nn tests/train tests/decode tests/contract tests/fast -m "not slow" -n auto $(ARGS)

real: $(READY) ## published models and vocabularies, as far as they are here (CONTRIBUTING.md says how to get them)
	@$(BIN)/python -m pytest tests/parity/test_real_models.py -rs $(ARGS)

contract: $(READY) ## the laws that every registered variant is held to (4,000 cases; minutes)
	@$(BIN)/python -m pytest tests/contract -n auto $(ARGS)

lint: $(READY) ## form and likely bugs
	@$(BIN)/python -m ruff format --check .
	@$(BIN)/python -m ruff check .

lint-js: ## types of the explorer's page (needs node; a tool for developers)
	@$(TSC) -p tsconfig.json

tsc: # whether the tool of lint-js can be had
	@$(TSC) --version

pictures: $(READY) ## the pictures of docs/explorer.md, of a run: make pictures ARGS=runs/reverse (needs chromium)
	@$(BIN)/python docs/pictures.py $(ARGS)

house: $(READY) ## the picture of the house in docs/architecture.md, from the imports
	@$(BIN)/python docs/house.py

docs: .venv/.docs ## the site, in build/site; it runs the chapters (minutes): ARGS="-D nb_execution_mode=off" does not
	@$(BIN)/python docs/generate.py build/pages
	@$(BIN)/python -m sphinx -q -n -W --keep-going -c docs -d build/doctrees build/pages build/site $(ARGS)
	@echo "Read build/site/index.html."

axe: $(READY) ## accessibility of the site, once `make docs` built it (minutes; needs chromium)
	@$(BIN)/python docs/axe.py $(ARGS)

format: $(READY) ## mend what lint can mend by itself
	@$(BIN)/python -m ruff check --fix .
	@$(BIN)/python -m ruff format .

types: $(READY) ## strict type check of src
	@$(BIN)/python -m basedpyright

bench: $(READY) ## our speed beside that of named peers, in one run
	@$(BIN)/python benchmarks/run.py $(ARGS)

laws: $(READY) ## break one law at a time: the tests must notice each (minutes)
	@$(BIN)/python tests/broken_laws.py $(ARGS)

clean: ## remove .venv and what the tools leave behind; runs/ stays
	rm -rf .venv .pytest_cache .ruff_cache .hypothesis dist build
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

# torch first and alone: its constraint is then met, and the second line cannot replace it by another build.
$(READY): pyproject.toml constraints.txt
	@$(BIN)/python -c '$(NEW_ENOUGH)' 2>/dev/null || { python=$$($(MAKE) -s python) && "$$python" -m venv --clear .venv; }
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(BIN)/python -m ensurepip
	@echo "Setting up .venv, once; torch is large, so this can take minutes." >&2
	@$(BIN)/python -m pip install --quiet --no-input --disable-pip-version-check -c constraints.txt torch==2.13.0
	@$(BIN)/python -m pip install --quiet --no-input --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $(READY)

.venv/.docs: $(READY)
	@$(BIN)/python -m pip install --quiet --no-input --disable-pip-version-check -c constraints.txt -e '.[docs]'
	@touch $@

# Prints the first Python that is new enough and can make a .venv, or says what is missing.
python:
	@old=; bare=; \
	for name in $(or $(PYTHON),python3.11 python3.12 python3.13 python3.14 python3 python); do \
	  "$$name" -c '' 2>/dev/null || continue; \
	  "$$name" -c '$(NEW_ENOUGH)' 2>/dev/null || { old="$$old $$name"; continue; }; \
	  "$$name" -c 'import ensurepip, venv' 2>/dev/null || { bare="$$bare $$name"; continue; }; \
	  echo "$$name"; exit 0; \
	done; \
	if [ -n "$$bare" ]; then \
	  echo "Python is there ($${bare# }) but cannot make a .venv: its venv package is missing." >&2; \
	  echo "On Debian or Ubuntu: apt-get install python3-venv. Then run make again." >&2; \
	else \
	  echo "glassformer needs Python 3.11 or newer; found: $${old:- none}." >&2; \
	  echo "On Debian or Ubuntu: apt-get install python3 python3-venv. Or name one: make PYTHON=/path/to/python3." >&2; \
	fi; \
	exit 1
