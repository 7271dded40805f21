"""A disk whose power can be cut: an ext4 image behind a loop device.

What was synced is in the image; what only the page cache held is not. The cut is a copy of the image, made while nobody
writes to it: the journal commits by itself only after minutes, and the kernel writes back what is younger than half a
minute only when asked to.
"""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.processes.waiting import await_
from towline.limits import MIB

LET_GO_S = 20.0
TOOLS = ("mkfs.ext4", "mount", "umount", "cp")
OPTIONS = "loop,commit=300"


class Disk:
    """Mounted at `mounted`. Needs root and loop devices; `make` skips the test where they are not to be had."""

    def __init__(self, root: Path, size: int) -> None:
        self.root, self.size = root, size
        self.mounted = root / "disk"
        self._image = root / "image-0"
        self._cuts = 0

    def make(self) -> None:
        missing = [tool for tool in TOOLS if shutil.which(tool) is None]
        if os.geteuid() != 0 or missing:
            pytest.skip(f"a power cut needs root, loop devices{' and '.join(['', *missing])}")
        self.mounted.mkdir()
        with self._image.open("wb") as file:
            file.truncate(self.size)
        subprocess.run(["mkfs.ext4", "-q", "-m", "0", self._image], check=True)
        done = self._mount()
        if done.returncode:
            pytest.skip(f"a power cut needs loop devices: {done.stderr.strip()}")

    def cut(self) -> None:
        """The power went and came back: what is mounted now holds what had reached the disk. No process has it open."""
        self._cuts += 1
        after = self.root / f"image-{self._cuts}"
        subprocess.run(["cp", "--sparse=always", self._image, after], check=True)
        await_(self._let_go, LET_GO_S, f"nobody has {self.mounted} open")  # what was killed lets go a moment later
        self._image.unlink()
        self._image = after
        done = self._mount()
        assert done.returncode == 0, done.stderr

    def _let_go(self) -> bool:
        return subprocess.run(["umount", self.mounted], capture_output=True, check=False).returncode == 0

    def end(self) -> None:
        if self.mounted.is_mount():
            subprocess.run(["umount", "--lazy", self.mounted], check=True)

    def _mount(self) -> "subprocess.CompletedProcess[str]":
        command = ["mount", "-t", "ext4", "-o", OPTIONS, self._image, self.mounted]
        return subprocess.run(command, capture_output=True, text=True, check=False)


SIZE = 700 * MIB
