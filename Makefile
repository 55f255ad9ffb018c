# Everything runs from a bare clone: each target makes the environment first.
VENV := .venv
BIN := $(VENV)/bin
PYTHON ?= python3
STAMP := $(VENV)/.installed
# Tests mostly wait for the servers and processes that they start: two run at a time, those of a file one after the
# other, in the order in which they are collected: the longest first.
JOBS ?= -n 2 --dist loadfile --no-loadscope-reorder
# Compiled modules are kept, whatever the shell says: the tests start hundreds of processes.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: setup demo test test-long check format bench clean

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt scripts/setup hatch_build.py src/tailrace/log/_message.h \
		src/tailrace/log/_payload.c src/tailrace/log/_pick.c src/tailrace/delivery/_join.c \
		src/tailrace/pipeline/_images.c src/tailrace/source/postgres/_rows.c
	@PYTHON=$(PYTHON) scripts/setup $(VENV)
	@touch $@

demo: setup
	@$(BIN)/tailrace demo $(DEMO)

test: setup
	@scripts/browser >/dev/null || true
	@scripts/servers || true
	@scripts/spark-venv 4.2.1 $(VENV)/spark-4.2.1 || true
	@scripts/spark-venv 3.5.9 $(VENV)/spark-3.5.9 || true
	@$(BIN)/python scripts/run-tests $(JOBS) $(TESTS)

test-long: setup
	@scripts/browser >/dev/null || true
	@scripts/servers || true
	@scripts/spark-venv 4.2.1 $(VENV)/spark-4.2.1 || true
	@scripts/spark-venv 3.5.9 $(VENV)/spark-3.5.9 || true
	@LONG_TESTS=1 $(BIN)/python scripts/run-tests $(JOBS) $(TESTS)

check: setup
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/lint-imports
	@$(BIN)/mypy

format: setup
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

bench: setup
	@$(BIN)/python -m bench $(BENCH)

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis
