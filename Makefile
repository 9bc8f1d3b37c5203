# `make demo` and `make test` do all the set-up themselves, on a machine that has only make and Python 3.11 or newer.
# Both keep their environment in .venv and are quick the second time.

VENV ?= .venv
PYTEST_ARGS ?= -q -n 2

# The first interpreter on this list that runs and is new enough; `make PYTHON=/path/to/python` chooses another.
CANDIDATES := python3 python3.13 python3.12 python3.11 python3.14 python
PYTHON ?= $(shell for python in $(CANDIDATES); do \
	if $$python -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; \
	then echo $$python; break; fi; done)

# What is installed depends on pyproject.toml and on where the checkout is; a change of either installs again.
KEY := $(shell { cat pyproject.toml; pwd; } | cksum | tr ' ' -)
PIP := $(VENV)/bin/python -m pip --disable-pip-version-check install --quiet

.PHONY: demo test test-long chaos lint docs fuzz stubs clean help
.DELETE_ON_ERROR:

help:
	@echo "make demo    install into $(VENV) and train a small digit classifier"
	@echo "make test    install into $(VENV) and run the test suite (PYTEST_ARGS='$(PYTEST_ARGS)')"
	@echo "make test-long   the tests marked slow, and a longer search for bad input"
	@echo "make chaos   kill, stop and cut off the processes of distributed runs, for about ten minutes"
	@echo "make lint    ruff and mypy"
	@echo "make fuzz    damage files and read them for SECONDS=600"
	@echo "make docs    build the documentation site in build/site"
	@echo "make stubs   write the type stubs of what is derived from the op table"
	@echo "make clean   remove $(VENV) and every cache"

demo: $(VENV)/installed-demo-$(KEY)
	@$(VENV)/bin/weft train digits

test: $(VENV)/installed-test-$(KEY)
	$(VENV)/bin/python -m pytest $(PYTEST_ARGS)

# Cases that the suite leaves out: deeper models, more random programs, 200 examples of bad input per function instead of 4.
test-long: $(VENV)/installed-test-$(KEY)
	$(VENV)/bin/python -m pytest $(PYTEST_ARGS) -m slow
	WEFT_FUZZ_EXAMPLES=200 $(VENV)/bin/python -m pytest $(PYTEST_ARGS) tests/ops/test_bad_input.py

# The faults of distributed runs that take long: every fail point, random kills, lost hosts, Ray's control service.
chaos: $(VENV)/installed-test-$(KEY)
	$(VENV)/bin/python -m pytest -q -m 'slow or not slow' tests/distributed/test_faults.py tests/distributed/test_runs.py

lint: $(VENV)/installed-dev-$(KEY)
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check --quiet .
	$(VENV)/bin/mypy

# Damage files and read them, for SECONDS; findings are kept in build/fuzz. FUZZ_ARGS='--only graph' picks targets.
SECONDS ?= 600
FUZZ_ARGS ?=
fuzz: $(VENV)/installed-test-$(KEY)
	$(VENV)/bin/python -m tests.fuzz.run --seconds $(SECONDS) --keep build/fuzz $(FUZZ_ARGS)

docs: $(VENV)/installed-dev-$(KEY)
	NO_MKDOCS_2_WARNING=1 PYTHONPATH=. $(VENV)/bin/mkdocs build --quiet
	@echo "open build/site/index.html"

stubs: $(VENV)/installed-dev-$(KEY)
	$(VENV)/bin/python -m tools.stubs

$(VENV)/made:
	@test -n "$(PYTHON)" || { echo "make: no Python 3.11 or newer with venv found (on Debian and Ubuntu: \
	apt-get install python3-venv). Or name one: make PYTHON=/path/to/python" >&2; exit 1; }
	$(PYTHON) -m venv --clear $(VENV)
	@touch $@

$(VENV)/installed-$(KEY): $(VENV)/made
	$(PIP) --editable .
	@touch $@

$(VENV)/installed-demo-$(KEY): $(VENV)/installed-$(KEY)
	$(PIP) --editable '.[plot]'
	@touch $@

$(VENV)/installed-test-$(KEY): $(VENV)/installed-$(KEY)
	$(PIP) --editable '.[test]'
	@touch $@

$(VENV)/installed-dev-$(KEY): $(VENV)/installed-test-$(KEY)
	$(PIP) --editable '.[test,dev]'
	@touch $@

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
