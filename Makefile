# The one place for commands. Each makes what it needs in .venv, from nothing but python3 and make.
# `make help` lists them; `make clean` forgets everything they made.

PYTHON ?= python3
PY := .venv/bin/python
# Bytecode is made when a module is first used: most of what is installed never is.
PIP := $(PY) -m pip install --quiet --disable-pip-version-check --no-compile
PYTEST := $(PY) -m pytest

# Where Python is told to keep no bytecode, every process here, of a thousand, would compile all it imports.
unexport PYTHONDONTWRITEBYTECODE

# `make sim`: which seed to start from, how many, which scenario (empty: all), and anything else.
SEED ?= 1
SEEDS ?= 2000
SCENARIO ?=
# `make bench`: how many interleaved rounds, and which cases (empty: all).
ROUNDS ?= 5
CASES ?=
# `make fuzz`: how many inputs.
RUNS ?= 1000000
# `make soak`: how many bad messages, how long providers are killed and stopped, how many increments under a lock.
FRAMES ?= 1000000
SOAK_SECONDS ?= 120
OPERATIONS ?= 20000
# `make test`: in how many processes. Many tests wait for timers, so more than there are cores.
JOBS ?= 5
# Passed on as they are: make test ARGS="-k router", make demo ARGS="--seconds 30".
ARGS ?=

# The tests that run a second time against the uncompiled form of the compiled modules; of the conformance
# suite one transport and one loop, since the others differ below the compiled modules, and nothing of stores.
PURE_TESTS := $(wildcard tests/unit/wire tests/unit/transport tests/unit/topics tests/unit/services/gateway tests/conformance) --ignore=tests/conformance/store --ignore=tests/conformance/coordination -k "not (ipc or tls or inproc or uvloop)"

# An environment knows where its project stands: a copied or moved tree installs itself anew.
HERE := $(shell pwd | cksum | cut -d ' ' -f 1)
VENV := .venv/.stamp-venv-$(HERE)
NEEDS := .venv/.stamp-needs-$(HERE)
INSTALL := .venv/.stamp-install-$(HERE)

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup compiled test quick check fix demo sim fuzz soak costs bench spec docs protos clean build/pure

help: ## List these commands
	@echo "hansa: make <command>"
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  %-8s %s\n", $$1, $$2 }' Makefile

setup: compiled ## Make .venv, install hansa into it, compile the hot modules

