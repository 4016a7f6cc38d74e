# The verbs of the project, the same on a laptop and in CI. They need make, Python 3.11 with venv, and a package index;
# Java 17 comes as a Python package where the machine has none.

SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help setup demo test test-slow lint format typecheck bench screenshots lock clean

# Run, not only found: a version manager may put a python3.11 on the PATH that refuses to start.
PYTHON ?= $(shell for p in python3.11 python3 /usr/bin/python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' 2>/dev/null && echo $$p && break; done)

BIN := .venv/bin
LOCK := conf/locks/cpu.txt
STAMP := .venv/.setup
TORCH_INDEX ?= https://download.pytorch.org/whl/cpu
ARGS ?=
ONLY ?=

help: ## show these verbs
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(STAMP) ## .venv with the locked packages for a CPU, and this project, editable

$(STAMP): $(LOCK) pyproject.toml
	@if [ -z "$(PYTHON)" ]; then \
		echo "make setup: neither python3.11 nor python3 is Python 3.11 (python3: $$(python3 --version 2>&1))." >&2; \
		echo "Install Python 3.11 with its venv module, or name one: make setup PYTHON=/path/to/python3.11" >&2; exit 1; fi
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' || { \
		echo "make setup: PYTHON=$(PYTHON) is not Python 3.11." >&2; exit 1; }
	@test -x $(BIN)/pip || $(PYTHON) -m venv .venv || { \
		echo "make setup: $(PYTHON) cannot make a virtual environment; on Debian: apt-get install python3.11-venv" >&2; exit 1; }
	@# The CPU build of torch is on no plain index: from the links that pip is set up with, or from PyTorch's own.
	@torch=$$(grep '^torch==' $(LOCK)) && echo "install $$torch" && { \
		$(BIN)/pip install -qq --no-deps "$$torch" 2>/dev/null || \
		$(BIN)/pip install -qq --no-deps --index-url $(TORCH_INDEX) "$$torch"; }
	@# Without dependencies: the lock is whole, and leaves out on purpose what conf/locks/overrides.txt names.
	@echo "install $$(grep -c == $(LOCK)) locked packages: a minute or two"
	@# uv takes seconds where pip takes minutes, but does not know pip's index: pip where it fails.
	@grep -v '^torch==' $(LOCK) > .venv/lock.txt
	@{ $(BIN)/pip install -qq "$$(grep '^uv==' $(LOCK))" && $(BIN)/uv pip install -q --no-deps -r .venv/lock.txt; } || \
		$(BIN)/pip install -qq --use-pep517 --no-deps -r .venv/lock.txt
	@$(BIN)/pip install -qq --no-deps --editable .
	@# uv leaves this out. An engine is three processes that import vLLM: 46 s to start without, 23 s with it. Packages
	@# carry files that are no Python of this version (templates, tests): those are passed over.
	@echo "compile to bytecode"
	@$(BIN)/python -m compileall -qq -j 0 .venv/lib || true
	@touch $@

demo: setup ## the whole path on this machine: Spark -> Ray -> vLLM -> Spark (ARGS="--rows 200 --json")
	$(BIN)/platform-plugin demo $(ARGS)

test: setup ## quick tests, then those with real engines
	$(BIN)/python -m pytest tests -n 2 --dist loadfile $(ARGS)
	$(BIN)/python -m pytest integration_tests $(ARGS)

test-slow: setup ## the cases that `make test` leaves out, some 15 minutes more
	$(BIN)/python -m pytest integration_tests -m slow $(ARGS)

lint: setup ## ruff, without changing a file
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: setup ## ruff, mending what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

typecheck: setup ## mypy, strict
	$(BIN)/mypy --strict platform_plugin udf_compat

bench: setup ## measurements (ONLY=name: one of them)
	$(BIN)/python -m integration_tests.bench $(ONLY)

screenshots: setup ## MLflow's pages of two tracked runs, to build/screenshots (needs Chromium)
	$(BIN)/python -m integration_tests.screenshots

# uv knows nothing of pip's links: they are passed on, and without any it asks PyTorch's index by itself.
lock: setup ## resolve pyproject.toml again into conf/locks/cpu.txt
	@echo "# Made by \`make lock\` from pyproject.toml; installed with --no-deps by \`make setup\`." > $(LOCK).new
	$(BIN)/python -m uv pip compile -q pyproject.toml --extra cpu --extra demo --extra evaluation --extra connect --extra delta \
		--extra notebook --extra dev --override conf/locks/overrides.txt --python-version 3.11 \
		$(if $(PIP_FIND_LINKS),--find-links $(PIP_FIND_LINKS),--torch-backend cpu) \
		--no-emit-find-links --no-emit-index-url --no-header --no-annotate >> $(LOCK).new
	@grep -q '^torch==.*+cpu$$' $(LOCK).new || { rm $(LOCK).new; \
		echo "make lock: no CPU build of torch found; set PIP_FIND_LINKS to a folder that has one." >&2; exit 1; }
	@mv $(LOCK).new $(LOCK)

clean: ## remove what builds and tests leave; .venv stays
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis spark-warehouse metastore_db derby.log
	find platform_plugin udf_compat tests integration_tests -name __pycache__ -prune -exec rm -rf {} +
