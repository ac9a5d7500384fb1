# Two commands: `make demo` fine-tunes the encoder of the package, `make test` checks everything. Both install into .venv first.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test slow lint clean

.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "smilex needs Python 3.11 or newer")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

demo: .venv/installed
	$(BIN)/smilex demo

test: lint
	$(BIN)/pytest --numprocesses auto

slow: .venv/installed
	$(BIN)/pytest -m slow

lint: .venv/installed
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy smilex

clean:
	rm -rf .venv build dist smilex.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
