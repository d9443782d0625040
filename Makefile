# Every target sets up what it needs. `make help` lists them.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SETUP := $(VENV)/.installed
LAB := $(VENV)/.lab

# Where bytecode is not kept, each process of the tests compiles torch again, for 4 seconds of CPU time.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup test test-clusters test-frameworks test-integrations newer-triton kernels lint types docs demo package \
	schema images bench matrix plans mutants

help:  ## list the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-17s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(SETUP)  ## make the environment in .venv

# The pinned versions need it; pip would only say that it finds none of them.
NEW_VENV = @$(PYTHON) -c 'import sys; sys.exit(None if sys.version_info >= (3, 11) else "make needs Python 3.11 or newer: name one as in make PYTHON=python3.11")' && $(PYTHON) -m venv $(VENV)

# The constraints pin what is tested. Python compiles what is imported; all fifteen thousand files would take a minute.
INSTALL = $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --constraint constraints.txt --editable

$(SETUP): pyproject.toml constraints.txt
	$(NEW_VENV)
	$(INSTALL) '.[dev]'
	touch $(LAB) $@

# The demo needs less, and is somebody's first minute: it does not wait for the tools of the tests.
$(LAB): pyproject.toml constraints.txt
	$(NEW_VENV)
	$(INSTALL) '.[lab]'
	touch $@

test: $(SETUP)  ## run the tests
	$(BIN)/python -m pytest --ignore tests/clusters --numprocesses 4 --dist worksteal

# By file: tests share what they have trained. The order is that of tests/conftest.py.
test-clusters: $(SETUP)  ## run the tests of many processes, two hosts, Ray and Slurm
	$(BIN)/python -m pytest tests/clusters --numprocesses 3 --dist loadfile --no-loadscope-reorder

# Other frameworks, beside torch and the tools of the main environment, which stays free of them. pip would not find a
# set of versions: torchvision's wheel asks for a CUDA build of torch.
FRAMEWORKS := .venv-integrations
FRAMEWORK_PINS := tests/integrations/requirements.txt
TRACKER_PINS := tests/integrations/trackers.txt
INSTALL_PINS = $(BIN)/python -m pip --python $(FRAMEWORKS)/bin/python install --quiet --disable-pip-version-check \
	--no-deps --no-compile --requirement

$(FRAMEWORKS)/.installed: $(SETUP) $(FRAMEWORK_PINS)
	$(BIN)/python -m venv --clear --without-pip $(FRAMEWORKS)
	$(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' \
		> $$($(FRAMEWORKS)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/main.pth
	$(INSTALL_PINS) $(FRAMEWORK_PINS)
	touch $@

$(FRAMEWORKS)/.trackers: $(FRAMEWORKS)/.installed $(TRACKER_PINS)
	$(INSTALL_PINS) $(TRACKER_PINS)
	touch $@

# Files with tests that are skipped where such a package is missing, as in the main environment.
COMPARED := $(addprefix tests/segmentation/,losses/test_public.py models/test_packages.py) \
	tests/segmentation/training/test_networks_train.py::test_another_packages_network_overfits_and_resumes \
	'tests/test_documents.py::test_docstring_examples[losspool.integrations.huggingface]' \
	'tests/test_documents.py::test_docstring_examples[losspool.integrations.lightning]'

# Without W&B and MLflow, whose tests are then skipped: quick enough for every change.
test-frameworks: $(FRAMEWORKS)/.installed  ## run the pages on other frameworks, and what is made for them
	LOSSPOOL_INTEGRATIONS=1 PYTHONPATH=src $(FRAMEWORKS)/bin/python -m pytest tests/integrations $(COMPARED)

test-integrations: $(FRAMEWORKS)/.trackers test-frameworks  ## the same, with W&B and MLflow

# A Triton that no torch brings yet: the kernels must build with it too.
NEWER_TRITON := $(VENV)/triton-3.9.0

$(NEWER_TRITON): | $(SETUP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --no-deps --target $@ triton==3.9.0

newer-triton: $(NEWER_TRITON)

kernels: $(SETUP) $(NEWER_TRITON)  ## run the GPU kernels in Triton's interpreter, and build them for GPUs
	TRITON_INTERPRET=1 LOSSPOOL_KERNELS=interpret NEWER_TRITON=$(abspath $(NEWER_TRITON)) \
		$(BIN)/python -m pytest tests/kernels --numprocesses 2

lint: $(SETUP)  ## check style and formatting
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(SETUP)  ## check types
	$(BIN)/mypy

docs: $(SETUP)  ## build the documentation site in docs/_build
	$(BIN)/sphinx-build --quiet --fail-on-warning --keep-going docs docs/_build

demo: $(LAB)  ## train with the plain loss and with loss max-pooling, and write a report
	$(BIN)/losspool demo

package: $(SETUP)  ## build wheel and sdist, check them, and try the wheel with torch alone
	$(BIN)/python tests/scripts/check_package.py

schema: $(SETUP)  ## write the JSON schema of recipes again, after a change of settings or tables
	$(BIN)/python -m losspool.segmentation.config.json_schema

images: $(SETUP) demo  ## rebuild the README's pictures (needs a Chromium)
	PYTHONPATH=tests $(BIN)/python tests/scripts/report_picture.py

bench: $(SETUP)  ## time the loss against F.cross_entropy and the solver against torch.sort
	$(BIN)/python benchmarks/run.py

matrix: $(SETUP)  ## check exactness on a million losses, on every path (the tests stop at ten thousand)
	PYTHONPATH=tests $(BIN)/python tests/scripts/large_matrix.py

plans: $(SETUP)  ## import, plan and train on five made-up downloads, in all the steps that are planned
	$(BIN)/python tests/scripts/three_commands.py

mutants: $(SETUP)  ## change the solver in many small ways and see the tests fail
	$(BIN)/python tests/scripts/mutants.py
