"""A segment file that holds another one's bytes: a reader is told which message is not there, and what to do."""

import contextlib
import shutil
from collections.abc import Iterator
from typing import Final

import pytest

from tests.processes.nodes import TestNode, ended, free_port
from tests.processes.waiting import await_
from towline.client.consumer import Consumer
from towline.client.errors import DamagedMessage
from towline.client.group.consumer import GroupConsumer
from towline.client.message import Message
from towline.client.producer import Producer
from towline.errors import QueueDamaged, Remedy, TowlineError
from towline.limits import KIB, MIB
from towline.link.endpoints import ipc_endpoint
from towline.log.files.segment_files import segment_name
from towline.runtime.positions import Position

TOPIC: Final = "orders"
COUNT: Final = 120
SIZES: Final = {"of one size": lambda number: 30 * KIB, "of many sizes": lambda number: 30 * KIB + 7 * number}


@pytest.fixture(scope="module", params=SIZES.values(), ids=SIZES)
def node(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestNode]:
    """Started again on a store whose second segment is a copy of the first; three were filled."""
    made = TestNode(
        "master",
        tmp_path_factory.mktemp("copied") / "store",
        mapped_file_size_commit_log=MIB,
        listen_port=free_port(),
        enable_property_filter=True,
    )
    ending = ended(made)
    next(ending)
    made.start()
    with Producer(made.endpoint, compression=None) as producer:
        for number in range(COUNT):
            body = b"%06d" % number + bytes(request.param(number))
            assert producer.send(Message(TOPIC, body, queue_id=0, properties={"number": f"{number:03d}"})).acknowledged
    await_(lambda: made.at(Position.DISPATCHED) == made.at(Position.APPENDED), 60.0, "everything is dispatched")
    assert made.at(Position.APPENDED) > 3 * MIB
    assert made.stop()
    shutil.copyfile(made.store.commitlog / segment_name(0), made.store.commitlog / segment_name(MIB))
    made.start()
    yield made
    next(ending, None)


def tcp(node: TestNode) -> str:
    return str(node.facts["endpoints"]["remoting"][0])


def reader(node: TestNode, way: str) -> Consumer | GroupConsumer:
    ipc = ipc_endpoint(node.runtime, "serve")
    if way == "group":
        return GroupConsumer(ipc, "readers", [TOPIC], start="first")
    if way == "sql":
        return Consumer(ipc, TOPIC, sql="number IS NOT NULL", suspend_ms=100)
    return Consumer(tcp(node) if way == "tcp" else ipc, TOPIC, reads_files=way == "files", suspend_ms=100)


@pytest.mark.parametrize("way", ["tcp", "ipc", "files", "group", "sql"])
def test_a_reader_of_a_copied_segment_is_told_to_mend_the_store_and_reads_on_behind_it(
    node: TestNode, way: str
) -> None:
    found: list[int] = []
    with contextlib.closing(reader(node, way)) as consumer:

        def told() -> TowlineError | None:
            try:
                found.extend(int(message.body[:6]) for message in consumer.poll(100))
            except TowlineError as error:
                return error
            return None

        error = await_(told, 60.0, "the reader meets the copy")
        assert isinstance(error, DamagedMessage | QueueDamaged)
        assert error.remedy is Remedy.FIX_DISK
        assert "towline store" in error.advice
        assert found == list(range(len(found))), "only what was stored there is handed out"
        offset = error.queue_offset if isinstance(error, DamagedMessage) else error.offset
        assert (error.topic, error.queue_id, offset) == (TOPIC, 0, len(found))
        last = COUNT - 1
        consumer.seek(TOPIC, 0, last) if isinstance(consumer, GroupConsumer) else consumer.seek(0, last)
        found.clear()
        await_(lambda: told() is None and found == [last], 60.0, "what stands behind it")
