"""kill -9 of every process of a node at once: its restart recovers every acknowledged message, and goes on."""

import pytest

from tests.faults.noting import note
from tests.processes.load import Load
from tests.processes.nodes import Pair
from tests.processes.stored import check_pair


@pytest.mark.parametrize(
    ("roles", "seed"), [("master", 1), ("master", 2), ("master", 3), ("slave", 4), ("slave master", 5)]
)
def test_a_restart_recovers_every_acknowledged_message_and_goes_on(pair: Pair, roles: str, seed: int) -> None:
    nodes = [pair.node(role) for role in roles.split()]
    load = Load(pair.master.endpoint, f"node-{seed}", seed)
    moment = load.moment()
    load.start()
    load.await_acked(moment)
    for node in nodes:
        node.kill_all(seed)
    at_kill = len(load.acked)
    started = [node.start() for node in reversed(nodes)]
    pair.await_linked()
    load.finish()
    assert len(load.acked) - at_kill >= 1000
    counted = check_pair(pair, load)
    note(1, acknowledged=counted.acked, doubled=counted.doubled, outage_s=max(started), seed=seed)
    print(f"\n{roles}: killed at {at_kill} of {load.count}, served {max(started):.2f} s later; {counted}")
