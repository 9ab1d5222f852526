# The two commands of the README, and what they stand on.
PYTHON ?= python3
VENV ?= .venv
EXTRAS ?= compile,dev
BIN = $(VENV)/bin
INSTALLED = $(VENV)/installed-$(subst $(comma),-,$(EXTRAS))
comma = ,

.PHONY: demo test test-slow test-phone clean

demo: $(INSTALLED)
	$(BIN)/mft demo

test: $(INSTALLED)
	$(BIN)/python -m pytest

# The longer checks, while they fit: what has not begun after MINUTES is skipped.
MINUTES ?= 45
test-slow: $(INSTALLED)
	$(BIN)/python -m pytest -m slow --minutes $(MINUTES) -rs --durations=15

# SmolLM2 the whole way on an arm64 phone under qemu, over ssh and over adb.
test-phone: $(INSTALLED)
	$(BIN)/python -m pytest -m phone tests/phone/test_complete_run.py -rs --durations=5

$(INSTALLED): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[$(EXTRAS)]'
	touch $@

clean:
	rm -rf $(VENV) demo-run bundles/build
