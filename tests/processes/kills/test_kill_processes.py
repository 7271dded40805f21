"""kill -9 of each process under load: it is started again, and nothing that was acknowledged is lost (H8, H11, H13)."""

import os
import signal
import zlib

import pytest

from tests.faults.noting import note
from tests.processes.load import Load
from tests.processes.nodes import ZYGOTE, Pair
from tests.processes.stored import check_pair

VICTIMS = [
    ("master", "put"),
    ("master", "allocate"),
    ("master", "flush"),
    ("master", "reput"),
    ("master", "serve"),
    ("master", "send"),
    ("master", "schedule"),
    ("master", ZYGOTE),
    ("slave", "receive"),
    ("slave", "follow"),
    ("slave", "flush"),
    ("slave", "reput"),
    ("slave", ZYGOTE),
]


@pytest.mark.parametrize(("role", "victim"), VICTIMS)
def test_a_killed_process_costs_no_acknowledged_message(pair: Pair, role: str, victim: str) -> None:
    node = pair.node(role)
    seed = zlib.crc32(f"{role} {victim}".encode()) & 0xFFFF
    load = Load(pair.master.endpoint, f"{role}-{victim}", seed)
    moment = load.moment()
    before = node.pids()
    load.start()
    load.await_acked(moment)
    os.kill(before[victim], signal.SIGKILL)
    at_kill = len(load.acked)
    again_s = node.await_restarted(victim, before)
    pair.await_linked()
    load.finish()
    assert len(load.acked) - at_kill >= 1000
    counted = check_pair(pair, load)
    note(1, acknowledged=counted.acked, doubled=counted.doubled, outage_s=again_s, seed=seed)
    print(f"\n{role} {victim}: killed at {at_kill} of {load.count}, runs again after {again_s:.2f} s; {counted}")
