"""kill -9 at each step on the way of a message: nothing acknowledged is lost, doubled is only what was under way."""

import zlib
from collections.abc import Iterator

import pytest

from tests.faults.noting import note
from tests.kafka.exchange.test_import_kills import STEPS as IMPORT_STEPS
from tests.processes.arming import (
    CLEAN_STEPS,
    EXTENSION_STEPS,
    GATHER_STEPS,
    POOL_STEPS,
    PROMOTION_STEPS,
    REMOTING_STEPS,
    RETENTION_STEPS,
    TRANSACTION_STEPS,
    TRUNCATION_STEPS,
    Arming,
)
from tests.processes.kills.test_kill_in_append import STEPS as APPEND_STEPS
from tests.processes.load import Load
from tests.processes.nodes import SEGMENT, Pair, check_nothing_is_left, ending
from tests.processes.stored import check_pair
from tests.processes.waiting import await_
from towline.runtime.failpoints import NAMES
from towline.runtime.positions import Duty

COUNT = 1500
WINDOW = 120  # messages without an outcome: no more can be sent again by a kill
STARTED = 200  # acknowledgements before the failpoint is armed
RESTART_S = 30.0
RECORD = 300  # bytes of a message of the load, at least
STEPS = {  # where (the process of that node dies), and the how-manieth time from then on
    "put.in_publish": 3,
    "put.after_publish": 3,
    "put.ring_before_answer": 3,
    "flush.before_sync": 2,
    "flush.after_sync": 2,
    "flush.before_watermark": 1,
    "reput.before_queues": 2,
    "reput.in_queues": 2,
    "reput.before_ends": 2,
    "reput.before_index": 2,
    "reput.before_slots": 2,
    "reput.before_header": 2,
    "reput.before_dispatched": 2,
    "reput.after_dispatched": 2,
    "allocate.before_link": 1,
    "allocate.after_link": 1,
    "receive.before_append": 2,
    "receive.after_append": 2,
    "receive.before_ack": 2,
}

DUTIES = {duty.label: duty for duty in Duty}


@pytest.fixture(scope="module")
def arming(tmp_path_factory: pytest.TempPathFactory) -> Arming:
    return Arming(tmp_path_factory.mktemp("arming"))


@pytest.fixture(scope="module")
def armed_pair(tmp_path_factory: pytest.TempPathFactory, arming: Arming) -> Iterator[Pair]:
    """A pair whose processes look for failpoints. The producer's refused and lost requests are sent again."""
    made = Pair(tmp_path_factory.mktemp("armed"))
    with ending(*made.nodes):
        with pytest.MonkeyPatch.context() as patch:
            arming.announce(patch)
            made.start()
        yield made
        assert made.stop() == (True, True)
        check_nothing_is_left(*made.nodes)


def test_every_step_has_a_failpoint_and_a_test():
    others = {"recover.in_salvage", "receive.before_set", "put.in_topics"}  # the last in test_topic_changes
    others |= {*GATHER_STEPS, *EXTENSION_STEPS, *APPEND_STEPS}
    others |= {"serve.woken", "serve.answered"}  # for traces: serve writes nothing that a kill could tear
    others |= {*TRANSACTION_STEPS, *TRUNCATION_STEPS, *PROMOTION_STEPS, *REMOTING_STEPS, *RETENTION_STEPS}
    others |= {f"kafka_import.{step}" for step in IMPORT_STEPS}  # of a command: no node runs
    assert STEPS.keys() | POOL_STEPS.keys() | CLEAN_STEPS.keys() | others == set(NAMES)


@pytest.mark.parametrize("step", STEPS)
def test_a_kill_at_this_step_loses_nothing(armed_pair: Pair, arming: Arming, step: str) -> None:
    duty, seed = step.partition(".")[0], zlib.crc32(step.encode())
    # A segment is made when the writer enters another one: such a load has to fill what is left of this one.
    count = COUNT if duty != "allocate" else COUNT + SEGMENT // RECORD
    load = Load(armed_pair.master.endpoint, step.replace(".", "-"), seed, count=count, window=WINDOW)
    before = {node.role: node.pids()[duty] for node in armed_pair.nodes if duty in node.pids()}
    load.start()
    load.await_acked(STARTED)
    arming.arm(f"{step}=kill@{STEPS[step]}")
    arming.await_fired()
    load.finish()
    counted = check_pair(armed_pair, load)

    def restarted() -> list[str]:
        return [role for role, pid in before.items() if armed_pair.node(role).positions.duty(DUTIES[duty]).pid != pid]

    await_(restarted, RESTART_S, f"{step}: the process has died in a node, and is there again")
    died = restarted()
    assert len(died) == 1, f"{step}: the process died in {died}"
    assert counted.acked == load.count
    # Only what was under way when put died may be stored twice: its outcome was unknown.
    assert counted.doubled <= (WINDOW if duty == "put" else 0), str(counted)
    note(1, acknowledged=counted.acked, doubled=counted.doubled, seed=seed)
    print(f"\n{step}: {died[0]}; {counted}")
