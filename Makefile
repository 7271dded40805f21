# One command per chore. Everything runs in .venv, which `make` builds from requirements.lock alone.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test soak check bench lock clean

demo: .venv/ready
	$(BIN)/towline demo

test: .venv/ready
	$(BIN)/python -m pytest -q

# Minutes: 200 kills of a node at random points of a mixed load, and whatever else is marked slow. TOWLINE_SEED repeats.
soak: .venv/ready
	$(BIN)/python -m pytest -s -m slow

check: .venv/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q tests/repo

bench: .venv/ready
	$(BIN)/towline bench put

.venv/ready: pyproject.toml requirements.lock
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --no-deps --editable .
	$(BIN)/python -m towline.kernels
	touch $@

lock:
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
		--no-header --extra server --extra demo --extra dev pyproject.toml -o requirements.lock

clean:
	rm -rf .venv build *.egg-info
