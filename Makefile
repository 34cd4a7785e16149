# Everything a person runs here. `make` alone explains.
VENV   ?= .venv
BENCH_VENV ?= .venv-bench
DEPLOY_VENV ?= .venv-deploy
PYTHON ?= python3
STACK  ?=
PROOFS ?=
OUTRIDER_PROMETHEUS ?= $(CURDIR)/.venv-prometheus/usr/bin/prometheus
BIN    := $(VENV)/bin
PYTEST := $(BIN)/python -m pytest
# Tests that measure no time and start no engine of their own: as many at once as there are cores.
PURE   := tests/unit tests/bench tests/bench_forecast tests/bench_report tests/scale plugin/tests
export PYTHON OUTRIDER_PROMETHEUS

.DEFAULT_GOAL := help
.PHONY: help engine dev train-env train-demo scale-demo bench-env bench-demo deploy-env deploy-test serve test lint acceptance bench-front docs results lock format clean

help:  ## This list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

engine:  ## Virtual environment with vLLM's CPU build and Outrider (about 4 GB)
	@scripts/install.sh $(VENV) engine

dev:
	@scripts/install.sh $(VENV) dev

train-env:  ## The engine's environment and what `outrider train` needs beside it (about 300 MB more)
	@scripts/install.sh $(VENV) train

bench-env:  ## The load generator (aiperf) in an environment of its own (about 1.2 GB), and what reports are made with
	@scripts/install_bench.sh $(BENCH_VENV)
	@[ ! -x $(BIN)/outrider ] || $(BIN)/python -c 'import matplotlib, scipy' 2>/dev/null || \
	  $(BIN)/python -m pip install --quiet --disable-pip-version-check 'outrider[bench]'

deploy-env:  ## Helm 3 and 4, promtool and Kubernetes' schemas, in an environment of their own (about 250 MB, no vLLM)
	@scripts/install_deploy.sh $(DEPLOY_VENV)

deploy-test: deploy-env  ## The chart: rendered, linted, validated, its alerts fired, streams that survive a pod's end (no cluster)
	OUTRIDER_DEPLOY_TEST=1 PATH="$(CURDIR)/$(DEPLOY_VENV)/bin:$$PATH" $(DEPLOY_VENV)/bin/python -m pytest tests/deploy

serve: engine  ## Serve a real model with a draft on this machine (STACK=file.yaml for another stack)
	@exec $(BIN)/outrider serve $(STACK)

test: dev bench-env  ## Every test a user waits for (real engine included)
	$(PYTEST) -m "not acceptance" -n logical --maxprocesses 8 --dist loadfile $(PURE)
	$(PYTEST) -m "not acceptance" $(PURE:%=--ignore=%)

acceptance: dev bench-env $(OUTRIDER_PROMETHEUS)  ## The longer proofs: greedy equality, load, memory, limits
	$(PYTEST) -m acceptance $(PROOFS)

bench-demo: dev bench-env  ## Baseline against the built-in head on this machine, no GPU: a whole report in bench-demo/ (5 to 10 minutes)
	$(BIN)/outrider bench --quick --limit 8 --concurrency 1,4 --requests 1=8,4=20 --out bench-demo

train-demo: train-env  ## Train a small head on this machine, no GPU: it is served and measured, in train-demo/ (4 to 15 minutes)
	$(BIN)/outrider train --conversations 96 --opening "Write a Python function that" --answer-tokens 96 --epochs 4 \
	  --set code=examples/train/held-out.jsonl --served-tokens 64 --out train-demo

scale-demo: dev $(OUTRIDER_PROMETHEUS)  ## Load × 3 on this machine: replicas rise, the queue wait falls, nothing is lost; in scale-demo/ (6 minutes)
	$(BIN)/outrider scale-demo

$(OUTRIDER_PROMETHEUS):
	@scripts/install_prometheus.sh .venv-prometheus

bench-front: dev  ## The front against nginx: CPU per chunk and request, added first-token time
	$(BIN)/python -m benchmarks.front

lint: dev  ## Format, lint, types, import contracts, generated docs
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m scripts.docs --check

results: dev  ## Tell the committed GPU runs with today's code: answers, text, chart; measured figures stay
	for run in results/h200/*.json results/train/*-speed*.json; do $(BIN)/outrider bench --renew $$run >/dev/null || exit; done
	$(BIN)/python -m outrider.bench.report.chart results/h200/*.json --out results/h200/speedup.svg

docs: dev  ## Write the generated pages of docs/
	$(BIN)/python -m scripts.docs

format: dev  ## Format and mend what can be mended by machine
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lock: dev  ## Resolve requirements/*.txt anew (needs uv)
	scripts/lock.sh

clean:  ## Remove the virtual environment and caches of this checkout
	rm -rf $(VENV) $(VENV).lock $(BENCH_VENV) $(BENCH_VENV).lock $(DEPLOY_VENV) $(DEPLOY_VENV).lock .venv-prometheus .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
