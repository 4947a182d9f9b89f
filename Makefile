# `make app` and `make test` are all a newcomer needs: each makes .venv when it is missing or older than what it pins.
SHELL := bash
.DEFAULT_GOAL := help
PORT ?= 5006
ARGS ?=
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
FIND_PYTHON = for p in $(PYTHON) python3 python3.13 python3.12 python3.11 python; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; break; }; done

unexport PYTHONDONTWRITEBYTECODE # the tests start many processes, and each would compile the package again

.PHONY: help app lab test quick lint audit format bench mutants notebooks docs clean

help: ## say what can be made
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-11s%s\n", $$1, $$2 }' $(MAKEFILE_LIST)

app: .venv/.app ## install and serve the explorer at http://localhost:5006/explorer (PORT=... for another port)
	$(BIN)/python -m gpexplorer serve --port $(PORT)

lab: .venv/.lab ## open JupyterLab on the notebooks folder
	$(BIN)/jupyter trust notebooks/*.ipynb
	$(BIN)/jupyter lab --notebook-dir=notebooks --LabApp.default_url=/lab/tree/first_swap.ipynb

test: .venv/.test .venv/.browser ## install what the tests need, a browser too, and run them all (ARGS="-k swap" for some)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest $(or $(ARGS),-n 3 --dist loadgroup --no-loadscope-reorder --reruns 1)

quick: .venv/.test ## within a minute: lint of the files that differ from main, and the tests that they touch
	OMP_NUM_THREADS=1 $(BIN)/python tests/support/quick.py

lint: .venv/.test ## ruff, types, the import contract, docstrings, and the recipes of CONTRIBUTING
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/python -m numpydoc lint $$(find gpexplorer benchmarks papers -name '*.py')
	$(BIN)/python tests/support/recipes.py

audit: .venv/.test ## ask for known vulnerabilities of the pinned packages; fails when it could not ask
	$(PIP) pip-audit
	$(BIN)/python tests/support/audit.py

format: .venv/.test ## let ruff rewrite what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: .venv/.test ## seconds a swap over the machine's floor, objective and error after each sweep
	$(BIN)/python -m benchmarks cholqr --data kin40k --m 512 $(ARGS)

mutants: .venv/.test ## change one operator or constant of a formula at a time and name what no test notices (ARGS=linalg)
	OMP_NUM_THREADS=1 $(BIN)/python tests/mutants.py $(ARGS)

notebooks: .venv/.test ## run every notebook in place and keep its answers
	$(BIN)/python tests/support/notebook_pictures.py notebooks/*.ipynb

docs: .venv/.docs ## build the documentation into build/docs; a warning is an error
	$(BIN)/python -m mkdocs build --strict
	@echo 'open build/docs/index.html; to search as well: python -m http.server --directory build/docs'

clean: ## remove the environment and everything the tools left
	rm -rf .venv build dist test-results .mypy_cache .ruff_cache .import_linter_cache .pytest_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.venv/.app: pyproject.toml constraints.txt
	@$(BIN)/python -c '' 2>/dev/null || { p=$$($(FIND_PYTHON)); \
		[ -n "$$p" ] || { echo 'gpexplorer needs Python 3.11 or newer: put one on PATH, or say make PYTHON=/path/to/python3.'; exit 1; }; \
		echo "making .venv with $$($$p --version), then installing: two or three minutes"; $$p -m venv --clear .venv; }
	@$(PIP) -e .
	@touch $@

.venv/.test: .venv/.app
	@echo 'installing what the tests need'
	@$(PIP) -e '.[test]'
	@touch $@

.venv/.lab: .venv/.app
	@echo 'installing JupyterLab'
	@$(PIP) -e '.[notebook]'
	@touch $@

.venv/.docs: .venv/.app
	@echo 'installing what the documentation needs'
	@$(PIP) -e '.[docs]'
	@touch $@

.venv/.browser: .venv/.test
	@for b in chromium chromium-browser google-chrome google-chrome-stable; do command -v $$b >/dev/null && exit 0; done; \
		echo 'no Chromium on PATH: fetching one'; \
		$(BIN)/playwright install chromium && exit 0; \
		[ "$$(id -u)" = 0 ] && echo 'you are root: installing Chromium for the whole system by apt-get' && apt-get -qq update && apt-get -qq install -y --no-install-recommends chromium && exit 0; \
		echo 'The page tests need a browser: install chromium or google-chrome, then run make test again.'; exit 1
	@touch $@
