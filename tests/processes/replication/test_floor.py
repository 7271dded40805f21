"""What `min_in_sync_replicas` keeps over failovers: nothing is shown, and nobody is promoted, below it (H14, H15)."""

import os
import signal
import time
from collections.abc import Iterator

import pytest

from tests.processes.groups import Group
from tests.processes.nodes import CATCH_UP_S, TestNode, ended
from tests.processes.readable import read_all
from tests.processes.stopping import stopped
from tests.processes.waiting import await_
from tests.processes.wire import Request, WireClient, records_of
from towline.errors import PromotionRefused
from towline.format.record.record import MessageEncoder
from towline.format.wire.status import PutStatus
from towline.log.state.in_sync_file import InSyncFile
from towline.runtime.positions import Duty, Position

TOPIC = "orders"
FIRST = 3
TURNS = 5  # of a process that would have done something by then
PATIENT = {"slave_timeout": 60_000, "ha_max_time_slave_not_catchup": 600_000}  # nobody leaves because it is late


def running(made: Group) -> Iterator[Group]:
    ending = ended(*made.nodes)
    next(ending)
    made.start()
    client = WireClient(made.nodes[0].endpoint)
    client.create_topic(TOPIC, 1)
    client.close()
    made.await_in_sync(0, len(made.nodes))
    made.await_topic(TOPIC)
    yield made
    next(ending, None)


@pytest.fixture
def three(tmp_path) -> Iterator[Group]:
    yield from running(Group(tmp_path, 3, **PATIENT))


def named(name: str) -> Request:
    """One message whose body is that."""
    properties, now = f"UNIQ_KEY\x01{name}\x02".encode(), time.time_ns() // 1_000_000
    record = MessageEncoder(TOPIC.encode()).encode(0, name.encode(), properties, born_timestamp=now)
    return Request(TOPIC.encode(), 0, [record])


def put(node: TestNode, request: Request) -> PutStatus:
    client = WireClient(node.endpoint)
    try:
        return PutStatus(client.put(request).status)
    finally:
        client.close()


def await_turns(node: TestNode, *duties: Duty) -> None:
    """Until each of these, one after the other, has looked at everything several times."""
    for duty in duties:
        line, beats = node.positions.duty(duty), set()

        def turned(line=line, beats=beats) -> bool:
            beats.add(line.beat_ns)
            return len(beats) > TURNS

        await_(turned, 60.0, f"{duty.label} has its turns")


def shown(node: TestNode) -> list[tuple[int, bytes]]:
    """(queue offset, body) of everything that a reader gets."""
    return [(message.queue_offset, message.body) for message in read_all(node, TOPIC)]


def test_what_a_promoted_master_shows_while_it_is_alone_stays_though_it_dies(three):
    """A message that the dead master acknowledged to nobody: its queue offset may become another one's yet."""
    first, second, third = three.nodes
    assert put(first, records_of(TOPIC.encode(), FIRST)) == PutStatus.PUT_OK
    three.await_level(0, 1, 2)
    with stopped(third.pids()["receive"]):
        client = WireClient(first.endpoint)
        client.send(named("tail"))

        def on_two() -> bool:
            return first.at(Position.APPENDED) == second.at(Position.APPENDED) > third.at(Position.APPENDED)

        await_(on_two, CATCH_UP_S, "it is on two of three")
        first.kill_all(seed=1)
        client.close()
        assert three.promote(1)["role"] == "master"
        third.kill_all(seed=2)  # what its receiver did not read goes with it
    await_turns(second, Duty.SEND, Duty.REPUT, Duty.SERVE)
    before = shown(second)
    assert [offset for offset, _ in before[:FIRST]] == list(range(FIRST))
    second.kill_all(seed=3)
    third.start()
    first.start()
    three.await_role(0, "slave")
    assert three.promote(2)["role"] == "master"
    three.await_in_sync(2, 2)
    assert put(third, named("other")) == PutStatus.PUT_OK
    three.await_level(0, 2)
    after = shown(third)
    assert after[FIRST] == (FIRST, b"other")
    assert after[: len(before)] == before
    second.start()
    three.await_level(0, 1, 2)
    assert shown(second) == after


@pytest.fixture
def two(tmp_path) -> Iterator[Group]:
    """The master may go on alone."""
    settings = {"min_in_sync_replicas": 1, "enable_auto_in_sync_replicas": True, "slave_timeout": 2000}
    yield from running(Group(tmp_path, 2, **settings))


def test_a_floor_that_was_raised_on_the_slave_first_promotes_nobody_whom_the_master_left_behind(two):
    """Under the floor of 2 that the slave has by now its own word would do; the set was recorded under 1."""
    master, slave = two.nodes
    assert slave.stop()
    slave.flags += ["--set", "min_in_sync_replicas=2"]
    slave.start()
    two.await_in_sync(0, 2)
    two.await_level(0, 1)
    receiver = slave.pids()["receive"]
    with stopped(receiver):
        await_(lambda: put(master, named("alone")) == PutStatus.PUT_OK, CATCH_UP_S, "the master goes on alone")
        acknowledged = master.at(Position.REPLICATED)
        master.kill_all(seed=1)
        os.kill(receiver, signal.SIGKILL)  # what it did not read goes with it
    assert slave.at(Position.APPENDED) < acknowledged
    with pytest.raises(PromotionRefused, match="min_in_sync_replicas is 2 here, and was 1 elsewhere"):
        two.promote(1)
    assert two.role(1) == "slave"
    master.start()
    two.await_in_sync(0, 2)
    assert two.await_level(0, 1) >= acknowledged


def test_a_floor_that_was_raised_on_every_node_is_recorded_and_counts(two):
    """Slaves first, the master last; then the slave takes over without anybody's word."""
    for node in reversed(two.nodes):
        assert node.stop()
        node.flags += ["--set", "min_in_sync_replicas=2"]
        node.start()
    two.await_in_sync(0, 2)

    def recorded() -> bool:
        return all(InSyncFile(node.store).load().floor == 2 for node in two.nodes)

    await_(recorded, CATCH_UP_S, "both have recorded the set under it")
    assert put(two.nodes[0], named("both")) == PutStatus.PUT_OK
    two.nodes[0].kill_all(seed=1)
    assert two.promote(1)["role"] == "master"
