# Everything below needs Python 3.11 or later and make; the environment is built in .venv by the first target that needs it.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
LISTEN ?= 127.0.0.1:9092
DATA ?= data

.PHONY: run test spark quick lint types format clean dump conformance adopt demo-pipeline races simulate simulate-mutants faults demo

run: $(VENV)/run.stamp  ## start a broker
	@$(BIN)/barnabas serve --listen $(LISTEN) --data $(DATA)

demo: $(VENV)/run.stamp  ## three brokers under load: the leader is killed, nothing is lost
	@$(BIN)/barnabas cluster demo

test: $(VENV)/dev.stamp lint types  ## everything CI runs
	$(BIN)/python -m pytest -q -n 2 --dist worksteal --ignore tests/spark
	$(BIN)/python -m pytest -q -n 2 --dist loadfile tests/spark

spark: $(VENV)/dev.stamp  ## the tests that need a Spark session, which those of a process share
	$(BIN)/python -m pytest -q -n 2 --dist loadfile tests/spark

quick: $(VENV)/dev.stamp  ## without the slow tests
	$(BIN)/python -m pytest -q -n 2 --dist worksteal -m "not slow" --ignore tests/spark

dump: $(VENV)/dev.stamp  ## Kafka's own tools, and Kafka itself, read a folder that Barnabas wrote (needs java, and mvn or KAFKA_LIBS)
	@$(BIN)/python -m tests.reliability.dump

conformance: $(VENV)/dev.stamp  ## clients of other languages, each where its tool chain is
	$(BIN)/python -m tests.conformance.languages

demo-pipeline: $(VENV)/spark.stamp  ## a shop's events through Spark into tables and plots
	$(BIN)/python examples/pipeline/demo.py

adopt: $(VENV)/dev.stamp  ## Kafka's folders here, and ours in Kafka (Java, Maven)
	$(BIN)/python -m tests.reliability.adopt

# Of races the seconds that it runs, of simulate the simulated seconds of each seed.
SECONDS ?= 60
races: $(VENV)/dev.stamp  ## flush, roll, retention, compaction and deletion in every order, simulated and real
	@$(BIN)/python -m tests.reliability.races --seconds $(SECONDS)

SEEDS ?= 1000
simulate: $(VENV)/dev.stamp  ## whole clusters under the simulator: crashes, power cuts, bad disks and links, operators
	@$(BIN)/python -m tests.simulation.simulate --seeds $(SEEDS) --seconds $(SECONDS)

simulate-mutants: $(VENV)/dev.stamp  ## planted bugs that the simulation must find
	@$(BIN)/python -m tests.simulation.simulate --mutants

MINUTES ?= 10
faults: $(VENV)/dev.stamp  ## kills, pauses and cut links against three real processes with stock clients (as root: in network namespaces)
	@$(BIN)/python -m tests.reliability.faults --minutes $(MINUTES) --output build/faults

lint: $(VENV)/dev.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/dev.stamp
	$(BIN)/mypy

format: $(VENV)/dev.stamp
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Barnabas needs Python 3.11 or later; $(PYTHON) is older. Try: make PYTHON=python3.11"; exit 1; }
	$(PYTHON) -m venv $(VENV)

SOURCES := pyproject.toml $(wildcard src/barnabas/*/_*.[ch] src/barnabas/*/*/_*.[ch])

$(VENV)/run.stamp: $(VENV)/bin/python $(SOURCES)
	@echo "Setting up $(VENV), once: about a minute."
	@$(BIN)/python -m pip install --disable-pip-version-check --editable .
	@touch $@

$(VENV)/spark.stamp: $(VENV)/bin/python $(SOURCES)
	@echo "Setting up $(VENV) with Spark, once: some minutes, mostly the download of Spark."
	@$(BIN)/python -m pip install --disable-pip-version-check --editable '.[spark,bench]'
	@touch $@ $(VENV)/run.stamp

$(VENV)/dev.stamp: $(VENV)/bin/python $(SOURCES)
	@echo "Setting up $(VENV) with Spark and the development tools, once: some minutes, mostly the download of Spark."
	@$(BIN)/python -m pip install --disable-pip-version-check --editable '.[dev]'
	@touch $@ $(VENV)/run.stamp $(VENV)/spark.stamp

clean:
	rm -rf $(VENV) build dist *.egg-info src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	rm -f src/barnabas/*/_*.so
