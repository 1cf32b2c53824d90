# make demo | docs | pages | test | test-slow | test-trained | test-all | test-matrix
#      lint | format | hooks | clean
# Each builds the environment that it needs first.
PYTHON ?= python3
VENV ?= .venv
BACKEND ?= both
WORKERS ?= 2

PYTHONS ?= 3.11 3.12 3.13
CONSTRAINTS ?= constraints$(shell $(PYTHON) -c 'import sys; print("-3.12" * (sys.version_info >= (3, 12)))').txt

BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

.PHONY: demo docs pages test test-slow test-trained test-all test-matrix lint format hooks clean

demo: $(INSTALLED)
	$(BIN)/python examples/demo.py --backend $(BACKEND)

# What cells print and draw is kept in docs/_build/cells until they change. They run in full, with all steps,
# where a tag is checked out, and by make docs FULL=1.
docs: export FULL ?= $(shell git describe --tags --exact-match 2>/dev/null)
docs: export OMP_NUM_THREADS ?= 1
docs: $(INSTALLED)
	$(BIN)/sphinx-build -W -n --keep-going -j $(WORKERS) -b html docs docs/_build/html

# What is generated in the pages: the code of their cells, and tables.
PAGES := cells experiments how_fast names rule_books supported_operations
pages: $(INSTALLED)
	for name in $(PAGES); do $(BIN)/python docs/$$name.py || exit 1; done

# One thread per worker: the workers already fill the cores. SUITE is fast, slow (what tests/slow.json
# names, by seconds of the processor) or all; EVERYTHING=1 leaves no example to another commit.
SUITE ?= fast
CHOSEN_fast := not slow
CHOSEN_slow := slow
CHOSEN_all := slow or not slow
test: export OMP_NUM_THREADS ?= 1
test: export EVERYTHING ?=
test: $(INSTALLED)
	$(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal -m "$(CHOSEN_$(SUITE))" $(OPTIONS)

test-slow test-all:
	$(MAKE) test SUITE=$(@:test-%=%)

# Trains the networks of tests/data anew, stores them, and checks them: after a change of their rules.
test-trained: export OMP_NUM_THREADS ?= 1
test-trained: $(INSTALLED)
	TRAIN_ANEW=1 $(BIN)/python -m pytest -q -m trained

# The wheel with each of these Pythons (versions or paths), with the oldest and the newest dependencies.
test-matrix:
	$(PYTHON) -m tests.project.matrix $(PYTHONS)

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	mkdir -p build/names && ln -sfn ../../guides build/names/moment_guides
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(INSTALLED)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

hooks: $(INSTALLED)
	$(BIN)/pre-commit install

clean:
	rm -rf build dist docs/_build *.egg-info .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache

$(INSTALLED): pyproject.toml constraints.txt $(CONSTRAINTS)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --disable-pip-version-check -c $(CONSTRAINTS) \
		-e ".[pyro,numpyro,diagnostics,examples,dev,docs]"
	touch $@
