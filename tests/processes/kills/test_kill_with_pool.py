"""The kill and stop tests that touch the master's writer, again with its transient pool on: a kill -9 loses nothing.

Acknowledged bytes stand in named shared memory, which neither the end of put nor that of the whole node takes away.
"""

import os
import signal
import zlib

import pytest

from tests.faults.noting import note
from tests.processes.arming import POOL_STEPS, Arming
from tests.processes.load import Load
from tests.processes.nodes import SEGMENT, ZYGOTE, Pair, check_nothing_is_left
from tests.processes.stored import check_pair
from towline.node.store.pool_state import PoolState
from towline.runtime.positions import Duty, Position


def loaded(pair: Pair, name: str) -> tuple[Load, int]:
    """A load under way, and its number of acknowledgements, at a moment that the name gives."""
    seed = zlib.crc32(name.encode()) & 0xFFFF
    load = Load(pair.master.endpoint, f"pool-{name.replace(' ', '-')}", seed)
    moment = load.moment()
    load.start()
    load.await_acked(moment)
    assert pair.master.at(Position.TRANSIENT_POOL) == PoolState.ON
    return load, len(load.acked)


@pytest.mark.parametrize("victim", ["put", "flush", "allocate", "reput", "send", ZYGOTE])
def test_a_killed_process_costs_no_acknowledged_message(pooled_pair: Pair, victim: str) -> None:
    node = pooled_pair.master
    before = node.pids()
    load, _ = loaded(pooled_pair, victim)
    os.kill(before[victim], signal.SIGKILL)
    at_kill = len(load.acked)
    again_s = node.await_restarted(victim, before)
    pooled_pair.await_linked()
    load.finish()
    assert len(load.acked) - at_kill >= 1000
    counted = check_pair(pooled_pair, load)
    note(1, acknowledged=counted.acked, doubled=counted.doubled, outage_s=again_s, seed=load.seed)
    print(f"\n{victim}: killed at {at_kill} of {load.count}, runs again after {again_s:.2f} s; {counted}")


@pytest.mark.parametrize("roles", ["master", "slave master"])
def test_a_killed_node_costs_no_acknowledged_message(pooled_pair: Pair, roles: str) -> None:
    load, _ = loaded(pooled_pair, roles)
    nodes = [pooled_pair.node(role) for role in roles.split()]
    for node in nodes:
        node.kill_all(load.seed)
    at_kill = len(load.acked)
    started = [node.start() for node in reversed(nodes)]
    pooled_pair.await_linked()
    load.finish()
    assert len(load.acked) - at_kill >= 1000
    counted = check_pair(pooled_pair, load)
    note(1, acknowledged=counted.acked, doubled=counted.doubled, outage_s=max(started), seed=load.seed)
    print(f"\n{roles}: killed at {at_kill} of {load.count}, served {max(started):.2f} s later; {counted}")


@pytest.mark.parametrize("step", POOL_STEPS)
def test_a_kill_at_this_step_loses_nothing(pooled_pair: Pair, arming: Arming, step: str) -> None:
    node, duty = pooled_pair.master, step.partition(".")[0]
    count = 1500 + (SEGMENT // 300 if duty == "allocate" else 0)  # enough to fill a segment, whose buffer goes back
    load = Load(node.endpoint, step.replace(".", "-"), zlib.crc32(step.encode()), count=count)
    before = node.pids()[duty]
    load.start()
    load.await_acked(100)
    arming.arm(f"{step}=kill@{POOL_STEPS[step]}")
    arming.await_fired()
    load.finish()
    counted = check_pair(pooled_pair, load)
    assert node.positions.duty(Duty.named(duty)).pid != before
    assert (counted.acked, counted.doubled) == (count, 0)
    note(1, acknowledged=counted.acked, doubled=counted.doubled, seed=load.seed)
    print(f"\n{step}: {counted}")


def test_a_stop_under_load_commits_everything_and_leaves_no_shared_memory(pooled_pair: Pair) -> None:
    load, at_stop = loaded(pooled_pair, "stop")
    node = pooled_pair.master
    assert node.stop()
    check_nothing_is_left(node)
    assert not node.store.abort.exists()
    assert not node.store.pool_owner.exists()
    start_s = node.start()
    load.finish()
    counted = check_pair(pooled_pair, load)
    assert counted.doubled == 0, "a message that was stored was not answered before the stop"
    print(f"\nstopped at {at_stop} of {load.count}, again in {start_s:.2f} s; {counted}")
