"""A node at which nothing arrives sleeps on its doorbells, and all its processes together are small."""

import time
from pathlib import Path

import pytest

from allocate.segments import AHEAD
from tests.processes.nodes import SEGMENT
from tests.processes.waiting import await_
from towline.limits import MIB
from towline.node.report.status import read_status
from towline.runtime.positions import Position

pytestmark = pytest.mark.alone

WATCHED_S = 5.0
WATCHES_MAX = 3  # the same instructions take longer where others use caches and host: that only adds
SHARE_MAX = 0.03


def cpu_s(pids) -> float:
    """Time on a CPU of every thread of these processes, to the nanosecond; waiting for a CPU does not count."""
    spent = 0
    for pid in pids:
        for thread in Path(f"/proc/{pid}/task").iterdir():
            spent += int((thread / "schedstat").read_text().split()[0])
    return spent / 1e9


def share_of(pids) -> float:
    """Of a core, over WATCHED_S."""
    began, before = time.monotonic(), cpu_s(pids)
    await_(lambda: time.monotonic() - began >= WATCHED_S, WATCHED_S + 5, "the watched time")
    return (cpu_s(pids) - before) / (time.monotonic() - began)


def settled(node) -> bool:
    """Nothing is left to do for a writer that has not come yet."""
    ahead = node.at(Position.WANTED) + (AHEAD + 1) * SEGMENT
    return node.at(Position.ALLOCATED) == node.at(Position.WARM) == ahead


def test_an_idle_master_and_slave_together_use_less_than_3_percent_of_a_core(pair):
    pair.await_linked()
    await_(lambda: all(map(settled, pair.nodes)), 60.0, "the segments ahead are made and warm")
    pids = [pid for node in pair.nodes for pid in node.pids().values()]
    assert len(pids) >= 17
    shares: list[float] = []
    while len(shares) < WATCHES_MAX and min(shares, default=1) >= SHARE_MAX:
        shares.append(share_of(pids))
    print(f"{len(pids)} processes used {', '.join(f'{share:.2%}' for share in shares)} of a core")
    assert min(shares) < SHARE_MAX


def test_all_processes_of_a_node_fit_in_400_mib(pair):
    for node in pair.nodes:
        assert 50 * MIB < read_status(node.store.root)["pss"] < 400 * MIB
