# One entry for everything, the same on a desk and in CI. `make` alone lists the targets.

PYTHON ?= $(shell python3.11 -c '' 2>/dev/null && echo python3.11 || echo python3)
BIN := .venv/bin
CODE := $(wildcard src tests examples benchmarks)
# Extra arguments for one run, such as `make bench ARGS=--quick` or `make simulate ARGS=--json`.
ARGS ?=

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help test lint format types demo bench simulate seeds soak clean

help: ## print this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' Makefile

test: lint ## lint, check types and run the whole suite (what CI runs)
	tests/whole.sh $(BIN)/python $(ARGS)

lint: .venv/.installed ## check rules and format
	$(BIN)/ruff check $(CODE)
	$(BIN)/ruff format --check $(CODE)

format: .venv/.installed ## mend what can be mended by machine
	$(BIN)/ruff check --fix $(CODE)
	$(BIN)/ruff format $(CODE)

types: .venv/.installed ## mypy --strict
	$(BIN)/mypy

demo: .venv/.installed ## a bad network, a fleet with a killed vehicle, recorded; live tables, a report (2 minutes)
	$(BIN)/python examples/demo.py $(ARGS)

bench: .venv-bench/.installed ## the same work done by Hubbub and by its peers (minutes)
	.venv-bench/bin/python -m benchmarks $(ARGS)

simulate: .venv/.installed ## 100 seeds of every scenario under virtual time
	$(BIN)/hubbub simulate --scenario all --seeds 0:100 $(ARGS)

# An environment is installed again only when what it is made from has changed.
# By PEP 517, because the pip of some systems warns of every other way.
.venv/.installed: pyproject.toml
	@echo "Installing into .venv, once: about 0.5 GB are loaded, Spark and a Java for it included. Minutes of silence are normal."
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --use-pep517 --editable '.[dev]'
	@touch $@

# A peer that cannot be installed here must not stop the others: the table names it as missing.
.venv-bench/.installed: pyproject.toml benchmarks/requirements.txt
	$(PYTHON) -m venv .venv-bench
	.venv-bench/bin/python -m pip install --quiet --disable-pip-version-check --editable .
	grep -Ev '^[[:space:]]*(#|$$)' benchmarks/requirements.txt | while read -r peer; do \
	  .venv-bench/bin/python -m pip install --quiet --disable-pip-version-check "$$peer" \
	    || echo "make bench: $$peer cannot be installed" >&2; \
	done
	@touch $@

seeds: .venv/.installed ## a thousand seeds of every scenario (hours; goes on where it stopped, in any clone)
	$(BIN)/python -m tests.simulation.counting $(ARGS)

# The soak leaves a stamp for each piece of work that passed, under a hash of the code it passed with:
# interrupted, it goes on where it stopped, and changed code starts afresh.
hash_of = $$(find $(1) -name '*.py' | LC_ALL=C sort | xargs cat | sha1sum | cut -c1-12)

soak: .venv/.installed ## the full count of every promise (hours; goes on where it stopped)
	@tests=.soak/$(call hash_of,src tests) && \
	  $(MAKE) --no-print-directory --keep-going -f Makefile seeds soak-pieces SOAK=$$tests

SOAK_TESTS := $(shell grep -rl --include='*.py' 'mark\.soak' tests 2>/dev/null)

.PHONY: soak-pieces
soak-pieces: $(SOAK_TESTS:%=$(SOAK)/%.passed)
	@echo "soak: everything passed ($(SOAK))"

$(SOAK)/%.passed:
	HUBBUB_SOAK=1 $(BIN)/python -m pytest -m soak --timeout 0 $*
	@mkdir -p $(@D) && touch $@

clean: ## remove everything that was made, environments included
	rm -rf .venv .venv-bench .soak demo-output build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find $(CODE) -name __pycache__ -type d -prune -exec rm -rf {} +
