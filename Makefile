# `make reproduce` and `make test` are all a new clone needs: each sets up .venv on first use, the first with the package
# and what it imports, all others with what tests, notebooks and documentation need, too.

PYTHON ?= python3
SCALE ?= laptop
FIGURES ?=
PAGE ?= docs/faults.md
BIN := .venv/bin
PACKAGE := .venv/.package
READY := .venv/.ready
INSTALL := $(BIN)/python -m pip install --no-compile --quiet --disable-pip-version-check -c constraints.txt
TESTED := OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE=

.PHONY: reproduce test test-fast real campaigns lint docs lab notebooks bench clean

# Its processes keep the bytecode of what they import, also in containers that forbid it: compiling all that is installed
# takes as long as installing it.
reproduce: $(PACKAGE)
	PYTHONDONTWRITEBYTECODE= $(BIN)/ihlab reproduce $(FIGURES) --scale $(SCALE)
	$(BIN)/python -m figures.results

# Every test and process computes on one thread, so two go side by side, and a third where tests wait for processes; a
# file's slow tests stay together, for what they share.
# Python keeps what it compiles, which containers often forbid: hundreds of processes would compile the same modules.
# The fast ones check the shapes of arrays at run time, the slow ones do not (tests/conftest.py).
test: test-fast
	$(TESTED) $(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder -m "slow and not rare"

# While one works: what neither starts processes nor compiles nor trains for long.
test-fast: $(READY)
	$(TESTED) $(BIN)/python -m pytest -n 2 --dist worksteal -m "not slow and not rare"

# The finders on a pretrained model, against plain transformers code. Downloads 93 MB once; five minutes on one core.
real: $(READY)
	$(INSTALL) -e '.[dev,real]'
	$(BIN)/python -m tests.real.fetch
	$(TESTED) $(BIN)/python -m pytest -m slow tests/real

# What is long: kills, damage, hostile values and strangers' files by the thousand, all families of models, all
# notebooks, compiled graphs. An hour. `make test` has a sample. It writes the counts to PAGE.
campaigns: $(READY)
	$(TESTED) $(BIN)/python -m pytest -n 2 -m rare
	$(TESTED) $(BIN)/python -m tests.faults --page $(PAGE)

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# The site, in site/: open site/index.html. It runs no notebook.
docs: $(READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

lab: $(READY)
	$(BIN)/jupyter lab notebooks

# Executes all notebooks, and stores a still of each picture to explore, which needs Chromium.
notebooks: $(READY)
	$(BIN)/jupyter execute --inplace notebooks/*.ipynb
	$(BIN)/python notebooks/stills.py notebooks/*.ipynb

bench: $(READY)
	$(BIN)/python benchmarks/run.py

# A stamp is older than what decides the environment whenever that changes, and only then.
$(PACKAGE): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(INSTALL) -e .
	touch $@

$(READY): $(PACKAGE)
	$(INSTALL) -e '.[dev]'
	touch $@

clean:
	rm -rf .venv build site *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
