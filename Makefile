# Everything works from a fresh clone: each target installs what it needs into .venv first, once.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
ARGS ?=
# What was left out without ACCEPT_GPL=1 is installed with it.
AGAIN := $(and $(filter 1,$(ACCEPT_GPL)),$(wildcard $(VENV)/.without-gpl),again)

export PYTHONDONTWRITEBYTECODE :=  # the programs that the tests start would be compiled at each start

.DEFAULT_GOAL := help
.PHONY: again help run test test-all durations lint format docs setup clean
help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-9s %s\n", $$1, $$2}' Makefile

run: $(VENV)/.run  ## a first run: the bundled problems on the bundled model (more options: make run ARGS="workflow=vanilla")
	$(BIN)/python main.py $(ARGS)

test: $(VENV)/.all  ## the tests that take up to 0.4 s, and one for each promise of the README
	$(BIN)/python -m pytest -n 2 --dist loadfile -m "not slow" $(ARGS)

test-all: $(VENV)/.all  ## all tests
	$(BIN)/python -m pytest -n 2 --dist loadfile --durations=20 --durations-min=5 $(ARGS)

durations: $(VENV)/.all  ## all tests, timed: which of them `make test` leaves out (tests/durations.json)
	$(BIN)/python -m pytest -n 2 --dist loadfile --store-durations $(ARGS)

lint: $(VENV)/.all  ## check style, types and size
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright -p pyproject.toml
	$(BIN)/python tests/sizes.py --check

format: $(VENV)/.all  ## mend style and format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(VENV)/.all  ## build the site of the documentation in site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build

setup: $(VENV)/.all  ## make .venv with every extra; asks before those with GPL parts

clean:  ## remove .venv
	rm -rf $(VENV)

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13) and "Python 3.11 to 3.13 is needed: make PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)

# scripts/install.py installs by uv, else by pip, and asks before parts under the GPL (ACCEPT_GPL=1 says yes).
$(VENV)/.run: pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python scripts/install.py run
	@touch $@

$(VENV)/.all: pyproject.toml constraints.txt $(AGAIN) | $(BIN)/python
	$(BIN)/python scripts/install.py setup
	@touch $@ $(VENV)/.run
