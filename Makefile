# Every target sets up what it needs. `make help` lists them.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SETUP := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help setup test lint types demo bench matrix mutants

help:  ## list the targets
	@awk -F':.*## ' '/^[a-z]+:.*## /{printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(SETUP)  ## make the environment in .venv

# The constraints pin what is tested; an unpinned torch may bring gigabytes of CUDA.
$(SETUP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	touch $@

test: $(SETUP)  ## run the tests
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses 2 --dist worksteal

lint: $(SETUP)  ## check style and formatting
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(SETUP)  ## check types
	$(BIN)/mypy

demo: $(SETUP)  ## pool the losses of a synthetic image and show the weights as a picture
	$(BIN)/python -m losspool.lab.demo demo

bench: $(SETUP)  ## time the loss against F.cross_entropy and the solver against torch.sort
	$(BIN)/python benchmarks/run.py

matrix: $(SETUP)  ## check exactness on a million losses too (the tests stop at ten thousand)
	PYTHONPATH=tests $(BIN)/python tests/scripts/large_matrix.py

mutants: $(SETUP)  ## change the solver in many small ways and see the tests fail
	$(BIN)/python tests/scripts/mutants.py
