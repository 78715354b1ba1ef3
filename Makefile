# `make help` lists the targets. `make demo` and `make test` need Python 3.11+, git and make; they set up all the rest.
.DEFAULT_GOAL := help
.PHONY: help demo test check lint test-unit test-slurm \
	testbed testbed-shell testbed-stop soak bench evidence lock clean env env-demo slurm horovod

PYTHON ?= python3
VENV ?= .venv
# options of `python -m venv`, e.g. --system-site-packages to use a torch that a module provides
VENV_ARGS ?=
# folder of the demo campaign
DEMO ?= demo
# cluster of the test bed: juwels, vega or jupiter
CLUSTER ?= juwels
# more options for pytest, e.g. make test PYTEST_ARGS="-k ledger -x"
PYTEST_ARGS ?=
# options of the soak, e.g. make soak SOAK_ARGS="--kills 40 --out build/kills"
SOAK_ARGS ?=

bin := $(VENV)/bin
setup = $(PYTHON) scripts/setup_env.py --venv $(VENV) --venv-args="$(VENV_ARGS)"
# byte code is written even where the shell's user has switched it off: hundreds of test processes would compile again
python_env = env -u PYTHONDONTWRITEBYTECODE
lint = $(bin)/ruff check --quiet . && $(bin)/ruff format --check --quiet . && $(bin)/mypy --no-error-summary
run_tests = scripts/run_tests.sh $(bin)/python

help: ## list the targets
	@grep -hE '^[a-z][a-z-]*:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

demo: env-demo ## install, then run a whole small campaign on this machine (folder: DEMO=demo)
	@$(python_env) PATH="$(abspath $(bin)):$$PATH" scripts/demo.sh "$(DEMO)"

test: env slurm horovod ## install all that the tests need, real Slurm included, and run checks and tests
	@code=0; { $(lint); } || code=1; $(run_tests) $(PYTEST_ARGS) || code=1; exit $$code

check: lint test-unit ## what needs no Slurm and no root

lint: env ## ruff and mypy
	@$(lint)

test-unit: env ## tests without Slurm
	@$(python_env) $(bin)/python -m pytest $(PYTEST_ARGS) --ignore=tests/slurm

test-slurm: env slurm ## tests against real Slurm clusters
	@$(run_tests) $(PYTEST_ARGS) tests/slurm

testbed: env slurm ## start three real Slurm clusters on this machine, to use by hand
	@$(bin)/python -m tests.slurm.testbed start

testbed-shell: ## a shell on the login side of one, e.g. make testbed-shell CLUSTER=vega
	@$(bin)/python -m tests.slurm.testbed shell $(CLUSTER)

testbed-stop: ## stop them
	@$(bin)/python -m tests.slurm.testbed stop

soak: env slurm ## kill submit 1,000 times on those clusters: docs/evidence/kills.md (about an hour)
	@$(python_env) $(bin)/python -m tests.slurm.soak $(SOAK_ARGS)

bench: env ## our own speed as ratios: a table and benchmarks/results.json
	@$(python_env) $(bin)/python -m benchmarks

evidence: env ## write docs/evidence/ISSUE.md, e.g. make evidence ISSUE=main-job
	@$(python_env) $(bin)/python scripts/evidence.py $(ISSUE)

horovod: env ## build Horovod for this environment's torch (minutes, once) and install it
	@scripts/build_horovod.sh $(bin)/python

lock: env ## renew requirements/*.txt from pyproject.toml
	@scripts/lock.sh $(bin)/uv

clean: ## remove what these targets made (.venv and the demo folder stay)
	rm -rf .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist

env:
	@$(setup) ci

env-demo:
	@$(setup) demo

slurm:
	@scripts/install_debian.sh
