# Everything runs in .venv, which the first target that needs it creates.
VENV ?= .venv
PYTHON ?= python3
# The version that the tests and figures last ran with. Any torch >= 2.7 works: make demo TORCH=torch
TORCH ?= torch==2.13.0
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check "$(TORCH)"

.PHONY: demo test test-slow test-all test-full test-llama test-lowest coverage fuzz dist lint format bench bench-gpu bench-peers docs clean clean-environments

# What a user does with the text recipe, on generated messages: two minutes at most on one idle core. One thread: the
# network is small, and on busy cores several threads spend most of their time waiting for each other.
QUIET := OMP_NUM_THREADS=1 TRANSFORMERS_VERBOSITY=error HF_HUB_DISABLE_PROGRESS_BARS=1 HF_DATASETS_DISABLE_PROGRESS_BARS=1
demo: $(VENV)/.installed
	@rm -rf out/demo
	@echo "1. Generate messages to a support desk, and a small encoder with random weights"
	@$(QUIET) $(BIN)/python -m hf_focal.demo.data out/demo
	@echo; echo "2. Fine-tune it with five losses, fit a correction to the validation messages, and fold it in"
	@$(QUIET) $(BIN)/python recipes/text_classification.py --config recipes/configs/demo.yaml \
		--losses cross_entropy,label_smoothing,focal:gamma=3,flsd53,adafocal --output_dir out/demo/models
	@echo; echo "3. Compare the models on the test messages"; echo
	@$(QUIET) $(BIN)/hf-focal report out/demo/models --output out/demo/report.html

# Tests in one file share trained models; keeping the order of the files starts the long ones early.
PARALLEL := -n auto --dist loadfile --no-loadscope-reorder
test: $(VENV)/.installed-test
	$(BIN)/python -m pytest $(PARALLEL) -m "not slow"

# The tests that `make test` leaves out: several processes, whole recipes, every guide.
test-slow: $(VENV)/.installed-test
	$(BIN)/python -m pytest $(PARALLEL) -m "slow and not full"

# Both in one run.
test-all: $(VENV)/.installed-test
	$(BIN)/python -m pytest $(PARALLEL)

# The tests that need timm, TRL, PEFT, DeepSpeed, int8, Ray, Dask, Spark, peers of the corrections, or Chromium, with the newest
# versions, in a separate environment of 6 GB. DeepSpeed compiles with the environment's ninja.
FULL_VENV ?= .venv-full
test-full: $(FULL_VENV)/.installed
	PATH="$(abspath $(FULL_VENV))/bin:$$PATH" $(FULL_VENV)/bin/python -m pytest $(PARALLEL) -m full

# A real language model behind llama.cpp's server, which is compiled first: about 10 minutes of one core. It is compiled
# for any processor, because a virtual machine may lack instructions that its processor has, and pip's cache may have it
# compiled for this one.
test-llama: $(FULL_VENV)/.installed-llama
	$(FULL_VENV)/bin/python -m pytest -m full tests/choices/test_real_language_model.py

# The lines of hf_focal that the tests run, including in the processes that they start.
coverage: $(VENV)/.installed-test
	$(BIN)/python -m pytest $(PARALLEL) --cov --cov-report term-missing:skip-covered --cov-fail-under 95

# Broken files and hostile names. Repeat a failure with tests/fuzz/fuzz.py --seed.
FUZZ_MINUTES ?= 15
fuzz: $(VENV)/.installed-test
	OMP_NUM_THREADS=1 $(BIN)/python tests/fuzz/fuzz.py --minutes $(FUZZ_MINUTES)

# The tests with the oldest versions that pyproject.toml allows, resolved by uv, in a separate environment.
# The oldest Transformers needs torchvision for its image processors.
LOWEST_VENV ?= .venv-lowest
test-lowest: $(LOWEST_VENV)/.installed
	$(LOWEST_VENV)/bin/python -m pytest $(PARALLEL)

