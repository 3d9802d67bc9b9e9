# `make help` lists the targets. Every target prepares the environment it needs by itself.

# The interpreter that makes the environment; any Python >= 3.10.
PYTHON ?= python3
# Test processes; 0 runs everything in one.
WORKERS ?= 2
# More for pytest: make test PYTEST_ARGS="-x -k gate", or the path of a test file.
PYTEST_ARGS ?=

VENV_PYTHON := .venv/bin/python

.DEFAULT_GOAL := help
.PHONY: help install environment python test lint lint-ruff lint-format lint-types format zoo fuzz bench compare demo docs release-check clean

help:  ## list the targets
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

install:  ## prepare the environment (packages in a shared cache, .venv in this clone)
	@$(PYTHON) tools/environment.py

environment:
	@$(PYTHON) tools/environment.py --quiet

python:  ## print the path of the environment's interpreter, and nothing else, on stdout
	@$(PYTHON) tools/environment.py --print-python

# One thread for each of several processes: with all threads in each they get in each other's way.
ifneq ($(WORKERS),0)
test: export OMP_NUM_THREADS ?= 1
endif
# Some virtual machines announce AMX but cannot run it, and any bfloat16 product ends the process there.
test: export ONEDNN_MAX_CPU_ISA ?= AVX512_CORE_BF16
test: environment  ## run the tests
	@$(VENV_PYTHON) -m pytest -q -n $(WORKERS) --dist worksteal $(PYTEST_ARGS)

lint: lint-ruff lint-format lint-types  ## ruff check, ruff format --check, mypy

lint-ruff: environment
	@$(VENV_PYTHON) -m ruff check .

lint-format: environment
	@$(VENV_PYTHON) -m ruff format --check .

lint-types: environment
	@$(VENV_PYTHON) -m mypy src

format: environment  ## sort imports, repair what ruff can, format
	@$(VENV_PYTHON) -m ruff check --fix-only --quiet .
	@$(VENV_PYTHON) -m ruff format .

zoo: environment  ## prove the cut on many known architectures; writes docs/coverage.md
	@$$($(PYTHON) tools/environment.py --extra zoo --print-python) -m benchmarks.zoo

fuzz: environment  ## prove the cut on random networks
	@$(VENV_PYTHON) -m benchmarks.fuzz

bench: environment  ## time the start, attach, compact and the training step
	@$(VENV_PYTHON) -m benchmarks.start
	@$(VENV_PYTHON) -m benchmarks.core

compare: environment  ## compare all methods on digits: a table and a figure in runs/compare-digits
	@.venv/bin/pcshrink compare digits --budgets 0.4 --seeds 1 --jobs $(if $(filter 0,$(WORKERS)),1,$(WORKERS)) \
		--set epochs.dense=6 --set epochs.shrink=6 --set epochs.settle=6 --out runs/compare-digits

demo: environment  ## shrink a small network from end to end
	@.venv/bin/pcshrink demo

docs: export NO_MKDOCS_2_WARNING = 1
docs: environment  ## build the documentation site in site/; readable without a network
	@$$($(PYTHON) tools/environment.py --extra docs --print-python) -m mkdocs build --quiet --strict
	@echo "open site/index.html (to search in it as well: $(PYTHON) -m http.server --directory site)"

release-check: environment  ## build wheel and sdist, install the wheel into fresh environments, use it
	@$$($(PYTHON) tools/environment.py --extra release --print-python) tools/release_check.py $(if $(KEEP),--keep $(KEEP))

clean:  ## remove .venv, caches and builds of this clone (the shared packages stay)
	@rm -rf .venv build dist site src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage htmlcov
	@find src tests testing tools benchmarks examples -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true
