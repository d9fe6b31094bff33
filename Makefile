# make quickstart     set up, train the embedded default, evaluate it
# make test           set up, run the tests but the slow ones: minutes
# make test-all       set up, run all tests: half an hour of two cores
# make check          set up; lint, format, types, all tests
# The newest supported Python is taken; PYTHON=python3.12 before or after any of them chooses another. Each version has an
# environment of its own.

SUPPORTED := 3.13 3.12
# On PATH, then where pyenv and uv keep theirs. One that does not run (a shim of pyenv) or cannot make an environment is none.
ifndef PYTHON
PYTHON := $(shell for version in $(SUPPORTED); do \
  for python in python$$version python3 "$${PYENV_ROOT:-$$HOME/.pyenv}"/versions/$$version.*/bin/python$$version \
      "$${UV_PYTHON_INSTALL_DIR:-$${XDG_DATA_HOME:-$$HOME/.local/share}/uv/python}"/cpython-$$version.*/bin/python$$version; do \
    found=$$("$$python" -c 'import ctypes, ensurepip, ssl, sys, venv; print("%d.%d" % sys.version_info[:2])' 2>/dev/null); \
    if [ "$$found" = $$version ]; then command -v "$$python"; exit; fi; \
  done; done; echo python3)
endif
# Two test processes already fill two cores; more than four gain little, since compilation itself is threaded.
TEST_FLAGS ?= -n logical --maxprocesses=4 --dist=loadfile --no-loadscope-reorder
QUICKSTART ?= runs/quickstart
LIVE_PAGE := build/extra/live.html

VERSION := $(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)
VENV := .venv-$(VERSION)
BIN := $(VENV)/bin
PINS := requirements/pinned.txt
STAMP := $(VENV)/.installed
# The libraries that commands import, without TensorFlow, which takes longer to compile than all of them.
IMPORTED := absl cloudpickle colorama etils flatbuffers flax google humanize jax jaxlib jaxtyping ml_collections ml_dtypes \
  msgpack numpy opt_einsum optax orbax portalocker pygments regex rich sacrebleu sentencepiece simplejson tabulate tensorboardX \
  tensorstore typing_extensions.py uvloop wadler_lindig yaml

.DEFAULT_GOAL := help
.PHONY: help setup quickstart test test-all lint types check docs pins clean print-python

help:
	@echo "make quickstart   train the embedded default to the end, print test BLEU and translations"
	@echo "make test         run the tests but the slow ones, which train whole runs"
	@echo "make test-all     run all tests"
	@echo "make check        lint, format, types, all tests"
	@echo "make docs         build the pages of docs/ into build/site, with a live page of the quickstart run; no broken link"
	@echo "make setup        only create the environment ($(VENV))"
	@echo "make pins         write $(PINS) from uv.lock, with uv"
	@echo "make clean        remove environments and caches (never runs/)"
	@echo "Add PYTHON=python3.12 to choose an interpreter; now it is $(PYTHON) ($(VERSION))."

quickstart: setup
	@$(BIN)/transformer-jax quickstart --workdir=$(QUICKSTART)

test: setup
	@echo "$(PYTHON) ($(VERSION)), $(VENV)"
	@$(BIN)/python tests/cpu_budget.py $(BIN)/python -m pytest $(TEST_FLAGS) -m "not slow"

test-all: setup
	$(BIN)/python -m pytest $(TEST_FLAGS)

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup
	$(BIN)/mypy

check: lint types test-all

docs: setup $(LIVE_PAGE)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check 'sphinx>=8' 'myst-nb>=1.3' 'furo>=2025.7' \
	  'latex2mathml>=3.78'
	$(BIN)/python -m sphinx --quiet --fail-on-warning --keep-going -c docs . build/site
	@cp build/site/README.html build/site/index.html

# The site has the live page of the quickstart run, which is trained if there is none: the answers of docs/learn/lesson.md are its own.
$(LIVE_PAGE): $(QUICKSTART)/outcome.json | setup
	@mkdir -p $(dir $@)
	@$(BIN)/transformer-jax explore --workdir=$(QUICKSTART) --live --checkpoints=all --output=$@ \
	  --text="Before my duck goes through the hotels this week, he repairs my quiet table slowly."

$(QUICKSTART)/outcome.json: | setup
	@$(BIN)/transformer-jax quickstart --workdir=$(QUICKSTART)

# After a change of dependencies: uv lock && make pins
pins:
	@UV_PYTHON=$(PYTHON) uv export --quiet --frozen --no-hashes --no-emit-project --no-annotate --extra=dev --output-file=$(PINS)

setup: $(STAMP)

print-python:
	@echo $(BIN)/python

# Made anew whenever a pin or the package's description changes; written last, so an interrupted set-up is done again.
$(STAMP): $(PINS) pyproject.toml Makefile
	@case "$(VERSION)" in \
	  3.12|3.13) ;; \
	  "") echo "make: $(PYTHON) does not run; install Python 3.12 or 3.13, or say which: make PYTHON=/path/to/python" >&2; exit 2 ;; \
	  *) echo "make: $(PYTHON) is Python $(VERSION); 3.12 or 3.13 is needed: make PYTHON=/path/to/python" >&2; exit 2 ;; \
	esac
	@echo "Setting up $(VENV) with $(PYTHON) from $(PINS), once: a minute on an idle machine, up to eight on a busy one."
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --progress-bar=on --disable-pip-version-check --no-compile -r $(PINS)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@# Here, since Python keeps no bytecode of its own where PYTHONDONTWRITEBYTECODE is set, as in many containers: every command
	@# would compile these libraries again, 2.4 CPU seconds. Now it takes about 10 CPU seconds, and 56 MB.
	@$(BIN)/python -m compileall -q -j 0 -x '/tests?/' $(IMPORTED:%=$(VENV)/lib/python$(VERSION)/site-packages/%) transformer_jax
	@touch $(STAMP)
	@echo "Done; to use it: source $(VENV)/bin/activate"

clean:
	rm -rf .venv-3.* build dist *.egg-info .cache .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find transformer_jax tests configs -name __pycache__ -type d -prune -exec rm -rf {} +
