# `make demo` and `make test` do everything on a machine with Python 3.11 and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

RECORDS ?= ../shared/calibration/measurements_dev.json

FUZZ ?=

SURFACE ?=

QUANTIZED := PYTHONPATH=tests/quantized:tests/support $(BIN)/python tests/quantized

JOBS ?= 2

SEED ?= 100000

MUTANTS ?=

.PHONY: demo test types lit test-all durations mutants bench faults fuzz fuzz-compiled surface fuzz-tw fuzz-quantized calibration conformance docs clean venv

venv: $(STAMP)

$(STAMP): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --upgrade "setuptools>=77"
	$(BIN)/pip install --quiet --disable-pip-version-check --no-build-isolation -e ".[dev]"
	touch $(STAMP)

demo: $(STAMP)
	$(BIN)/python examples/demo.py

# basedpyright takes one processor; the lit tests have the other one meanwhile.
test: $(STAMP)
	$(BIN)/ruff check .
	@$(MAKE) --no-print-directory -j2 types lit
	$(BIN)/pytest -q -n $(JOBS) --dist worksteal

types: $(STAMP)
	$(BIN)/basedpyright

lit: $(STAMP)
	$(BIN)/lit -q -j $(JOBS) lit_tests

# The first tier, then the second: a twentieth of all cases (SEED says which) with all examples of hypothesis, new ones too,
# and in both memories; and campaigns.
test-all: test
	TESTS=all PART=$(SEED) HYPOTHESIS_PROFILE=search $(BIN)/pytest -q -n $(JOBS) --dist worksteal
	PYTHONPATH=tests $(BIN)/python -m fuzz.campaign --seconds 120 --jobs $(JOBS) --seed $(SEED)
	PYTHONPATH=tests $(BIN)/python -m fuzz.campaign --dynamic --seconds 120 --jobs $(JOBS) --seed $(SEED)
	PYTHONPATH=tests $(BIN)/python -m fuzz.campaign --spellings --seconds 120 --jobs $(JOBS) --seed $(SEED)
	PYTHONPATH=tests $(BIN)/python -m fuzz.campaign --stacks --seconds 120 --jobs $(JOBS) --seed $(SEED)
	PYTHONPATH=tests $(BIN)/python -m fuzz.files --count 300 --seed $(SEED)
	PYTHONPATH=tests $(BIN)/python -m fuzz.npu_text --count 300 --seed $(SEED)
	PYTHONPATH=tests $(BIN)/python -m surface.campaign --parts 50 --part $(SEED)
	PYTHONPATH=tests/frontends $(BIN)/python tests/frontends/fuzz_tw.py 4000
	$(QUANTIZED)/test_layers.py --programs 10 --first $(SEED)
	$(QUANTIZED)/test_chains.py --programs 30 --first $(SEED) --bytes-every 3
	$(QUANTIZED)/test_stored_chains.py --programs 30 --first $(SEED) --bytes-every 3
	$(BIN)/python tests/faults/campaign.py --each 2 --host 4 --random 8 --fuzz 12 --jobs $(JOBS)
	$(BIN)/python tests/faults/open_campaign.py --each 12 --fuzz 8
	$(BIN)/python tests/conformance/run_onnx.py --jobs $(JOBS)
	$(if $(wildcard ../shared/conformance/suite_loader.py),$(BIN)/python tests/conformance/run_conformance.py --bytes-every 4 && \
		$(BIN)/python tests/conformance/run_dynamic.py --bytes-every 4,\
		@echo "no ../shared/conformance: its programs are left out")

# What each test of the first tier takes, where nothing is compiled yet: tests/support/durations.json
durations: $(STAMP)
	rm -rf build/durations build/xla
	DURATIONS=1 $(BIN)/pytest -q -n $(JOBS) --dist worksteal
	PYTHONPATH=tests/support $(BIN)/python tests/support/durations.py

# One-line mutants of the compiler: MUTANTS="--count 20 --only passes/npu"
mutants: $(STAMP)
	$(BIN)/python tests/mutants/run_mutants.py --jobs $(JOBS) $(MUTANTS)

faults: $(STAMP)
	$(BIN)/python tests/faults/campaign.py
	$(BIN)/python tests/faults/open_campaign.py

fuzz: $(STAMP)
	PYTHONPATH=tests $(BIN)/python -m fuzz.campaign $(FUZZ)

# What recognisers look for in all spellings, and 3,000 stacks of layers as nets have them, for four chips
fuzz-compiled: $(STAMP)
	PYTHONPATH=tests $(BIN)/python -m fuzz.campaign --spellings --count 4000 --jobs $(JOBS) $(FUZZ)
	PYTHONPATH=tests $(BIN)/python -m fuzz.campaign --stacks --count 3000 --jobs $(JOBS) $(FUZZ)

surface: $(STAMP)
	PYTHONPATH=tests $(BIN)/python -m surface.campaign $(SURFACE)

# Random quantized layers and programs against models in numpy: 1,000 of each
fuzz-quantized: $(STAMP)
	$(QUANTIZED)/test_layers.py
	$(QUANTIZED)/test_chains.py $(FUZZ)
	$(QUANTIZED)/test_stored_chains.py $(FUZZ)

bench: $(STAMP)
	$(BIN)/python benchmarks/run.py
	$(BIN)/python benchmarks/models.py

calibration: $(STAMP)
	$(BIN)/tilewright calibrate $(RECORDS) --page docs/calibration.md --plot docs/calibration.png

conformance: $(STAMP)
	$(BIN)/python tests/conformance/run_conformance.py
	$(BIN)/python tests/conformance/run_dynamic.py

fuzz-tw: $(STAMP)
	PYTHONPATH=tests/frontends $(BIN)/python tests/frontends/fuzz_tw.py

docs: $(STAMP)
	$(BIN)/python docs/reference/generate.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet --strict
	@echo "build/site/index.html (with search: python3 -m http.server -d build/site)"

clean:
	rm -rf $(VENV) build *.egg-info .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
