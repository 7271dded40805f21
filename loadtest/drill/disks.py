"""Faults of a disk: one that is slow, one that is full, and the small one that can be filled."""

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from towline.errors import NodeNotRunning
from towline.format.wire.refusals import Cause
from towline.limits import MIB
from towline.node.process.context import open_node

from .drill import Drill
from .errors import DrillFailed, DrillImpossible
from .nodes import Held
from .waiting import await_

DISK: Final = 192 * MIB
DELAY_US: Final = 100_000  # of every sync
CALLS: Final = "msync,fdatasync,fsync"
REFUSED_MAX_S: Final = 30.0
ATTACH_LINES_MAX: Final = 100


def slow_disk(drill: Drill) -> None:
    """Every sync of the master's flush process takes 100 ms longer; the service goes on, slower."""
    if shutil.which("strace") is None:
        raise DrillImpossible("slow-disk", "there is no strace (Debian: strace)")
    ground, master = drill.ground, drill.master()
    drill.run_for(1.0)
    pid = ground.node(master).pids()["flush"]
    fault = drill.fault(f"syncs of node {master}, the master, are slow", node=master)
    before, began = drill.load.acknowledged, drill.watch.now()
    with _traced(pid, ["-e", f"trace={CALLS}", "-e", f"inject={CALLS}:delay_exit={DELAY_US}"]):
        drill.served(fault)
        drill.run_for(drill.seconds)
        per_s = (drill.load.acknowledged - before) / (drill.watch.now() - began)
    fault.facts["acknowledged_per_s"] = round(per_s, 1)
    drill.heal(fault, lambda: None, "the disk is as fast as before")
    drill.expect(ground.master() == master, "a slow disk changed the master")


@contextmanager
def _traced(pid: int, arguments: Sequence[str]) -> Iterator[None]:
    """strace on a running process; attached inside the block."""
    command = ["strace", "-f", "-o", "/dev/null", *arguments, "-p", str(pid)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    try:
        assert process.stderr is not None
        for _ in range(ATTACH_LINES_MAX):
            line = process.stderr.readline()
            if "attached" in line:
                break
            if not line:
                raise DrillImpossible("slow-disk", "strace may not be attached here")
        yield
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)


def disk_full(drill: Drill) -> None:
    """The master's disk is filled: puts are refused by name and stored nowhere; with room again they go on."""
    ground, master = drill.ground, drill.master()
    filler = ground.node(master).store.root.parent / "filler"
    drill.run_for(1.0)
    fault = drill.fault(f"the disk of node {master}, the master, is full", node=master)
    try:
        taken = _take_all(filler)
        await_(lambda: _refused(drill, master) > 0, REFUSED_MAX_S, "puts are refused because the disk is full")
        drill.run_for(drill.seconds)
        fault.facts |= {"taken_bytes": taken, "refused": _refused(drill, master)}
    finally:
        filler.unlink(missing_ok=True)
    drill.heal(fault, lambda: None, "the disk has room again")
    drill.served(fault)
    drill.expect(ground.master() == master, "a full disk changed the master")


def _refused(drill: Drill, number: int) -> int:
    try:
        view = open_node(drill.ground.node(number).store.root)
    except NodeNotRunning:
        raise DrillFailed(f"node {number} has gone when its disk was full") from None
    try:
        return view.positions.refused.count(Cause.DISK_FULL)
    finally:
        view.positions.close()


def _take_all(path: Path) -> int:
    """A file that takes all that is left of its disk; how many bytes."""
    taken = 0
    with path.open("wb") as file:
        for step in (8 * MIB, MIB, 64 << 10, 4 << 10):
            while True:
                try:
                    os.posix_fallocate(file.fileno(), taken, step)
                except OSError:  # no room for so much
                    break
                taken += step
    return taken


@contextmanager
def small_disk(directory: Path, held: Held) -> Iterator[Path]:
    """A file system of 192 MiB of its own, an image on a loop device. Raises DrillImpossible."""
    missing = [tool for tool in ("mkfs.ext4", "mount", "umount") if shutil.which(tool) is None]
    if os.geteuid() != 0 or missing:
        raise DrillImpossible("disk-full", f"a small disk needs root and {', '.join(missing) or 'loop devices'}")
    image, mounted = directory / "disk.img", directory / "disk"
    mounted.mkdir()
    with image.open("wb") as file:
        file.truncate(DISK)
    subprocess.run(["mkfs.ext4", "-q", "-m", "0", image], check=True)
    try:
        with held():
            done = subprocess.run(["mount", "-o", "loop", image, mounted], capture_output=True, text=True, check=False)
        if done.returncode:
            raise DrillImpossible("disk-full", f"a small disk cannot be mounted: {done.stderr.strip()}")
        yield mounted
    finally:
        if mounted.is_mount():
            subprocess.run(["umount", "--lazy", mounted], check=True)
