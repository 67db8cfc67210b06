# Shardmill: `make help` lists what there is. Everything runs in .venv, which is made on first use and again
# whenever pyproject.toml, constraints.txt or compiled sources change. Choose an interpreter with PYTHON=/path/to/python3.13.

SHELL := /bin/sh
.SHELLFLAGS := -eu -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

VENV := .venv
BIN := $(VENV)/bin
PY := $(BIN)/python
PYTEST := $(PY) -m pytest
# How many processes run tests: more than cores, because many tests wait for processes of their own.
TEST_PROCESSES ?= $(shell echo $$(( $$(nproc) + 2 )))
# The tests in several processes; tests/conftest.py says which begin, and which stay together in one process.
PYTEST_SPREAD = $(PYTEST) -n $(TEST_PROCESSES) --dist loadfile --no-loadscope-reorder
# The tests of a running platform: Prefect's server, a worker, the pages in a browser.
PLATFORM := tests/prefect_server tests/browser
OUT ?= demo
SOURCE ?=
# A folder of photographs for the benchmarks; without one, they are made up.
PHOTOS ?= $(wildcard ../shared/data/clothing)
# The codec of the peers of prepare: shardmill (ours, lent to them) or opencv (as most people would).
CODEC ?= shardmill
# The files or folders of tests/cluster that test-cluster runs.
ONLY ?= tests/cluster
# How many trainings test-ranks disturbs.
TRIALS ?= 30
# How long test-week kills processes; KILLS=20 goes on until each kind was killed so often.
MINUTES ?= 60
# What docs-release builds into: the folder that a web server shows, with the sites of earlier releases.
SITE ?= build/versions
# How many photographs bench-peers prepares; 32000 makes start-up count little.
IMAGES ?= 8000

# Quiet, and nothing asks the internet for anything once the packages are installed.
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export TF_CPP_MIN_LOG_LEVEL ?= 2
# Compiled modules are kept, even where the environment says no (as in many container images): otherwise each of the
# hundreds of processes that tests start compiles all of them again.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help
help: ## What can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' Makefile

# -- the environment -------------------------------------------------------------------------------------

# The interpreter: PYTHON when given (and then only that one), else the first of these that is new enough.
define FIND_PYTHON
found=""; \
for candidate in $(if $(PYTHON),"$(PYTHON)",python3 python3.11 python3.12 python3.13); do \
  if "$$candidate" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))' 2>/dev/null; then \
    found="$$candidate"; break; \
  fi; \
done; \
if [ -z "$$found" ]; then \
  echo "TensorFlow and these targets need Python 3.11 to 3.13; found: $$($(or $(PYTHON),python3) --version 2>&1 || true)" >&2; \
  echo "Install one (Debian 12 and 13: apt-get install python3 python3-venv), or say which: make PYTHON=/path/to/python3.13 ..." >&2; \
  exit 1; \
fi; \
if ! "$$found" -c 'import ensurepip, venv' 2>/dev/null; then \
  echo "$$found cannot make virtual environments: its venv module is missing." >&2; \
  echo "Debian and Ubuntu: apt-get install python3-venv" >&2; \
  exit 1; \
fi
endef

.PHONY: install
install: $(VENV)/.stamp ## Make .venv from constraints.txt (the other targets do it when needed)

