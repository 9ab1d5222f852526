# The two commands of the README, and what they stand on.
PYTHON ?= python3
VENV ?= .venv
EXTRAS ?= compile,dev
BIN = $(VENV)/bin
INSTALLED = $(VENV)/installed-$(subst $(comma),-,$(EXTRAS))
comma = ,

.PHONY: check demo installed test test-slow test-phone clean

demo: $(INSTALLED)
	$(BIN)/mft demo

# WORKERS=0 runs them one after the other in one process.
WORKERS ?= 2
test: $(INSTALLED)
	$(BIN)/python -m pytest -n $(WORKERS) --durations=15

# Form and types. The links show pyright the package as it is installed: the folders of the checkout below one name.
LINKS = build/types/mobilefinetuner
check: $(INSTALLED)
	mkdir -p $(LINKS)
	for folder in compiler runtime configs templates; do ln -sfn ../../../$$folder $(LINKS)/$$folder; done
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/pyright

# The longer checks, while they fit: what has not begun after MINUTES is skipped.
MINUTES ?= 45
test-slow: $(INSTALLED)
	$(BIN)/python -m pytest -m slow -n $(WORKERS) --minutes $(MINUTES) -rs --durations=15

# SmolLM2 the whole way on an arm64 phone under qemu, over ssh and over adb.
test-phone: $(INSTALLED)
	$(BIN)/python -m pytest -m phone tests/phone/test_complete_run.py -rs --durations=5

installed: $(INSTALLED)

$(INSTALLED): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[$(EXTRAS)]'
	touch $@

clean:
	rm -rf $(VENV) demo-run bundles/build build
