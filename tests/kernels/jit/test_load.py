"""Loading: every kernel is ready after it, compiled for its signature only."""

import os
import subprocess
import sys

import numpy as np
import pytest

from towline.kernels.base import crc
from towline.kernels.jit import load
from towline.kernels.jit.compiled import ready


def test_everything_is_loaded_once() -> None:
    count = load.load_all()
    assert count == ready() > 15
    assert load.load_all() == count


def test_the_command_says_what_it_did() -> None:
    done = subprocess.run([sys.executable, "-m", "towline.kernels"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith(f"{load.load_tools()} kernels ready in ")


def test_who_compiles_beside_another_process_ends_with_it() -> None:
    gone = str(os.getppid())  # whose child it is not
    command = [sys.executable, "-m", "towline.kernels.jit.beside", gone]
    assert subprocess.run(command, capture_output=True, timeout=60, check=False).returncode == 1


def test_read_only_and_writable_arrays_are_taken_where_a_kernel_only_reads() -> None:
    writable = np.zeros(10, np.uint8)
    read_only = np.frombuffer(bytes(10), np.uint8)
    assert not read_only.flags.writeable
    starts, lengths, result = np.zeros(1, np.int64), np.full(1, 10), np.zeros(1, np.int64)
    assert crc.crc32_each(writable, starts, lengths, result) == crc.crc32_each(read_only, starts, lengths, result) == 1


def test_a_wrong_argument_is_refused_and_not_compiled_for() -> None:
    with pytest.raises(TypeError):
        crc.crc32_each(np.zeros(10, np.int64), *np.zeros((3, 1), np.int64))
    assert len(crc.crc32_each.signatures) == 1  # type: ignore[attr-defined]
