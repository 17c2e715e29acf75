# Everything runs in .venv, which the first target that needs it creates.
VENV ?= .venv
PYTHON ?= python3
# The version that the tests and figures last ran with. Any torch >= 2.7 works: make demo TORCH=torch
TORCH ?= torch==2.13.0
BIN := $(VENV)/bin

.PHONY: demo test test-all test-full test-lowest coverage fuzz dist lint format bench bench-gpu bench-peers docs digits shapes \
	tags topic_sets newsgroups multi30k sst cifar10 imbalance reproduce reproduce-runs reproduce-more clean

# One thread: the network is small, and on busy cores several threads spend most of their time waiting for each other.
demo: $(VENV)/.installed
	OMP_NUM_THREADS=1 $(BIN)/python recipes/text_classification.py --config recipes/configs/demo.yaml --output_dir out/demo \
		--compare cross_entropy,label_smoothing,focal:gamma=3,flsd53,adafocal

# The image recipe on scikit-learn's digits.
digits: $(VENV)/.installed-test
	OMP_NUM_THREADS=1 $(BIN)/python recipes/image_classification.py --config recipes/configs/digits.yaml \
		--output_dir out/digits --compare cross_entropy,focal:gamma=3

# Classes with very unequal frequencies: pixels of generated shapes, words of generated sentences.
IMBALANCE_LOSSES := cross_entropy,focal:gamma=2,recall,recall:ema=0.1,class_balanced
shapes: $(VENV)/.installed-test
	OMP_NUM_THREADS=1 $(BIN)/python recipes/semantic_segmentation.py --config recipes/configs/segmentation_demo.yaml \
		--output_dir out/shapes --compare $(IMBALANCE_LOSSES)

tags: $(VENV)/.installed
	OMP_NUM_THREADS=1 $(BIN)/python recipes/token_classification.py --config recipes/configs/tags_demo.yaml \
		--output_dir out/tags --compare $(IMBALANCE_LOSSES)

# Texts with several labels, whose true probabilities are known.
topic_sets: $(VENV)/.installed
	OMP_NUM_THREADS=1 $(BIN)/python recipes/text_classification.py --config recipes/configs/multi_label_demo.yaml \
		--output_dir out/topic_sets --compare cross_entropy,focal:gamma=2,class_balanced

# Tests in one file share trained models; keeping the order of the files starts the long ones early.
PARALLEL := -n auto --dist loadfile --no-loadscope-reorder
test: $(VENV)/.installed-test
	$(BIN)/python -m pytest $(PARALLEL) -m "not slow"

# All tests, including the slow ones: several processes, whole recipes, every guide.
test-all: $(VENV)/.installed-test
	$(BIN)/python -m pytest $(PARALLEL)

# The tests that need timm, TRL, PEFT, DeepSpeed, peers of the corrections, or Chromium, with the newest versions, in a
# separate environment of 6 GB. DeepSpeed compiles with the environment's ninja.
FULL_VENV ?= .venv-full
test-full: $(FULL_VENV)/.installed
	PATH="$(abspath $(FULL_VENV))/bin:$$PATH" $(FULL_VENV)/bin/python -m pytest $(PARALLEL) -m full

# The lines of hf_focal that the tests run, including in the processes that they start.
coverage: $(VENV)/.installed-test
	$(BIN)/python -m pytest $(PARALLEL) --cov --cov-report term-missing:skip-covered --cov-fail-under 95

# Broken files and hostile names. Repeat a failure with tests/fuzz/fuzz.py --seed.
FUZZ_MINUTES ?= 15
fuzz: $(VENV)/.installed-test
	OMP_NUM_THREADS=1 $(BIN)/python tests/fuzz/fuzz.py --minutes $(FUZZ_MINUTES)

# The tests with the oldest versions that pyproject.toml allows, resolved by uv, in a separate environment.
# The oldest Transformers needs torchvision for its image processors.
test-lowest:
	$(PYTHON) -m venv .venv-lowest
	.venv-lowest/bin/python -m pip install --quiet --disable-pip-version-check uv
	.venv-lowest/bin/uv pip install --quiet --python .venv-lowest --resolution lowest-direct -e ".[test]" "torchvision>=0.22"
	.venv-lowest/bin/python -m pytest $(PARALLEL)

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

