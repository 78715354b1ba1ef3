# `make help` lists the targets.
.PHONY: help test
PYTHON ?= python3

help:
	@grep -hE '^[a-z][a-z-]*:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/'

.venv/ok: pyproject.toml
	$(PYTHON) -m venv .venv
	.venv/bin/pip install -q -e '.[dev]'
	touch $@

test: .venv/ok ## set up and run the tests
	.venv/bin/pytest
