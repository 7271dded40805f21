"""Kernels without numba: the same results, from what numba left behind; and what is not believed."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from towline.kernels.jit import load

PROGRAM = """
import sys, zlib
import numpy as np
from towline.kernels.jit import machine_code
machine_code.prefer()
from towline.kernels.jit import load
from towline.kernels.base.crc import crc32_each
from towline.kernels.base.first_word import store_word
count = load.load_all()
data = np.frombuffer(bytes(range(256)) * 9, dtype=np.uint8)
sizes = np.array((0, 1, 15, 16, 17, 100, 2000))
found = np.full(len(sizes) + 1, -1)
assert crc32_each(data, np.full(len(sizes), 3), sizes, found) == len(sizes)
assert found.tolist() == [*(zlib.crc32(data[3 : 3 + size].tobytes()) for size in sizes), -1]
log = np.zeros(16, dtype=np.uint8)
assert store_word(log, 8, 7) == 16 and log[8] == 7
try:
    store_word(None, 8, 7)
except TypeError:
    print(count, "numba" in sys.modules)
"""


def run(program: str = PROGRAM, **more: str) -> tuple[int, bool]:
    """How many kernels were loaded, and whether by numba."""
    known = {name: value for name, value in os.environ.items() if not name.startswith("NUMBA")}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=known | more, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    count, by_numba = done.stdout.split()
    return int(count), by_numba == "True"


def test_a_process_that_prefers_it_runs_kernels_without_numba() -> None:
    with_numba = run(PROGRAM.replace("machine_code.prefer()\n", ""))
    assert with_numba[1]
    assert run() == (with_numba[0], False)


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """numba's cache and the machine code beside it, in another folder."""
    load.load_all()
    (folder,) = (path.parent for path in newest())
    chosen = tmp_path / "cache"
    shutil.copytree(folder, chosen / folder.name)
    return chosen


def newest() -> list[Path]:
    found = list((Path(load.__file__).parents[1] / "__pycache__").glob("kernels-*/machine-*"))
    return sorted(found, key=lambda path: path.stat().st_mtime)[-1:]


def test_a_damaged_file_is_not_believed(copied: Path) -> None:
    assert run(NUMBA_CACHE_DIR=str(copied))[1] is False
    (kept,) = copied.glob("kernels-*/machine-*")
    data = bytearray(kept.read_bytes())
    data[len(data) // 2] ^= 1
    kept.write_bytes(data)
    assert run(NUMBA_CACHE_DIR=str(copied))[1] is True


def test_who_tells_numba_to_compile_otherwise_gets_that() -> None:
    assert run(NUMBA_OPT="3")[1] is True
