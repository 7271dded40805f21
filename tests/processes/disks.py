"""Small disks: an ext4 image, mounted through a loop device, or a tmpfs. Needs root; without it tests say so."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from towline.limits import MIB


@contextmanager
def small_disk(directory: Path, size: int) -> Iterator[Path]:
    """A file system of its own of `size` bytes below `directory`, none of them reserved for root."""
    tools = [tool for tool in ("mkfs.ext4", "mount", "umount") if shutil.which(tool) is None]
    if os.geteuid() != 0 or tools:
        pytest.skip(f"a small disk needs root and {', '.join(tools) or 'loop devices'}")
    image, mounted = directory / "disk.img", directory / "disk"
    mounted.mkdir()
    with image.open("wb") as file:
        file.truncate(size)
    subprocess.run(["mkfs.ext4", "-q", "-m", "0", image], check=True)
    done = subprocess.run(["mount", "-o", "loop", image, mounted], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"a small disk cannot be mounted here: {done.stderr.strip()}")
    try:
        yield mounted
    finally:
        subprocess.run(["umount", "--lazy", mounted], check=True)


@contextmanager
def small_memory(size: int) -> Iterator[Path]:
    """A file system in memory of `size` bytes, as a container has one. Its path is short: sockets lie below it."""
    if os.geteuid() != 0:
        pytest.skip("a small file system in memory needs root")
    mounted = Path(tempfile.mkdtemp(prefix="tl-", dir="/dev/shm"))
    command = ["mount", "-t", "tmpfs", "-o", f"size={size},mode=0700", "tmpfs", mounted]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        mounted.rmdir()
        pytest.skip(f"a small file system in memory cannot be mounted here: {done.stderr.strip()}")
    try:
        yield mounted
    finally:
        subprocess.run(["umount", "--lazy", mounted], check=True)
        mounted.rmdir()


def available(disk: Path) -> int:
    found = os.statvfs(disk)
    return found.f_bavail * found.f_frsize


def take(path: Path, size: int | None = None) -> int:
    """A file that takes `size` bytes of its disk, or all that is left. How many."""
    taken = 0
    with path.open("ab") as file:
        for step in (8 * MIB, MIB, 64 << 10, 4 << 10):
            while size is None or taken + step <= size:
                try:
                    os.posix_fallocate(file.fileno(), taken, step)
                except OSError:  # no room for so much
                    break
                taken += step
    return taken