test: compiled build/pure ## Run every test, then those of the compiled modules once more uncompiled
	-@$(PY) -m tests.support.etcd_program
	-@$(PY) -m tests.support.kafka_program
	@echo "== tests"
	@$(PYTEST) -n $(JOBS) --dist=worksteal --requirement-results=new $(ARGS)
	@if ls build/compiled/*/*.so >/dev/null 2>&1; then \
		echo "== wire, transport and topic tests, uncompiled" && \
		PYTHONPATH=build/pure $(PYTEST) -n $(JOBS) --dist=worksteal --requirement-results=add --requirement-form=uncompiled $(ARGS) $(PURE_TESTS) || [ $$? -eq 5 ]; \
	fi

quick: compiled ## Run the tests that need no servers, no other processes' faults and no seeds: under two minutes
	@$(PYTEST) -n $(JOBS) --dist=worksteal --without-servers $(ARGS) tests/unit tests/conformance

check: compiled ## Check mirrors, format, lint, types and layers
	@echo "== mirrors" && $(PY) -m mirrors.build --check
	@echo "== format" && $(PY) -m ruff format --check --quiet . || { echo "run: make fix"; exit 1; }
	@echo "== lint" && $(PY) -m ruff check --quiet .
	@echo "== types" && $(PY) -m mypy
	@echo "== layers" && $(PYTEST) --quiet --no-header tests/unit/test_layers.py

fix: compiled ## Write the mirrors of hansa.sync, format the code, mend what the linter can mend
	@$(PY) -m mirrors.build
	@$(PY) -m ruff format .
	@$(PY) -m ruff check --fix .

demo: compiled ## Watch hansa work, in this terminal, for about 15 seconds
	@$(PY) -m hansa.cli demo $(ARGS)

sim: compiled ## Simulate: SEED=1 SEEDS=2000 SCENARIO=name
	@$(PY) -m hansa.testing --seed $(SEED) --seeds $(SEEDS) $(if $(SCENARIO),--scenario $(SCENARIO)) $(ARGS)

fuzz: compiled .venv/.stamp-fuzz-$(HERE) ## Feed the parsers random and mutated input: RUNS=1000000
	@$(PY) tests/fuzz/run.py --runs $(RUNS) $(ARGS)

soak: compiled ## Bad messages, providers killed and stopped, owners stopped: FRAMES=1000000 SOAK_SECONDS=120 OPERATIONS=20000
	@$(PY) tests/integration/faults/soak.py --frames $(FRAMES) $(ARGS)
	@$(PY) tests/integration/faults/standstill_soak.py --seconds $(SOAK_SECONDS)
	@$(PY) tests/integration/coordination/fencing_soak.py --operations $(OPERATIONS) $(ARGS)
	@$(PY) tests/integration/coordination/fencing_soak.py --operations 500 --no-fence $(ARGS)

costs: compiled .venv/.stamp-bench-$(HERE) ## Count what a topic mesh says, up to 3,000 nodes in the simulator
	@$(PY) -m bench.topic_costs $(ARGS)

bench: compiled .venv/.stamp-bench-$(HERE) ## Measure hansa beside others: ROUNDS=5 CASES=names
	@$(PY) -m bench --rounds $(ROUNDS) $(if $(CASES),--cases $(CASES)) $(ARGS)

spec: $(NEEDS) ## Each requirement, its tests, and their outcome in the last `make test`
	@$(PY) tests/requirement_report.py

docs: compiled ## Write the reference pages from the code, check every link
	@$(PY) docs/build.py

protos: build/protoc ## Write the messages of etcd's API from store/etcd/api.proto
	@cd src && ../build/protoc/bin/python -m grpc_tools.protoc -I. --python_out=. --pyi_out=. hansa/store/etcd/api.proto

clean: ## Remove everything that these commands made
	rm -rf .venv build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find src tests bench docs mirrors -name __pycache__ -type d -prune -exec rm -rf {} +
	find src -name '*.so' -delete

# ---- how .venv comes to be -------------------------------------------------------------------

$(VENV):
	@command -v $(PYTHON) >/dev/null || { echo "hansa needs Python 3.11 or newer, and there is no $(PYTHON) here"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "hansa needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version 2>&1). Choose another: make PYTHON=python3.12 ..."; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || \
		{ echo "$(PYTHON) cannot make environments: its venv or ensurepip is missing (Debian, Ubuntu: apt install python3-venv)"; exit 1; }
	@echo "== making .venv"
	@rm -rf .venv && $(PYTHON) -m venv .venv && touch $@

$(NEEDS): requirements/build.txt requirements/runtime.txt requirements/test.txt | $(VENV)
	@echo "== installing what hansa needs"
	@$(PIP) -r requirements/build.txt -r requirements/runtime.txt -r requirements/test.txt && touch $@

$(INSTALL): pyproject.toml hatch_build.py $(NEEDS)
	@echo "== installing hansa"
	@$(PIP) --no-build-isolation --no-deps --editable . && touch $@

.venv/.stamp-fuzz-$(HERE): requirements/fuzz.txt $(NEEDS)
	@echo "== installing the fuzzer"
	@$(PIP) -r requirements/fuzz.txt && touch $@

.venv/.stamp-bench-$(HERE): requirements/bench.txt $(NEEDS)
	@echo "== installing the systems to measure against"
	@$(PIP) -r requirements/bench.txt && touch $@

build/protoc: requirements/protos.txt
	@rm -rf $@ && $(PYTHON) -m venv $@ && $@/bin/python -m pip install --quiet --disable-pip-version-check -r $<

# Always asked, because only the contents of the sources tell whether there is anything to compile.
compiled: $(INSTALL)
	@$(PY) hatch_build.py

# The same package without extension modules.
build/pure: compiled
	@rm -rf build/pure && mkdir -p build/pure && cp -R src/hansa build/pure/
	@find build/pure \( -name '*.so' -o -name '*.pyd' -o -name __pycache__ \) -prune -exec rm -rf {} +