# The files in benchmarks/results and benchmarks/peers.md, and the tables of benchmarks/README.md at the end: an estimated
# 23 minutes on two cores, of which loss.py takes 7 and linear_loss.py 4.
bench: $(VENV)/.installed-test
	$(BIN)/python benchmarks/loss.py --repeats 2 --json benchmarks/results/loss.json
	$(BIN)/python benchmarks/metrics.py --rounds 3 --json benchmarks/results/metrics.json
	$(BIN)/python benchmarks/exactness.py --json benchmarks/results/exactness.json
	$(BIN)/python benchmarks/token_calibration.py --threads 1 --rounds 3 --json benchmarks/results/token_calibration.json
	$(BIN)/python benchmarks/linear_loss.py --threads 1 --tokens 1024 --repeats 2 --json benchmarks/results/linear_loss.json
	$(BIN)/python benchmarks/linear_loss.py --sharded --threads 1 --tokens 2048 --vocabularies 32000 \
		--json benchmarks/results/linear_loss_sharded.json
	$(BIN)/python benchmarks/tree_lstm.py --threads 1 --rounds 10 --json benchmarks/results/tree_lstm.json
	$(BIN)/python benchmarks/dynamics.py --rounds 1 --json benchmarks/results/dynamics.json
	$(BIN)/python benchmarks/training_step.py --threads 1 --steps 5 --rounds 4 --json benchmarks/results/training_step.json
	$(MAKE) bench-peers
	$(BIN)/python benchmarks/tables.py

# benchmarks/peers.md, in a separate environment because the other libraries have many dependencies. They need a
# torchvision whose build matches that of torch, so pip chooses both.
PEERS_VENV ?= .venv-peers
bench-peers: $(PEERS_VENV)/.installed
	$(PEERS_VENV)/bin/python benchmarks/peers.py --rounds 3 --json benchmarks/results/peers.json --markdown benchmarks/peers.md

# Losses, heads, metrics and training steps on a GPU, in the environment that `python` names, with the kernels of Liger
# and Apple if they are installed.
bench-gpu:
	mkdir -p out
	$(PYTHON) benchmarks/gpu.py --json out/gpu.json --markdown out/gpu.md

# The website, in site/. (The variable silences a note that Material for MkDocs prints about its successor.)
docs: $(VENV)/.installed-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

# The table of docs/results/newsgroups_by_date.md, with half of the paper's epochs: about an hour on two cores. DATA contains
# train.parquet and test.parquet.
DATA ?= ../shared/data/newsgroups
newsgroups: $(VENV)/.installed
	$(BIN)/python recipes/papers/newsgroups.py --config recipes/configs/newsgroups/gp_cnn.yaml \
		--train_file $(DATA)/train.parquet --test_file $(DATA)/test.parquet --output_dir out/newsgroups \
		--num_train_epochs 25 \
		--compare "cross_entropy,brier,mmce:lam=8,label_smoothing:alpha=0.05,convention=paper,focal:gamma=3,flsd53,adafocal"

# The tables of docs/results/multi30k.md: two, five, and five hours on one core.
MULTI30K ?= ../shared/data/multi30k
TRANSLATE := $(BIN)/python recipes/translation.py --config recipes/configs/multi30k/transformer_small.yaml \
	--train_file $(MULTI30K)/train.parquet --validation_file $(MULTI30K)/validation.parquet \
	--test_file $(MULTI30K)/test_2016_flickr.parquet --bf16 true --use_cpu true
TRANSLATED := cross_entropy,label_smoothing:alpha=0.1,focal:gamma=1
multi30k: $(VENV)/.installed
	$(TRANSLATE) --output_dir out/multi30k --compare $(TRANSLATED)
	$(TRANSLATE) --output_dir out/multi30k_20 --compare $(TRANSLATED) --num_train_epochs 20
	$(TRANSLATE) --output_dir out/multi30k_28 --compare cross_entropy,focal:gamma=1 --num_train_epochs 28
	$(MAKE) reproduce RECORD="--record multi30k out/multi30k --record multi30k_20_epochs out/multi30k_20 \
		--record multi30k_28_epochs out/multi30k_28"