# The files of a release, in dist/.
dist: $(VENV)/.installed-test
	rm -rf dist
	$(BIN)/python -m build
	$(BIN)/python -m twine check --strict dist/*

lint: $(VENV)/.installed-test
	! git grep -nE '^(<<<<<<<|>>>>>>>) '
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/.installed-test
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# The files in benchmarks/results, and the tables of the pages at the end: 22 minutes on two cores.
bench: $(VENV)/.installed-test
	$(BIN)/python -m benchmarks.speed.loss --rounds 2 --json benchmarks/results/loss.json
	$(BIN)/python -m benchmarks.speed.metrics --rounds 3 --json benchmarks/results/metrics.json
	$(BIN)/python -m benchmarks.exactness.optimizer_steps --json benchmarks/results/exactness.json
	$(BIN)/python -m benchmarks.speed.token_calibration --threads 1 --rounds 3 --json benchmarks/results/token_calibration.json
	$(BIN)/python -m benchmarks.speed.linear_loss --threads 1 --tokens 1024 --rounds 2 --json benchmarks/results/linear_loss.json
	$(BIN)/python -m benchmarks.speed.linear_loss --sharded --threads 1 --tokens 2048 --vocabularies 32000 \
		--json benchmarks/results/linear_loss_sharded.json
	$(BIN)/python -m benchmarks.speed.tree_lstm --threads 1 --rounds 10 --json benchmarks/results/tree_lstm.json
	$(BIN)/python -m benchmarks.speed.dynamics --rounds 1 --json benchmarks/results/dynamics.json
	$(BIN)/python -m benchmarks.speed.training_step --threads 1 --steps 5 --rounds 4 --json benchmarks/results/training_step.json
	$(MAKE) bench-peers

# The figures and tables of benchmarks/peers.md, in a separate environment because the other libraries have many
# dependencies. They need a torchvision whose build matches that of torch, so pip chooses both.
PEERS_VENV ?= .venv-peers
bench-peers: $(PEERS_VENV)/.installed $(VENV)/.installed-test
	$(PEERS_VENV)/bin/python -m benchmarks.exactness.edge_cases --json benchmarks/results/peers.json
	$(PEERS_VENV)/bin/python -m benchmarks.speed.peers --rounds 3 --json benchmarks/results/peers.json
	$(PEERS_VENV)/bin/python -m benchmarks.speed.scores
	$(BIN)/python -m benchmarks.tables

# Losses, heads, metrics and training steps on a GPU, in the environment that `python` names, with the kernels of Liger
# and Apple if they are installed.
bench-gpu:
	mkdir -p out
	$(PYTHON) -m benchmarks.speed.gpu --json out/gpu.jsonl

# The website, in site/. (The variable silences a note that Material for MkDocs prints about its successor.)
docs: $(VENV)/.installed-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml $(VENV)/bin/python
	$(INSTALL) -e .
	touch $@

$(VENV)/.installed-test: pyproject.toml $(VENV)/bin/python
	$(INSTALL) -e ".[test]" -e recipes/papers
	touch $@ $(VENV)/.installed

$(VENV)/.installed-docs: pyproject.toml $(VENV)/bin/python
	$(INSTALL) -e ".[docs]"
	touch $@ $(VENV)/.installed

$(PEERS_VENV)/.installed: pyproject.toml
	$(PYTHON) -m venv $(PEERS_VENV)
	$(PEERS_VENV)/bin/python -m pip install --quiet --disable-pip-version-check -e ".[peers]"
	touch $@

$(FULL_VENV)/.installed: pyproject.toml
	$(PYTHON) -m venv $(FULL_VENV)
	$(FULL_VENV)/bin/python -m pip install --quiet --disable-pip-version-check uv
	$(FULL_VENV)/bin/uv pip install --quiet --python $(FULL_VENV) -e ".[test,full]" \
		-e recipes/papers
	touch $@

$(FULL_VENV)/.installed-llama: $(FULL_VENV)/.installed
	CMAKE_ARGS="-DGGML_NATIVE=OFF" $(FULL_VENV)/bin/python -m pip install --quiet --no-cache-dir \
		"llama-cpp-python[server]>=0.3.16"
	touch $@

$(LOWEST_VENV)/.installed: pyproject.toml
	$(PYTHON) -m venv $(LOWEST_VENV)
	$(LOWEST_VENV)/bin/python -m pip install --quiet --disable-pip-version-check uv
	$(LOWEST_VENV)/bin/uv pip install --quiet --python $(LOWEST_VENV) --resolution lowest-direct -e ".[test]" \
		"torchvision>=0.22" -e recipes/papers
	touch $@

# What a build leaves; out/ stays, which may hold hours of experiments.
clean:
	rm -rf site build dist *.egg-info recipes/papers/*.egg-info .coverage .coverage.*

# The environments with the names that this file gives them; one that was passed as a variable stays.
clean-environments:
	rm -rf .venv .venv-full .venv-lowest .venv-peers