$(VENV)/.stamp: pyproject.toml setup.py constraints.txt $(wildcard infra/native/*.c)
	@$(FIND_PYTHON); \
	echo "Making $(VENV) with $$("$$found" --version): about 4 GB, a few minutes."; \
	rm -rf $(VENV); \
	"$$found" -m venv $(VENV); \
	$(PY) -m pip install --quiet --constraint constraints.txt setuptools; \
	$(PY) -m pip install --quiet --constraint constraints.txt --no-build-isolation --editable '.[dev]'; \
	$(PY) -m pip check; \
	touch $@

# -- use -------------------------------------------------------------------------------------------------

.PHONY: demo
demo: $(VENV)/.stamp ## Prepare and train on a small folder of images; SOURCE=folder takes your own, OUT=folder the place
	@$(BIN)/shardmill demo --out "$(OUT)" $(if $(SOURCE),--source "$(SOURCE)")

# -- checks ----------------------------------------------------------------------------------------------

.PHONY: test
test: lint ## Format, lint, types, floors, and the tests that are neither slow nor of test-platform
	$(PYTEST_SPREAD) -m "not slow" $(PLATFORM:%=--ignore=%) --durations=20 --durations-min=5

.PHONY: test-platform
# Each of these processes starts a whole platform.
test-platform: TEST_PROCESSES := $(shell echo $$(( $$(nproc) + 1 )))
test-platform: $(VENV)/.stamp ## Prefect's server with a worker, deployments and schedules, and the pages in a browser
	$(PYTEST_SPREAD) -m "not slow" $(PLATFORM) --durations=20 --durations-min=5

.PHONY: test-failed
test-failed: $(VENV)/.stamp ## Run the tests again that failed last time, one after the other
	$(PYTEST) -m "" --last-failed --last-failed-no-failures none || [ $$? -eq 5 ]

.PHONY: lint
lint: $(VENV)/.stamp ## Format, lint, types and floors only
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

.PHONY: format
format: $(VENV)/.stamp ## Put the code in the house's format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

.PHONY: coverage
coverage: $(VENV)/.stamp ## The tests of `make test` and test-platform again, measured: prints the lines of the packages that no test runs
	$(PYTEST_SPREAD) -m "not slow" --cov --cov-report=term:skip-covered

.PHONY: test-faults
test-faults: $(VENV)/.stamp ## The slow checks: jobs killed by the dozen, and resumed
	$(PYTEST) -m slow --ignore tests/third_party --ignore tests/cluster

.PHONY: test-ranks
test-ranks: $(VENV)/.stamp ## Kill or stop a random rank in each of TRIALS trainings; print the time to the next step
	TRIALS="$(TRIALS)" $(PYTEST) -m slow -s tests/faults/test_train_ranks_trials.py

.PHONY: test-week
test-week: $(VENV)/.stamp ## A schedule over a changing source for MINUTES, with a random kill every half minute (KILLS=20: of each kind)
	MINUTES="$(MINUTES)" KILLS="$(KILLS)" WEEK_RECORD=build/week.jsonl $(PYTEST) -m slow -s tests/faults/week

.PHONY: test-cluster
test-cluster: $(VENV)/.stamp ## Prepare and train across real clusters and servers, with kills; ONLY=tests/cluster/FILE for a part
	$(PYTEST) -m slow -s $(ONLY)

.PHONY: test-native
test-native: $(VENV)/.stamp ## The C code beside its references, under the address and undefined-behaviour sanitizers (needs gcc)
	@folder="$$(mktemp -d)"; trap 'rm -rf "$$folder"' EXIT; \
	for name in area bilinear; do \
	  gcc -shared -fPIC -g -O1 -ffp-contract=off -Wall -Wextra -Werror -fsanitize=address,undefined -fno-sanitize-recover=all \
	    -o "$$folder/_$$name.so" "infra/native/$$name.c" || exit 1; \
	done; \
	SHARDMILL_NATIVE="$$folder" LD_PRELOAD="$$(gcc -print-file-name=libasan.so)" ASAN_OPTIONS=detect_leaks=0 \
	  $(PYTEST) tests/unit/infra/native --capture=sys --hypothesis-seed=0

.PHONY: test-third-party
test-third-party: $(VENV)/.stamp ## Other libraries read our shards (makes .venv-readers, 3 GB, on first use)
	$(PYTEST) -m "" tests/third_party

.PHONY: test-torch
test-torch: $(VENV)/.stamp .venv-torch/.stamp ## PyTorch: data sets and training, ranks killed and resumed (makes .venv-torch, 6 GB, on first use)
	TENSORFLOW_PYTHON="$(abspath $(PY))" .venv-torch/bin/python -m pytest tests/torch

.venv-torch/.stamp: tests/torch/requirements.txt constraints.txt
	@$(FIND_PYTHON); \
	echo "Making .venv-torch with $$("$$found" --version): about 6 GB, a few minutes."; \
	rm -rf .venv-torch; \
	"$$found" -m venv .venv-torch; \
	.venv-torch/bin/python -m pip install --quiet --constraint constraints.txt --requirement tests/torch/requirements.txt; \
	touch $@

# The ratios of one call, beside those of the last release on this machine; KEEP=1 keeps them for this release.
bench bench-peers bench-read-peers: export SHARDMILL_RATIOS := build/ratios.jsonl
RATIOS = $(PY) -m tests.benchmarks.measuring.history $(if $(KEEP),--keep)

.PHONY: bench
bench: $(VENV)/.stamp ## Every table without peers: rates against the codec's limit, memory, the parent, again, planning
	rm -f $$SHARDMILL_RATIOS
	$(PY) -m tests.benchmarks.prepare.rate $(PHOTOS)
	$(PY) -m tests.benchmarks.read.rate
	$(PY) -m tests.benchmarks.prepare.memory
	$(PY) -m tests.benchmarks.prepare.parent
	$(PY) -m tests.benchmarks.prepare.again
	$(PY) -m tests.benchmarks.scale.plan
	$(RATIOS)

.PHONY: bench-peers
bench-peers: $(VENV)/.stamp ## Whole prepare commands beside other libraries', IMAGES=32000 for more photographs (makes .venv-peers, 8 GB, on first use)
	rm -f $$SHARDMILL_RATIOS
	$(PY) -m tests.benchmarks.prepare.compare $(PHOTOS) --codec $(CODEC) --images $(IMAGES)
	$(PY) -m tests.benchmarks.prepare.compare $(PHOTOS) --megapixels 12 --images 480
	$(PY) -m tests.benchmarks.prepare.compare $(PHOTOS) --megapixels 48 --images 120
	$(RATIOS)

.PHONY: bench-read-peers
bench-read-peers: $(VENV)/.stamp ## Reading beside other libraries (makes .venv-peers, 16 GB, on first use)
	rm -f $$SHARDMILL_RATIOS
	$(PY) -m tests.benchmarks.read.compare $(PHOTOS)
	$(RATIOS)

.PHONY: bench-formats
bench-formats: $(VENV)/.stamp ## Storage formats on the same images (uses .venv-peers too)
	$(PY) -m tests.benchmarks.formats.compare $(PHOTOS)

# -- documentation ----------------------------------------------------------------------------------------

.PHONY: docs
docs: $(VENV)/.stamp ## Build the site of the documentation into build/site, with every link checked; needs no network
	NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict --quiet
	@echo "Open build/site/index.html"

.PHONY: docs-release
docs-release: $(VENV)/.stamp ## Build the site into SITE=folder, in a folder of this release beside those of others
	$(PY) docs/versioned_site.py "$(SITE)"

.PHONY: test-docs
test-docs: $(VENV)/.stamp ## Build the site, look at it in a browser, and run every command and example of the documentation
	$(PYTEST) -m "" tests/test_documentation.py tests/documentation

# -- release ---------------------------------------------------------------------------------------------

# Which versions of Python try the archives (all that are here), and how many of them run the demo, the newest first.
PYTHONS ?=
DEMO ?= 1

.PHONY: dist
dist: $(VENV)/.stamp ## Build sdist and wheels twice, check them, and try them on each Python here; PYTHONS="3.12 3.13" for some, DEMO=0 without demo
	$(PY) -m tests.distribution --demo $(DEMO) $(if $(PYTHONS),--pythons $(PYTHONS))

.PHONY: release
release: $(VENV)/.stamp ## The same for a version that is committed and described; says what to upload, and uploads nothing
	$(PY) -m tests.distribution --demo $(DEMO) --release

.PHONY: clean
clean: ## Remove what the targets made (.venv and the demo too)
	rm -rf $(VENV) .venv-peers .venv-readers .venv-torch demo build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find flows beam_jobs training infra tests -name __pycache__ -type d -prune -exec rm -rf {} +
