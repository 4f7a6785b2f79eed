# The environment is made once, from the hash-checked pins in requirements.txt; the stamp says that it is whole.

VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.made
BENCH  := $(VENV)-bench
PEERS  := $(BENCH)/.made
# The first Python that is new enough; override with `make PYTHON=/path/to/python`.
PYTHON ?= $(shell for name in python3.11 python3.12 python3.13 python3.14 python3 python; do \
	"$$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo "$$name" && break; done)
# Small matrices and several processes: one BLAS thread each is fastest, and gives the same bits everywhere.
ONE_THREAD := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
JOBS   ?= 2
BIRDS  := examples/birds
BIKES  := examples/bikes

.PHONY: env demo test test-long oldest newest lint docs wheel house reproduce bench bench-quick pins clean
.DEFAULT_GOAL := env

env: $(STAMP)

$(STAMP): requirements.txt pyproject.toml src/headcount/_version.py
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed; none was found. Try make PYTHON=/path/to/python"; exit 1; }
	@echo "Making the environment in $(VENV), once; this takes a few minutes."
	test -x $(BIN)/python || "$(PYTHON)" -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

demo: env
	$(BIN)/headcount infer $(BIRDS)/counts.csv --transitions $(BIRDS)/transitions.csv --population 1080 --noise poisson --out results/
	$(BIN)/headcount report results/ --title "Simulated birds: counts that agree with the model"
	$(BIN)/headcount infer $(BIKES)/monday.csv --transitions $(BIKES)/transitions.csv.gz --population 347 --noise exact --normalise \
		--initial counts --cells $(BIKES)/cells.csv --out results/bikes/
	$(BIN)/headcount report results/bikes/ --title "Shared bikes: counts that do not agree with the model"
	@echo
	@echo "results/report.html        a page whose data agree with the model"
	@echo "results/bikes/report.html  a page that warns: real bikes scatter more than the model allows"

# Five minutes on two cores; test-long has what is left, listed in tests/long.txt.
test: env
	$(ONE_THREAD) $(BIN)/python -m pytest -n $(JOBS) --dist worksteal -m "not long"

test-long: env
	$(ONE_THREAD) $(BIN)/python -m pytest -n $(JOBS) --dist worksteal -m long

# The suite with the oldest versions that pyproject.toml allows, and with the newest; each makes an environment of its own.
oldest newest: env
	$(ONE_THREAD) $(BIN)/python -m tools.versions $@ --python "$(PYTHON)" -- -n $(JOBS) -m "not long"

lint: env
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: env
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	$(BIN)/python -m tools.site site

# The package as others get it: built twice, installed with the core dependencies alone, every command run.
wheel: env
	$(ONE_THREAD) $(BIN)/python -m tools.wheel

# Measures of the source: size, complexity, what one engine needs, what one command runs through.
house: env
	$(ONE_THREAD) $(BIN)/python -m tools.house

# The paper's tables and figures: computes what the stored results lack, and draws everything.
reproduce: env
	$(BIN)/python -m reproduction all --page docs/reproduction --workers $(JOBS)

# The peers we are measured against, in an environment of their own; the library never needs them, and the benchmarks
# report a peer that is not there.
$(PEERS): requirements-benchmarks.txt
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed; none was found. Try make PYTHON=/path/to/python"; exit 1; }
	@echo "Making the peers' environment in $(BENCH), once; this takes a few minutes."
	test -x $(BENCH)/bin/python || "$(PYTHON)" -m venv $(BENCH)
	@$(BENCH)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-benchmarks.txt \
		&& touch $@ || echo "Not every peer could be installed; the results will say which are missing."

bench: env $(PEERS)
	$(BIN)/python -m benchmarks

bench-quick: env $(PEERS)
	$(BIN)/python -m benchmarks --quick

# Choose the newest versions that fit and write them down, with their hashes.
PIN := CUSTOM_COMPILE_COMMAND="make pins" $(VENV)-pins/bin/pip-compile --quiet --upgrade --generate-hashes --strip-extras --allow-unsafe \
	--no-emit-index-url --no-emit-find-links --no-emit-trusted-host
pins:
	"$(PYTHON)" -m venv $(VENV)-pins
	$(VENV)-pins/bin/python -m pip install --quiet pip-tools
	$(PIN) --extra cluster --extra docs --extra excel --extra networks --extra parquet --extra test --extra video \
		--output-file requirements.txt pyproject.toml requirements.in
	$(PIN) --extra benchmarks --constraint requirements.txt --output-file requirements-benchmarks.txt pyproject.toml
	rm -r $(VENV)-pins

clean:
	rm -rf $(VENV) $(VENV)-oldest* $(VENV)-newest* $(BENCH) build dist site results .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +
