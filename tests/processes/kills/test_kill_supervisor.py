"""kill -9 of a supervisor under load: no orphan keeps anything, and the next start on the same store is quick (H8)."""

import pytest

from tests.faults.noting import note
from tests.processes.load import Load
from tests.processes.nodes import Pair
from tests.processes.stored import check_pair

pytestmark = pytest.mark.alone

NEXT_START_MAX_S = 2.0


@pytest.mark.parametrize("role", ["master", "slave"])
def test_nobody_outlives_a_killed_supervisor_and_the_next_start_works(pair: Pair, role: str) -> None:
    node = pair.node(role)
    seed = 20 + len(role)
    load = Load(pair.master.endpoint, f"supervisor-{role}", seed)
    moment = load.moment()
    load.start()
    load.await_acked(moment)
    gone_s = node.kill_supervisor()
    at_kill = len(load.acked)
    assert node.store.abort.exists()
    start_s = node.start()
    starved_s = node.waited_for_a_cpu()
    pair.await_linked()
    load.finish()
    assert len(load.acked) - at_kill >= 1000
    counted = check_pair(pair, load)
    note(1, acknowledged=counted.acked, doubled=counted.doubled, outage_s=start_s, seed=seed)
    print(f"\n{role}: killed at {at_kill} of {load.count}, all gone after {gone_s:.3f} s; {counted}")
    print(f"{role}: served after {start_s:.2f} s, {starved_s:.2f} s of which the machine was busy with something else")
    assert start_s - starved_s <= NEXT_START_MAX_S
