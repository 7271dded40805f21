# One command per chore. Everything runs in .venv, which `make` builds from requirements.lock alone.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test faults soak fuzz mutants drills lint check docs bench bench-full bench-layouts lock clean

demo: .venv/ready
	$(BIN)/towline demo

# Three workers, then what is marked alone, then once more what failed: what passes the second time is in build/flaky.txt.
# Plain `pytest` runs the same tests one after the other.
test: .venv/ready
	$(BIN)/python -m tests.spark.class_archive
	$(BIN)/python -m tests.gate

# Every row of the fault matrix, with counts; docs/faults.md is written from them. Some hours, or FAULTS="--short",
# "--rows F1,F7", "--minutes 30"; run again, it goes on where it was broken off, and runs of other rows may go beside it.
# TOWLINE_SEED repeats.
faults: .venv/ready
	$(BIN)/python -m tests.faults --record $(FAULTS)

# The same, then what else is marked slow, whatever came of the first.
soak: .venv/ready
	$(BIN)/python -m tests.faults --record $(FAULTS); status=$$?; \
		$(BIN)/python -m pytest -s -m slow -p tests.faults.rest && exit $$status

# Decoders of bytes that others made, under ten million inputs, which `make soak` runs too. FUZZ="--target kafka.segment",
# "--minutes 5", "--seed 7", "--replay build/fuzz/FILE".
fuzz: .venv/ready
	$(BIN)/python -m tests.fuzz $(FUZZ)

# Some 90 mistakes, each put alone into a copy of this checkout: a test of its area has to fail, or this does. Many minutes;
# run again, it goes on where it was broken off. MUTANTS="--area flush", "--only NAME", "--fresh".
mutants: .venv/ready
	$(BIN)/python -m tests.mutants $(MUTANTS)

# Every drill once, on clusters of their own: reports in build/drills. What this machine cannot do is skipped by name.
drills: .venv/ready
	$(BIN)/towline drill all

# Rules of style, the format, types.
lint: .venv/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# The same and the rules of the repository: what to run before a commit.
check: lint
	$(BIN)/python -m pytest -q tests/repo

# The site of the documentation, in site/. A link that leads nowhere is an error.
docs: .venv/ready
	$(BIN)/mkdocs build --strict

# Towline beside RocketMQ, Kafka, NATS and Redis: table, plots and page in build/bench. What is not installed is left out.
bench: .venv/ready
	$(BIN)/towline bench peers --minutes 10

# The same with up to five rounds and everything: what docs/benchmarks.md quotes. Run again, it goes on where it was broken off.
MINUTES ?= 28
bench-full: .venv/ready
	$(BIN)/towline bench peers --full --minutes $(MINUTES) --resume --output loadtest/results
	$(BIN)/python -m peers.quote

# One log beside a log per partition: what docs/layouts.md quotes. Run again, it goes on where it was broken off.
bench-layouts: .venv/ready
	$(BIN)/towline bench layouts --minutes 25 --resume
	cp build/bench/layouts/layouts.json loadtest/results/
	$(BIN)/python -m peers.quote

.venv/ready: pyproject.toml requirements.lock
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --no-deps --editable . --config-settings editable_mode=compat
	$(BIN)/python -m towline.kernels
	touch $@

lock:
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
		--no-header --extra server --extra demo --extra drill --extra connect --extra delta --extra loadtest --extra web --extra kafka --extra peers --extra dev --extra docs pyproject.toml -o requirements.lock

clean:
	rm -rf .venv build site *.egg-info
