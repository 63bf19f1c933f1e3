# Set-up and jobs; everything is installed into .venv here, nothing elsewhere.
#
#   make demo     tune one BERT-base encoder block and write a report to out/demo
#   make test     run the tests             make check   format, lint, strict types, layering
#   make setup-cuda   what the target cuda needs, too: CuPy and NVRTC (a GPU is needed to run kernels, not to tune)
#   make fuzz     the differential test for longer: make fuzz MINUTES=60 SEED=100000 TARGET=cuda (emulated; or cpu)
#   make wheel    build the wheel to dist/  make clean   remove what the others made

PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; break; }; done)
VENV   := .venv
BIN    := $(VENV)/bin
DEMO   := out/demo
TESTS  ?= tests
JOBS   ?= 2
MINUTES ?= 20
SEED   ?= 100000
TARGET ?= cpu

.PHONY: demo test fuzz check format wheel clean setup setup-cuda setup-dev
.DELETE_ON_ERROR:

setup: $(VENV)/.runtime
setup-cuda: $(VENV)/.cuda
setup-dev: $(VENV)/.dev

# An executable's first line holds its venv's path, so a venv that moved with its folder is made again.
$(VENV)/.runtime: requirements.lock pyproject.toml
	@test -n "$(PYTHON)" || { echo "Stitchtune needs Python 3.11 or later: install it, or name one with make PYTHON=..." >&2; exit 2; }
	@command -v g++ >/dev/null || command -v clang++ >/dev/null || \
		{ echo "Stitchtune needs a C++ compiler: install g++ (Debian: apt install g++)" >&2; exit 2; }
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --requirement requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)/.cuda: $(VENV)/.runtime requirements-cuda.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --requirement requirements-cuda.lock
	@touch $@

$(VENV)/.dev: $(VENV)/.cuda requirements-dev.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --requirement requirements-dev.lock
	@touch $@

.typing/stitchtune:
	@mkdir -p .typing && ln -sfn .. $@

demo: setup
	@mkdir -p $(DEMO)
	$(BIN)/python examples/weights.py examples/bert_block.onnx $(DEMO)
	$(BIN)/python tune.py $(DEMO)/bert_block.onnx --budget 60 --effort quick --db $(DEMO)/plans.db --out $(DEMO)/report

test: setup-dev
	$(BIN)/python -m pytest -n $(JOBS) $(TESTS)

fuzz: setup-dev
	$(BIN)/python -m tests.differential --pairs 1000000 --minutes $(MINUTES) --seed $(SEED) --jobs $(JOBS) \
		--target $(TARGET)

check: setup-dev .typing/stitchtune
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	MYPYPATH=.typing $(BIN)/mypy --explicit-package-bases --namespace-packages -p stitchtune
	$(BIN)/python -m pytest -q tests/test_layering.py

format: setup-dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

wheel: setup
	rm -rf build dist
	$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir dist .

clean:
	rm -rf $(VENV) .typing build dist out *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
