# One command per chore. Everything runs in .venv, which `make` builds from requirements.lock alone.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test soak drills lint check bench bench-full lock clean

demo: .venv/ready
	$(BIN)/towline demo

# Three workers, then what is marked alone, then once more what failed: what passes the second time is in build/flaky.txt.
# Plain `pytest` runs the same tests one after the other.
test: .venv/ready
	$(BIN)/python -m tests.spark.class_archive
	$(BIN)/python -m tests.gate

# Minutes: 200 kills of a node at random points of a mixed load, and whatever else is marked slow. TOWLINE_SEED repeats.
soak: .venv/ready
	$(BIN)/python -m pytest -s -m slow

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

# Towline beside RocketMQ, Kafka, NATS and Redis: table, plots and page in build/bench. What is not installed is left out.
bench: .venv/ready
	$(BIN)/towline bench peers --minutes 10

# The same with up to five rounds and everything: what docs/benchmarks.md quotes. Run again, it goes on where it was broken off.
MINUTES ?= 28
bench-full: .venv/ready
	$(BIN)/towline bench peers --full --minutes $(MINUTES) --resume --output loadtest/results
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
		--no-header --extra server --extra demo --extra drill --extra connect --extra delta --extra loadtest --extra peers --extra dev pyproject.toml -o requirements.lock

clean:
	rm -rf .venv build *.egg-info
