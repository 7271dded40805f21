"""Kernels of a package that is imported from a zip, as executors get it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from towline.pipeline.ship import ship

PROGRAM = """
import numpy as np
import towline
from towline.kernels.base.first_word import store_word
log = np.zeros(16, dtype=np.uint8)
assert store_word(log, 8, 7) == 16 and log[8] == 7
print(towline.__file__, sum(store_word.stats.cache_hits.values()), sum(store_word.stats.cache_misses.values()))
"""


@pytest.fixture
def packed(tmp_path: Path) -> Path:
    return ship(tmp_path / "towline.zip")


def run(packed: Path, temporary: Path, **more: str) -> tuple[str, int, int]:
    """Where the package came from; hits and misses of the cache."""
    known = {name: value for name, value in os.environ.items() if not name.startswith(("NUMBA", "PYTHON"))}
    environment = known | {"PYTHONPATH": str(packed), "TMPDIR": str(temporary), "HOME": str(temporary)} | more
    command = [sys.executable, "-P", "-c", PROGRAM]
    done = subprocess.run(command, env=environment, cwd=temporary, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    origin, hits, misses = done.stdout.split()
    return origin, int(hits), int(misses)


def test_kernels_of_a_zip_are_compiled_once_for_all_processes_and_copies(packed: Path, tmp_path: Path) -> None:
    origin, hits, misses = run(packed, tmp_path)
    assert origin.startswith(str(packed))
    assert (hits, misses) == (0, 1)
    elsewhere = tmp_path / "copy" / "towline.zip"
    elsewhere.parent.mkdir()
    elsewhere.write_bytes(packed.read_bytes())
    assert run(elsewhere, tmp_path)[1:] == (1, 0)


def test_a_folder_that_others_may_write_to_is_not_believed(packed: Path, tmp_path: Path) -> None:
    run(packed, tmp_path)
    (folder,) = tmp_path.glob("towline-kernels-*")
    folder.chmod(0o777)
    before = sorted(path.name for path in folder.rglob("*"))
    origin, hits, _ = run(packed, tmp_path)
    assert (origin.startswith(str(packed)), hits) == (True, 0)
    assert sorted(path.name for path in folder.rglob("*")) == before


def test_a_folder_of_the_setting_is_taken(packed: Path, tmp_path: Path) -> None:
    chosen = tmp_path / "chosen"
    run(packed, tmp_path, NUMBA_CACHE_DIR=str(chosen))
    assert run(packed, tmp_path, NUMBA_CACHE_DIR=str(chosen))[1:] == (1, 0)
    assert not list(tmp_path.glob("towline-kernels-*"))
