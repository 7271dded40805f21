"""A node in a control group whose memory is used up: whatever the kernel does, nothing acknowledged is lost (F26).

What the processes used before they came into the group counts for that of before; all that the load needs has to fit.
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import pytest

from tests.faults.noting import note
from tests.processes.nodes import SEGMENT, TestNode, ending
from tests.processes.waiting import await_
from tests.requirements import need
from tests.soak.ledger import Ledger
from tests.soak.mixed import MixedLoad
from towline.limits import MIB
from towline.runtime.positions import Position

GROUPS: Final = Path("/sys/fs/cgroup/memory")  # of version 1
LIMIT: Final = 32 * MIB
BYTES: Final = 3 * LIMIT
LOAD_S: Final = 120.0
SEED: Final = 26


class ControlGroup:
    """Its processes, and those that they start, may use so much memory, page cache included."""

    def __init__(self, limit: int) -> None:
        self._place = GROUPS / f"towline-test-{os.getpid()}"
        self._place.mkdir()
        (self._place / "memory.limit_in_bytes").write_text(str(limit))

    def add(self, pids: Iterable[int]) -> None:
        for pid in pids:
            (self._place / "cgroup.procs").write_text(str(pid))

    @property
    def hits(self) -> int:
        """How often the limit was met."""
        return int((self._place / "memory.failcnt").read_text())

    @property
    def killed(self) -> int:
        """Processes that the kernel has ended for want of memory."""
        words = (self._place / "memory.oom_control").read_text().split()
        return int(words[words.index("oom_kill") + 1])

    def end(self) -> None:
        for pid in (self._place / "cgroup.procs").read_text().split():
            with suppress(OSError):  # it has gone meanwhile
                (GROUPS / "cgroup.procs").write_text(pid)
        await_(self._removed, 60.0, "nobody is in the group any more")

    def _removed(self) -> bool:
        with suppress(OSError):
            self._place.rmdir()
        return not self._place.exists()


@contextmanager
def control_group(limit: int) -> Iterator[ControlGroup]:
    if not os.access(GROUPS / "cgroup.procs", os.W_OK):
        need({"cgroups": "a memory limit needs root and control groups of version 1"})
    made = ControlGroup(limit)
    try:
        yield made
    finally:
        made.end()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("mode", ["SYNC_FLUSH", "ASYNC_FLUSH"])
def test_a_node_that_has_used_up_its_memory_loses_nothing_that_was_acknowledged(tmp_path: Path, mode: str) -> None:
    node = TestNode("master", tmp_path / "store", ha_listen_port=0, flush_disk_type=mode)
    ledger = Ledger(node.store.commitlog, SEGMENT)
    load = MixedLoad(node.endpoint, ledger, 0, SEED, bytes_max=BYTES)
    with ending(node):
        node.start()
        with control_group(LIMIT) as group:
            group.add(node.pids().values())
            load.start()
            load.await_acked()
            load.join(LOAD_S)
            load.stop()
            hits, killed = group.hits, group.killed
            node.kill_all(SEED)
        start_s = node.start()
        ledger.look(0, node.at(Position.APPENDED))
        assert node.stop()
    assert hits > 0, f"{LIMIT >> 20} MiB were enough"
    note(1 + killed, acknowledged=len(ledger.acked), doubled=ledger.doubles, outage_s=start_s, seed=SEED)
    print(f"\n{mode}: met the limit {hits} times, {killed} processes killed, {len(ledger.acked)} acknowledged")
