"""What stands behind APPENDED while put, or a slave's receive, appends; and what is left of that when it was killed."""

import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.processes.arming import Arming
from tests.processes.nodes import SEGMENT, Pair, TestNode, check_nothing_is_left, ending
from tests.processes.stopping import stopped
from tests.processes.wire import WireClient, records_of
from towline.format.wire.status import PutStatus
from towline.log.files.segment_files import segment_name
from towline.runtime.positions import Position

TOPIC = "orders"
STALL_MS = 3_000
DEADLINE_S = 60.0


@pytest.fixture(scope="module")
def arming(tmp_path_factory: pytest.TempPathFactory) -> Arming:
    return Arming(tmp_path_factory.mktemp("arming"))


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory, arming: Arming) -> Iterator[Pair]:
    made = Pair(tmp_path_factory.mktemp("behind"), broker_role="ASYNC_MASTER")
    with ending(*made.nodes):
        with pytest.MonkeyPatch.context() as patch:
            arming.announce(patch)
            made.start()
        yield made
        assert made.stop() == (True, True)
        check_nothing_is_left(*made.nodes)


@pytest.fixture
def client(pair: Pair) -> Iterator[WireClient]:
    made = WireClient(pair.master.endpoint)
    made.create_topic(TOPIC, 1)
    assert made.put(records_of(TOPIC.encode(), 1)).status == PutStatus.PUT_OK
    pair.await_caught_up()
    yield made
    made.close()


def behind(node: TestNode, end: int) -> bytes:
    """The log from there to the end of its segment."""
    with (node.store.commitlog / segment_name(end - end % SEGMENT)).open("rb") as file:
        file.seek(end % SEGMENT)
        return file.read()


def test_the_first_bytes_of_a_request_are_in_the_log_before_its_end_moves(
    pair: Pair, client: WireClient, arming: Arming
) -> None:
    end, request = pair.master.at(Position.APPENDED), records_of(TOPIC.encode(), 1)
    for step, stored in (("put.before_publish", bytes(8)), ("put.in_publish", request.data[:8])):
        arming.arm(f"{step}=stall:{STALL_MS}")
        with ThreadPoolExecutor(1) as beside:
            answer = beside.submit(client.put, request)
            arming.await_fired(DEADLINE_S)
            assert pair.master.at(Position.APPENDED) == end
            assert behind(pair.master, end)[:8] == stored
            assert answer.result().status == PutStatus.PUT_OK
        end = pair.master.at(Position.APPENDED)


@pytest.mark.parametrize("step", ["put.before_publish", "put.in_publish"])
def test_a_put_that_takes_over_zeroes_what_a_killed_one_left(
    pair: Pair, client: WireClient, arming: Arming, step: str
) -> None:
    before, end = pair.master.pids(), pair.master.at(Position.APPENDED)
    arming.arm(f"{step}=kill")
    client.send(records_of(TOPIC.encode(), 100))
    pair.master.await_restarted("put", before)
    assert pair.master.at(Position.APPENDED) == end
    assert not any(behind(pair.master, end))


def test_a_receive_that_takes_over_zeroes_what_a_killed_one_left(
    pair: Pair, client: WireClient, arming: Arming
) -> None:
    """While its master is silent: else the same bytes come again."""
    slave, end = pair.slave, pair.slave.at(Position.APPENDED)
    before = slave.pids()
    arming.arm(f"receive.after_append=stall:{STALL_MS}")
    client.send(records_of(TOPIC.encode(), 100))
    arming.await_fired(DEADLINE_S)
    with stopped(pair.master.pids()["send"]):
        assert any(behind(slave, end))
        os.kill(before["receive"], signal.SIGKILL)
        slave.await_restarted("receive", before)
        assert slave.at(Position.APPENDED) == end
        assert not any(behind(slave, end))
    pair.await_caught_up()
