"""What is visible is what is acknowledged: nobody sees a record that a crash or a failover could still take back (H15).

A process that has to do its part is stopped, so that a put stays without its acknowledgement; then every way to read is
tried, on master and slave, and again when the process goes on.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import pytest

from tests.processes.nodes import Pair, TestNode, ending
from tests.processes.pulling import PullLink
from tests.processes.stopping import stopped
from tests.processes.waiting import await_
from tests.processes.wire import Request, WireClient
from towline.client.admin import AdminClient
from towline.client.errors import AskRefused
from towline.format.record.message_id import encode_offset_id
from towline.format.record.record import MessageEncoder, decode
from towline.format.wire.frames import PULL_ANSWER, Kind, Pull, encode_pull, expect
from towline.format.wire.status import GetStatus, PutStatus
from towline.link.context import close_context, new_context
from towline.link.dealer import Link
from towline.link.log_files import STRETCH_MIN
from towline.link.poller import Poller
from towline.runtime.positions import Duty, Position
from towline.spark.stores import StoreView

TOPIC: Final = "orders"
TIMEOUT_MS: Final = 2000  # of an acknowledgement that does not come
APPEARS_S: Final = 60.0
HELD_MS: Final = 30_000
BODY: Final = b"b" * (STRETCH_MIN + 1)  # records that a reader on the machine reads from the files
GROUP: Final = "readers"
EVERY_WAY: Final = {"pull", "files", "spark", "key", "unique key", "id", "offset", "time", "time upper", "bounds"}


@dataclass
class Readers:
    """Every way to read a node's only queue, and a pull that it holds."""

    node: TestNode
    held: list[Link] = field(default_factory=list)

    def __post_init__(self) -> None:
        endpoints = self.node.facts["endpoints"]["serve"]
        self.endpoint = next(str(each) for each in endpoints if str(each).startswith("ipc"))
        self.admin = AdminClient(self.endpoint, timeout_ms=60_000)
        self.files = PullLink(self.node)
        self.context = new_context()
        self.link = self._linked()

    def _linked(self) -> Link:
        link = Link(self.context, self.endpoint, {"role": "consumer", "cluster": "", "store": "", "name": "test"})
        link.greet(5_000)
        return link

    def hold(self, offset: int) -> Link:
        """A link whose pull the node holds, because nothing is there yet."""
        link = self._linked()
        assert link.send(encode_pull(_pull(offset, HELD_MS)))
        self.held.append(link)
        assert self.pulled(offset) == (GetStatus.OFFSET_OVERFLOW_ONE, 0)  # asked later, so the other one is held by now
        return link

    def pulled(self, offset: int) -> tuple[GetStatus, int]:
        """(status, records) of a pull that may not be held."""
        assert self.link.send(encode_pull(_pull(offset, 0)))
        found = _answer(self.link, APPEARS_S)
        assert found is not None
        return found

    def knows_the_topic(self) -> bool:
        """A slave learns of it after its master."""
        return any(row["topic"] == TOPIC for row in self.admin.topics())

    def see(self, number: int, place: int, stored_after: int) -> set[str]:
        """By which ways message `number` of the queue is seen; its record stands at `place` of the log."""
        found = {
            "pull": self.pulled(number)[1] > 0,
            "files": self._is_in_file(number),
            "spark": StoreView.open(self.node.store.root).safe_end > place,
            "key": bool(self.admin.by_key(TOPIC, f"key{number}")),
            "unique key": bool(self.admin.by_unique_key(TOPIC, f"unique{number}")),
            "offset": self._is_there(lambda: self.admin.by_offset(place)),
            "id": self._is_there(lambda: self.admin.by_id(self._id_of(place))),
            "time": bool(self.admin.by_time(TOPIC, stored_after)),
            "time upper": self.admin.offset_at(TOPIC, 0, stored_after + 10**9, boundary="upper") >= number,
            "bounds": self.admin.bounds(TOPIC)[0][1] > number,
        }
        if self.node.role == "master":
            found["commit"] = self._may_commit(number)
        return {way for way, seen in found.items() if seen}

    @property
    def every_way(self) -> set[str]:
        """Offsets of groups are the master's."""
        return EVERY_WAY | {"commit"} if self.node.role == "master" else EVERY_WAY

    def _is_in_file(self, number: int) -> bool:
        """Whether the node says where it stands, and it is read there."""
        found = self.files.pull(TOPIC, 0, number, max_bytes=1, reads_files=True)
        assert found.in_file == bool(found.sizes)
        return found.in_file and decode(found.records).queue_offset == number

    def _may_commit(self, number: int) -> bool:
        """Whether a group's offset behind it is kept as it is."""
        behind = {TOPIC: {"0": number + 1}}
        told = self.admin.ask("group_commit", group=GROUP, offsets=behind).facts
        assert told in ({}, {"clamped": {TOPIC: {"0": number}}})
        return not told

    def _is_there(self, look) -> bool:
        """Any other error than that the log ends before it tells something of the record."""
        try:
            return look() is not None
        except AskRefused as refused:
            return refused.error != "NotInLog"

    def _id_of(self, place: int) -> str:
        first = self.admin.by_key(TOPIC, "key0")[0]
        return encode_offset_id(decode(first.raw).store_host, place)

    def close(self) -> None:
        self.admin.close()
        self.files.close()
        for link in (self.link, *self.held):
            link.close()
        close_context(self.context)