# The table without word vectors of docs/results/sst.md: three quarters of an hour on one core.
SST ?= ../shared/data/sst
SST_FOCAL := focal:gamma=1,focal:gamma=2,focal:gamma=3,flsd53,adafocal
sst: $(VENV)/.installed
	$(BIN)/python recipes/papers/sst_trees.py --config recipes/configs/sst/tree_lstm.yaml \
		--train_file $(SST)/train.parquet --validation_file $(SST)/dev.parquet --test_file $(SST)/test.parquet \
		--output_dir out/sst --compare "cross_entropy,brier,mmce:lam=8,label_smoothing:alpha=0.05,convention=paper,$(SST_FOCAL)"

# The tables of docs/results/cifar10.md: an hour and a half on two cores, one run on each.
CIFAR10 ?= ../shared/data/cifar10
CIFAR10_LOSSES := label_smoothing:alpha=0.05,convention=paper,focal:gamma=1,focal:gamma=2,focal:gamma=3,flsd53,adafocal
cifar10: $(VENV)/.installed-test
	$(BIN)/python recipes/image_classification.py --config recipes/configs/cifar10/resnet20_small.yaml \
		--train_file $(CIFAR10)/train.parquet --test_file $(CIFAR10)/test.parquet --output_dir out/cifar10 \
		--compare "cross_entropy,brier,mmce:lam=2,$(CIFAR10_LOSSES)"
	$(BIN)/python recipes/papers/ood.py --models $$(dirname out/cifar10/*/config.json) --test_file $(CIFAR10)/test.parquet \
		--out gaussian_noise:5 digits --shift gaussian_noise --max_samples 2000 --output_dir out/cifar10_ood

# The tables of docs/results/imbalance.md: an hour on one busy core.
IMBALANCED := $(BIN)/python recipes/papers/newsgroups.py --config recipes/configs/newsgroups/gp_cnn.yaml --imbalance 0.01 \
	--train_file $(DATA)/train.parquet --test_file $(DATA)/test.parquet --max_length 200 --per_device_train_batch_size 32 \
	--num_train_epochs 15 --class_weights_steps 76
imbalance: $(VENV)/.installed
	$(IMBALANCED) --output_dir out/imbalance \
		--compare "cross_entropy,focal:gamma=2,recall:ema=0.1,recall:ema=0.1,gamma=2,class_balanced"
	$(IMBALANCED) --output_dir out/imbalance_last --eval_strategy no --load_best_model_at_end False \
		--compare cross_entropy,recall:ema=0.1,recall:ema=1,recall:ema=0.01

# The papers' tables with ours, tests over seeds, and figures, from the committed runs of docs/results/runs: seconds.
reproduce: $(VENV)/.installed
	$(BIN)/python recipes/papers/results.py $(RECORD)

# The runs themselves, 17 minutes each on one core, one at a time or one per GPU; again, it resumes. `make reproduce-runs
# REPRODUCE=--dry_run` shows the plan. GLOVE contains glove.6B.100d.txt. `reproduce-more` is part of it.
REPRODUCE ?=
GLOVE ?= ../shared/data/glove
ROWS := $(BIN)/python recipes/papers/reproduce.py --rows 20_newsgroups/gp_cnn sst_binary/tree_lstm \
	--data 20_newsgroups=out/data/newsgroups sst_binary=out/data/sst $(REPRODUCE)
MORE_SEEDS := cross_entropy label_smoothing_0.05 focal_3 flsd_53
reproduce-runs: $(VENV)/.installed
	$(BIN)/python recipes/papers/split_newsgroups.py $(DATA)/train.parquet $(DATA)/test.parquet --output_dir out/data/newsgroups
	mkdir -p out/data/sst && cp $(SST)/*.parquet out/data/sst
	cp $(GLOVE)/glove.6B.100d.txt out/data/newsgroups && cp $(GLOVE)/glove.6B.100d.txt out/data/sst
	$(ROWS) --table mukhoti2020:1 mukhoti2020:5 --losses $(MORE_SEEDS) --seeds 1 2 3 4 5 --output_dir out/reproduce
	$(ROWS) --table mukhoti2020:1 mukhoti2020:5 --losses brier mmce focal_1 focal_2 flsc_531 flsc_532 flsd_532 --seeds 1 2 3 \
		--output_dir out/reproduce
	$(ROWS) --table adafocal2022:1 --losses adafocal --rows 20_newsgroups/gp_cnn --seeds 1 2 3 4 5 \
		--overrides gamma_update_steps=20 --output_dir out/reproduce_20
	$(ROWS) --table adafocal2022:1 --losses adafocal --rows 20_newsgroups/gp_cnn --seeds 1 2 3 4 5 --output_dir out/reproduce
	$(MAKE) reproduce-more $(if $(findstring --dry_run,$(REPRODUCE)),--dry-run)
	$(MAKE) reproduce RECORD="--record 20_newsgroups out/reproduce/20_newsgroups out/reproduce_20/20_newsgroups \
		out/more/20_newsgroups --record sst_binary out/reproduce/sst_binary out/more/sst_binary \
		--record cifar10_overfit out/more/cifar10_overfit out/more/cifar10_brier"

# What the papers' tables have no rows for, on the files of `reproduce-runs`, one run at a time; again, it resumes.
files_of = --train_file $(1)/train.parquet --test_file $(1)/test.parquet
words_of = $(files_of) --validation_file $(1)/$(2).parquet --embeddings_file $(1)/glove.6B.100d.txt
RUN_20_newsgroups = papers/newsgroups.py --config recipes/configs/newsgroups/paper.yaml \
	$(call words_of,out/data/newsgroups,validation)
RUN_sst_binary = papers/sst_trees.py --config recipes/configs/sst/paper.yaml $(call words_of,out/data/sst,dev)
RUN_cifar10_overfit = image_classification.py --config recipes/configs/cifar10/resnet20_overfit.yaml \
	$(call files_of,$(CIFAR10))
# As in the papers' code.
RUN_cifar10_brier = $(RUN_cifar10_overfit) --loss_reduction mean
# $(call more,TASK,SEEDS,LOSSES), and then, for images, $(call more,TASK,SEEDS,LOSSES,papers/image_logits).
script_of = $(subst image_classification,$(or $(2),image_classification),$(RUN_$(1)))
more = for seed in $(2); do OMP_NUM_THREADS=1 $(BIN)/python recipes/$(call script_of,$(1),$(4)) --seed $$seed --compare "$(3)" \
	--output_dir out/more/$(1)/seed_$$seed || exit 1; done
MORE_SST := adafocal,dual_focal,published_mmce:lam=8
MORE_CIFAR10 := cross_entropy,mmce:lam=2,weighted=true,$(CIFAR10_LOSSES),focal:schedule=5/3/2,flsd532,dual_focal
reproduce-more: $(VENV)/.installed-test
	$(call more,sst_binary,1 2 3,$(MORE_SST))
	$(call more,sst_binary,4 5,adafocal)
	$(call more,20_newsgroups,1 2 3,published_mmce:lam=8)
	$(call more,cifar10_overfit,1 2 3,$(MORE_CIFAR10))
	$(call more,cifar10_overfit,1 2 3,$(MORE_CIFAR10),papers/image_logits)
	$(call more,cifar10_brier,1 2 3,brier)
	$(call more,cifar10_brier,1 2 3,brier,papers/image_logits)

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check "$(TORCH)" -e .
	touch $@

$(VENV)/.installed-test: pyproject.toml $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check "$(TORCH)" -e ".[test]"
	touch $@ $(VENV)/.installed

$(VENV)/.installed-docs: pyproject.toml $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check "$(TORCH)" -e ".[docs]"
	touch $@ $(VENV)/.installed

$(PEERS_VENV)/.installed: pyproject.toml
	$(PYTHON) -m venv $(PEERS_VENV)
	$(PEERS_VENV)/bin/python -m pip install --quiet --disable-pip-version-check -e ".[peers]"
	touch $@

$(FULL_VENV)/.installed: pyproject.toml
	$(PYTHON) -m venv $(FULL_VENV)
	$(FULL_VENV)/bin/python -m pip install --quiet --disable-pip-version-check uv
	$(FULL_VENV)/bin/uv pip install --quiet --python $(FULL_VENV) -e ".[test,full]"
	touch $@

clean:
	rm -rf $(VENV) $(PEERS_VENV) $(FULL_VENV) .venv-lowest out site build dist *.egg-info .coverage
