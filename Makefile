# PYTHON: which interpreter makes .venv. PIP_ARGS: passed to pip, for example an index that has a CPU-only torch.
# WORKERS: processes that run the tests.
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	"$$p" -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo "$$p" && break; done)
PIP_ARGS ?=
BIN := .venv/bin
STAMP := .venv/.installed
TARGET := build/target/config.json
WORKERS ?= 2

.PHONY: venv demo generated test test-all test-cpus lint docs clean
.DELETE_ON_ERROR:

venv: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "make: no Python 3.11 or newer with venv found on PATH: pass PYTHON=..." >&2; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet $(PIP_ARGS) --constraint constraints.txt --editable '.[dev]'
	@touch $@

demo: venv
	$(BIN)/python examples/smollm2/demo.py

lint: venv
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	rm -rf build/typecheck && mkdir -p build/typecheck
	$(BIN)/python -c 'import setuptools; setuptools.setup()' --quiet \
		egg_info --egg-base build/typecheck build_py --build-lib build/typecheck
	$(BIN)/mypy --package driftscope

# The real target of the example pair, downloaded and converted once.
$(TARGET): | venv
	$(BIN)/python examples/smollm2/target.py $(dir $(TARGET))

# One thread a worker: two torch processes with a thread per core each slow one another down.
test: lint $(TARGET)
	OMP_NUM_THREADS=1 $(BIN)/pytest -n $(WORKERS) --dist loadfile

# With the tests that take minutes each; what these gave is committed.
test-all: test
	OMP_NUM_THREADS=1 $(BIN)/pytest -n $(WORKERS) --dist loadfile -m nightly --record tests/nightly-results.json

# The numeric tests again under every instruction set that this CPU has. QUICK=--quick: with one thread, and without the real pair.
test-cpus: $(TARGET)
	$(BIN)/python -m tests.cpus $(QUICK)

# What the pages say of results and of the code's own tables, made anew.
generated: venv
	$(BIN)/python docs/fill.py
	$(BIN)/python -m tests.support
	$(BIN)/python -m tests.summary_schema
	$(BIN)/python -m tests.checkpoints.layouts

docs: venv
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

clean:
	rm -rf build/lib build/bdist.* build/typecheck build/site dist driftscope.egg-info
	rm -rf .pytest_cache .hypothesis .mypy_cache .ruff_cache
	find driftscope probes app tests examples benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