def _pull(offset: int, suspend: int) -> Pull:
    return Pull(1, TOPIC.encode(), 0, offset, 100, 1 << 20, suspend)


def _answer(link: Link, timeout_s: float) -> tuple[GetStatus, int] | None:
    poller, deadline = Poller(link), time.monotonic() + timeout_s
    while (parts := link.receive()) is None:
        left = deadline - time.monotonic()
        if left <= 0:
            return None
        poller.poll(max(1, int(1000 * left)))
    assert parts[0][0] == Kind.PULL_ANSWER
    _, status, _, _, count, *_ = expect(PULL_ANSWER, parts[0])
    return GetStatus(status), count


def message(number: int) -> Request:
    properties = f"UNIQ_KEY\x01unique{number}\x02KEYS\x01key{number}\x02TAGS\x01red\x02".encode()
    now = time.time_ns() // 1_000_000
    return Request(TOPIC.encode(), 0, [MessageEncoder(TOPIC.encode()).encode(0, BODY, properties, born_timestamp=now)])


def check(master: TestNode, nodes: list[TestNode], stop: TestNode, duty: Duty, unacknowledged: PutStatus) -> None:
    """One message is acknowledged, the next one is not while `duty` of the node `stop` stands still."""
    client = WireClient(master.endpoint)
    client.create_topic(TOPIC, queues=1)
    readers: list[Readers] = []
    try:
        answer = client.put(message(0))
        assert answer.status == PutStatus.PUT_OK
        for node in nodes:
            end = master.at(Position.APPENDED)
            await_(lambda node=node, end=end: node.at(Position.DISPATCHED) >= end, APPEARS_S, "the first is dispatched")
            reader = Readers(node)
            readers.append(reader)
            await_(reader.knows_the_topic, APPEARS_S, "the topic is known")
            assert reader.see(0, answer.places[0][1], 0) == reader.every_way
        held = [reader.hold(1) for reader in readers]
        after = time.time_ns() // 1_000_000 + 1
        await_(lambda: time.time_ns() // 1_000_000 > after, 60.0, "the clock goes on")
        with stopped(stop.positions.duty(duty).pid):
            answer = client.put(message(1))
            assert answer.status == unacknowledged
            place = answer.places[0][1]
            assert master.at(Position.APPENDED) > place
            for reader, link in zip(readers, held, strict=True):
                assert reader.see(1, place, after) == set(), reader.node.role
                assert _answer(link, 0.2) is None, "a held pull was woken"
        for reader, link in zip(readers, held, strict=True):
            assert _answer(link, APPEARS_S) == (GetStatus.FOUND, 1)
            assert reader.see(1, place, after) == reader.every_way, reader.node.role
    finally:
        for reader in readers:
            reader.close()
        client.close()


@pytest.fixture
def lone(tmp_path) -> Iterator[TestNode]:
    node = TestNode("master", tmp_path / "master", ha_listen_port=0, sync_flush_timeout=TIMEOUT_MS)
    with ending(node):
        node.start()
        yield node
        assert node.stop()


@pytest.fixture
def watched(tmp_path) -> Iterator[Pair]:
    """SYNC_FLUSH and SYNC_MASTER, and nobody leaves the in-sync set while the test lasts."""
    pair = Pair(tmp_path, slave_timeout=TIMEOUT_MS, ha_max_time_slave_not_catchup=600_000)
    with ending(*pair.nodes):
        pair.start()
        yield pair
        assert pair.stop() == (True, True)


def test_with_flush_stopped_no_reader_sees_what_is_not_flushed(lone):
    check(lone, [lone], lone, Duty.FLUSH, PutStatus.FLUSH_DISK_TIMEOUT)


@pytest.mark.parametrize("duty", [Duty.RECEIVE, Duty.FLUSH], ids=["its writer", "its flush"])
def test_with_the_slave_stopped_no_reader_of_either_sees_what_it_has_not_got(watched, duty):
    check(watched.master, [watched.master, watched.slave], watched.slave, duty, PutStatus.FLUSH_SLAVE_TIMEOUT)
