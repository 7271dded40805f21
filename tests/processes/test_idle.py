"""A node at which nothing arrives sleeps on its doorbells, and all its processes together are small."""

import time
from pathlib import Path

from towline.limits import MIB
from towline.node.status import read_status

from .waiting import await_

WATCHED_S = 5.0


def cpu_s(pids) -> float:
    """Time on a CPU of every thread of these processes, to the nanosecond; waiting for a CPU does not count."""
    spent = 0
    for pid in pids:
        for thread in Path(f"/proc/{pid}/task").iterdir():
            spent += int((thread / "schedstat").read_text().split()[0])
    return spent / 1e9


def test_an_idle_master_and_slave_together_use_less_than_5_percent_of_a_core(pair):
    pair.await_linked()
    pids = [pid for node in pair.nodes for pid in node.pids().values()]
    began, before = time.monotonic(), cpu_s(pids)
    await_(lambda: time.monotonic() - began >= WATCHED_S, WATCHED_S + 5, "the watched time")
    share = (cpu_s(pids) - before) / (time.monotonic() - began)
    print(f"{len(pids)} processes used {share:.2%} of a core")
    assert len(pids) >= 16
    assert share < 0.05


def test_all_processes_of_a_node_fit_in_400_mib(pair):
    for node in pair.nodes:
        assert 50 * MIB < read_status(node.store.root)["pss"] < 400 * MIB
