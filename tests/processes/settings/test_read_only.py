"""A node that is made read-only while it runs, and takes messages again: `broker_permission`."""

import os
import signal
import threading
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.processes.nodes import Pair, TestNode, check_nothing_is_left, ending
from tests.processes.waiting import await_
from towline.client.admin import AdminClient
from towline.client.consumer import Consumer
from towline.client.errors import PutRefused
from towline.client.message import Message
from towline.client.producer import Producer
from towline.format.wire.refusals import Cause
from towline.node.process.settings_changes import change_settings
from towline.node.report.status import read_status
from towline.node.roles.role_commands import AGREE, run_command
from towline.runtime.positions import Position

READ, READ_AND_WRITE = 4, 6
WAIT_S = 30.0


def permit(node: TestNode, permission: int, *, keep: bool = False) -> None:
    done = change_settings(node.store.root, {"broker_permission": permission}, keep=keep)
    assert (done["settings"], done["kept"], done["waiting"]) == ({"broker_permission": permission}, keep, [])


@pytest.fixture(params=[True, False], ids=["by rings in shared memory", "by the socket"])
def node(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestNode]:
    root = tmp_path_factory.mktemp("read-only") / "store"
    made = TestNode("master", root, flush_disk_type="ASYNC_FLUSH", shared_memory_puts=request.param)
    with ending(made):
        made.start()
        yield made
        assert made.stop()
        check_nothing_is_left(made)


class Sending:
    """Somebody who sends one message after the other; `came` counts what became of them, by status."""

    def __init__(self, endpoint: str) -> None:
        self._endpoint = endpoint
        self._over = threading.Event()
        self.came: Counter[str] = Counter()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "Sending":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        with Producer(self._endpoint, linger_ms=0) as producer:
            while not self._over.is_set():
                try:
                    self.came[producer.send(Message("t", b"one")).status.name] += 1
                except PutRefused as refused:
                    self.came[f"{refused.status} {refused.cause} {refused.numbers['broker_permission']}"] += 1

    def await_more(self, status: str) -> None:
        before = self.came[status]
        await_(lambda: self.came[status] >= before + 20, WAIT_S, f"20 more are {status}")


def test_nothing_is_stored_from_the_moment_the_change_returns(node: TestNode) -> None:
    with Sending(node.endpoint) as sending:
        sending.await_more("PUT_OK")
        permit(node, READ)
        end, stored = node.at(Position.APPENDED), sending.came["PUT_OK"]
        sending.await_more(f"NO_PERMISSION permission {READ}")
        assert node.at(Position.APPENDED) == end
        assert sending.came["PUT_OK"] <= stored + 1, "but for the one whose answer was on its way"
        permit(node, READ_AND_WRITE)
        sending.await_more("PUT_OK")
    assert set(sending.came) == {"PUT_OK", f"NO_PERMISSION permission {READ}"}


def test_reading_goes_on_and_status_says_that_it_is_read_only(node: TestNode) -> None:
    with Producer(node.endpoint) as producer:
        producer.send(Message("t", b"before"))
        permit(node, READ)
        with pytest.raises(PutRefused, match="this node is read-only"):
            producer.send(Message("t", b"refused"))
    with Consumer(f"ipc://{node.runtime / 'serve.sock'}", "t", start="first") as consumer:
        assert [message.body for message in consumer.poll(5_000)] == [b"before"]
    status = read_status(node.store.root)
    assert (status["read_only"], status["broker_permission"]) == (True, READ)
    assert status["refused"]["leading"] == "permission"
    permit(node, READ_AND_WRITE)
    assert not read_status(node.store.root)["read_only"]


def test_a_put_process_that_was_killed_comes_back_read_only(node: TestNode) -> None:
    permit(node, READ)
    before = node.pids()
    os.kill(before["put"], signal.SIGKILL)
    node.await_restarted("put", before)
    with Producer(node.endpoint) as producer, pytest.raises(PutRefused, match="read-only"):
        producer.send(Message("t", b"refused"))


def test_a_node_that_agrees_on_its_role_anew_stays_read_only(node: TestNode) -> None:
    permit(node, READ)
    run_command(node.store.root, {"order": AGREE})
    node.forget()
    with Producer(node.endpoint) as producer, pytest.raises(PutRefused, match="read-only"):
        producer.send(Message("t", b"refused"))
    permit(node, READ_AND_WRITE)


def test_a_delayed_message_waits_until_messages_are_taken_again(node: TestNode) -> None:
    with Producer(node.endpoint) as producer:
        producer.send(Message("t", b"now"))
        producer.send(Message("t", b"later", delay_level=1))
    permit(node, READ)
    await_(lambda: node.positions.refused.count(Cause.PERMISSION), WAIT_S, "its delivery is refused")
    with Consumer(f"ipc://{node.runtime / 'serve.sock'}", "t", start="first") as consumer:
        assert [message.body for message in consumer.poll(5_000)] == [b"now"]
        permit(node, READ_AND_WRITE)
        assert await_(lambda: consumer.poll(1_000), WAIT_S, "it is delivered")[0].body == b"later"


class TestAfterTheNextStart:
    def test_it_is_read_only_where_that_was_kept(self, node: TestNode) -> None:
        permit(node, READ, keep=True)
        assert node.stop()
        node.start()
        assert read_status(node.store.root)["read_only"]

    def test_it_takes_messages_where_it_was_not(self, node: TestNode) -> None:
        permit(node, READ)
        assert node.stop()
        node.start()
        assert not read_status(node.store.root)["read_only"]

    def test_what_was_kept_is_there_after_a_kill(self, node: TestNode) -> None:
        permit(node, READ, keep=True)
        node.kill_all(seed=1)
        node.start()
        assert read_status(node.store.root)["read_only"]


def test_a_slave_gets_what_was_stored_before(tmp_path) -> None:
    pair = Pair(tmp_path, broker_role="ASYNC_MASTER")
    with ending(*pair.nodes):
        pair.start()
        pair.slave.stop()
        with Producer(pair.master.endpoint) as producer:
            assert all(result.acknowledged for result in producer.send_batch([Message("t", b"x", queue_id=0)] * 50))
        permit(pair.master, READ)
        pair.slave.start()
        pair.await_caught_up()
        with AdminClient(f"ipc://{pair.slave.runtime / 'serve.sock'}") as admin:
            assert admin.bounds("t")[0] == (0, 50)
