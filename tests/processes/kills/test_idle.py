"""A node at which nothing arrives sleeps on its doorbells, and all its processes together are small."""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.processes.nodes import SEGMENT
from tests.processes.waiting import await_
from towline.allocate.segments import AHEAD
from towline.limits import MIB
from towline.node.report.status import read_status
from towline.runtime.positions import Position

pytestmark = pytest.mark.alone

WATCHED_S = 5.0
WATCHES_MAX = 5  # the same instructions take longer where others use caches and host: that only adds
SHARE_MAX = 0.03
# A wake-up costs what the machine makes it cost: interpreters that do nothing but sleep as a duty does take 0.8% of the
# quiet one that SHARE_MAX is for, on a crowded one several times that. A pair may cost as many times that.
BARE_MAX = 4.0
BARE = "import time\nwhile True:\n    time.sleep(0.1)"


def cpu_s(pids) -> float:
    """Time on a CPU of every thread of these processes, to the nanosecond; waiting for a CPU does not count."""
    spent = 0
    for pid in pids:
        for thread in Path(f"/proc/{pid}/task").iterdir():
            spent += int((thread / "schedstat").read_text().split()[0])
    return spent / 1e9


def shares_of(*groups) -> list[float]:
    """Of a core, over the same WATCHED_S, of each group of processes."""
    began, before = time.monotonic(), [cpu_s(pids) for pids in groups]
    await_(lambda: time.monotonic() - began >= WATCHED_S, WATCHED_S + 5, "the watched time")
    spent_s = time.monotonic() - began
    return [(cpu_s(pids) - earlier) / spent_s for pids, earlier in zip(groups, before, strict=True)]


@contextmanager
def bare_sleepers(count) -> Iterator[list[int]]:
    """Interpreters that wake up every 100 ms, as a duty does, and do nothing."""
    sleepers = [subprocess.Popen((sys.executable, "-S", "-c", BARE)) for _ in range(count)]
    try:
        yield [each.pid for each in sleepers]
    finally:
        for each in sleepers:
            each.kill()
            each.wait()


def settled(node) -> bool:
    """Nothing is left to do for a writer that has not come yet."""
    ahead = node.at(Position.WANTED) + (AHEAD + 1) * SEGMENT
    return node.at(Position.ALLOCATED) == node.at(Position.WARM) == ahead


def test_an_idle_master_and_slave_together_use_less_than_3_percent_of_a_core(pair):
    """Or than bare sleepers times BARE_MAX, where the machine lets a wake-up cost more."""
    pair.await_linked()
    await_(lambda: all(map(settled, pair.nodes)), 60.0, "the segments ahead are made and warm")
    pids = [pid for node in pair.nodes for pid in node.pids().values()]
    assert len(pids) >= 17
    names = [f"{node.role}/{name}" for node in pair.nodes for name in node.pids()]
    told = []
    with bare_sleepers(len(pids)) as sleepers:
        for _ in range(WATCHES_MAX):
            *each, bare = shares_of(*([pid] for pid in pids), sleepers)
            parts = ", ".join(f"{name} {share:.2%}" for share, name in sorted(zip(each, names, strict=True))[::-1])
            told.append(f"{len(pids)} processes used {sum(each):.2%} of a core, bare sleepers {bare:.2%}: {parts}")
            print(told[-1])
            if sum(each) < max(SHARE_MAX, BARE_MAX * bare):
                return
    pytest.fail("\n".join(told))


def test_all_processes_of_a_node_fit_in_400_mib(pair):
    for node in pair.nodes:
        assert 50 * MIB < read_status(node.store.root)["pss"] < 400 * MIB
