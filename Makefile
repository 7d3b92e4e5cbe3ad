# make reproduce   set up, run every notebook's quick preset, build the book
# make test        set up, lint, run the fast tests, the notebooks and the strict book build
# make check       set up, run the slow checks: browser, kill and resume, sweeps, real data
# make notebooks   execute the notebooks and store them with their outputs; NOTEBOOK=name for one of them
#
# PYTHON=python3.12 chooses the interpreter, VENV=path the environment, PIP_ARGS="--index-url ..." where packages come from.

PYTHON   ?= python3
VENV     ?= .venv
PIP_ARGS ?=
OUT      ?= out
BIN      := $(VENV)/bin
RUNS     := $(abspath $(OUT))/runs
RUN      := $(BIN)/python
# One thread a process: the work of most tests is too small to share.
PYTEST   := OMP_NUM_THREADS=1 $(RUN) -m pytest --numprocesses logical --maxprocesses 4
# Changes whenever a dependency or a pin does, so an environment is only touched when it has to be.
STAMP    := $(VENV)/paper_lib-installed

# With this variable set, a notebook stores no figure and still succeeds.
unexport MPLBACKEND
# Waiting threads sleep: spinning ones cost more than they gain wherever something else runs as well.
export OMP_WAIT_POLICY := passive
# Runs of the code as it is. Records of older code, in a user's own folder, would stand in for it.
export PAPER_LIB_RUNS := $(RUNS)

.PHONY: reproduce test check install lint book nbval notebooks clean
.NOTPARALLEL:

reproduce: install $(RUNS)/code
	$(RUN) scripts/notebooks.py run $(OUT)
	$(RUN) scripts/book.py

test: lint book nbval
	$(PYTEST) --dist worksteal -m "not slow and not browser"

check: book $(RUNS)/code
	$(PYTEST) --dist worksteal -m "slow or browser or real_data" -rs

install: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("Python 3.11 or newer is needed; $(PYTHON) is " + sys.version.split()[0] + ". Name another one: make PYTHON=python3.12")'
	test -x $(RUN) || $(PYTHON) -m venv $(VENV)
	$(RUN) -m pip install --quiet --constraint constraints.txt $(PIP_ARGS) --editable ".[book,test,browser,flows,sweep]"
	$(RUN) -m pip check
	touch $@

# Empty when the package has changed since.
$(RUNS)/code: $(shell find paper_lib -name '*.py')
	rm -rf $(RUNS)
	mkdir -p $(RUNS)
	touch $@

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

book: install
	$(RUN) scripts/book.py

# Every stored notebook runs again, and what it prints must be what is stored.
nbval: install $(RUNS)/code
	$(PYTEST) --dist loadscope -o addopts= --nbval --nbval-current-env --nbval-sanitize-with tests/nbval.cfg \
		--nbval-cell-timeout 300 notebooks

notebooks: install $(RUNS)/code
	$(RUN) scripts/notebooks.py store $(NOTEBOOK)

clean:
	rm -rf $(OUT) book/_build
