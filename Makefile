# make demo, make test and make lint each set up all they need in .venv first. Wanted: Python 3.10 or newer with venv.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test lint format docs clean

demo: .venv/ready
	$(BIN)/scorefield demo --out demo

test: lint
	$(BIN)/pytest --numprocesses 2 --dist worksteal

lint: .venv/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: .venv/ready
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: .venv/ready
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs site
	@echo "open site/index.html"

clean:
	rm -rf .venv demo site

.venv/ready: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
		{ echo "scorefield needs Python 3.10 or newer; name one with: make PYTHON=/path/to/python3"; exit 1; }
	@echo "setting up .venv: a minute or so, longer where PyTorch must be downloaded (2 GB and more with CUDA)"
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@
