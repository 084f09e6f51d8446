# Two commands set everything up: `make demo` and `make test`. Everything lives in .venv.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
export GOMP_SPINCOUNT ?= 1000
export HF_HUB_OFFLINE ?= 1

.PHONY: demo test test-slow test-gpu check format bench install

install: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[train,math,tensorboard,dev]'
	@touch $@

demo: install
	$(BIN)/assay run loophole

test: install
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 --dist loadfile --ignore tests/rewards/code
	OMP_NUM_THREADS=1 $(BIN)/pytest tests/rewards/code  # alone: it counts the processes of this machine
	@if [ -x /usr/bin/chromium ]; then OMP_NUM_THREADS=1 $(BIN)/pytest -m browser; else echo 'chromium is absent: browser tests skipped'; fi

test-slow: install
	$(BIN)/pytest -m 'slow or learning' --timeout 3600

test-gpu: install
	$(BIN)/pytest -m gpu --timeout 600

check: install
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright --pythonpath $(BIN)/python  # not the interpreter on PATH, which lacks the dependencies

format: install
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: install
	$(BIN)/python benchmarks/math_checks.py
	$(BIN)/python benchmarks/sandbox.py
	$(BIN)/python benchmarks/chunked_logprob.py
	$(BIN)/pip install --quiet -c constraints.txt -e '.[trl]'
	$(BIN)/python benchmarks/against_trl.py
	$(BIN)/python benchmarks/against_trl.py --lengths spread
	$(BIN)/python benchmarks/busy_neighbour.py
	$(BIN)/python benchmarks/truth_vs_trl.py --methods grpo:sorting grpo:proofs
