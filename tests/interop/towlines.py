"""A Towline node on a store: written to by its producers, read by its consumer and by key, as its users do."""

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from tests.processes.nodes import TestNode, check_nothing_is_left
from tests.processes.waiting import await_
from towline.client.admin import AdminClient
from towline.client.consumer import Consumer
from towline.client.errors import AskRefused
from towline.client.message import Message, ReceivedMessage
from towline.client.producer import Producer
from towline.client.send.futures import SendFuture
from towline.format.record import properties
from towline.format.record.compression import Compressor
from towline.format.record.record import MessageEncoder
from towline.limits import KIB, MIB
from towline.node.process.context import runtime_of
from towline.runtime.positions import Position

from .model import COMPRESSIONS, KEY_PREFIX, NOON, QUEUES, Sent, host, seen

SEGMENT: Final = MIB
QUEUE_FILE: Final = 20 * 300
SLOTS: Final = 500
INDEXES: Final = 2000
SETTINGS: Final = {
    "mapped_file_size_commit_log": SEGMENT,
    "mapped_file_size_consume_queue": QUEUE_FILE,
    "max_hash_slot_num": SLOTS,
    "max_index_num": INDEXES,
    "flush_disk_type": "ASYNC_FLUSH",
    "default_topic_queue_nums": QUEUES,
    "ha_listen_port": 0,
    "broker_ip1": "10.0.0.1",
}
# The same sizes for the real store, which no file records.
REAL_SETTINGS: Final = {
    "mappedFileSizeCommitLog": SEGMENT,
    "mappedFileSizeConsumeQueue": QUEUE_FILE,
    "maxHashSlotNum": SLOTS,
    "maxIndexNum": INDEXES,
}
DISPATCH_S: Final = 20.0
POLL_MS: Final = 5000


class TowlineStore:
    """The store at `root`; what is not of its sizes is in `settings`."""

    def __init__(self, root: Path, **settings: object) -> None:
        self.root = root
        self.node = TestNode("master", root, **(SETTINGS | settings))
        self._encoding = {
            "store_host_ipv6": ":" in str((SETTINGS | settings)["broker_ip1"]),
            "append_property_crc": "enabled_append_prop_crc" in settings,
        }
        self._sockets = runtime_of(root.resolve())
        self._producers: dict[str | None, Producer] = {}
        self._made: set[str] = set()

    # --- start and end

    def start(self, *more: str) -> None:
        self.node.start(*more)

    def stop(self) -> None:
        """A clean end."""
        self._close_producers()
        assert self.node.stop(), "the store is not clean"
        assert not (self.root / "abort").exists()
        check_nothing_is_left(self.node)

    def kill(self, seed: int) -> None:
        """kill -9 of every process."""
        self.node.kill_all(seed)
        self._close_producers()
        assert (self.root / "abort").exists()

    def end(self) -> None:
        """Whatever state it is in."""
        self._close_producers()
        if self.node.launched is not None:
            self.node.launched.end()

    def _close_producers(self) -> None:
        for producer in self._producers.values():
            producer.close(flush=False)
        self._producers.clear()

    @contextlib.contextmanager
    def running(self, *more: str) -> Iterator["TowlineStore"]:
        """Started with these flags as well, and ended cleanly."""
        self.start(*more)
        yield self
        self.stop()

    # --- writing

    def send(self, messages: Iterable[Sent]) -> None:
        """Each is PUT_OK when this returns."""
        futures = [self.send_async(message) for message in messages]
        for producer in self._producers.values():
            producer.flush(60_000)
        for future in futures:
            assert future.result().status.name == "PUT_OK", future.result()

    def send_async(self, message: Sent) -> SendFuture:
        self._make(message.topic)
        producer = self.producer(message.compression)
        if ":" in message.born_host:  # a producer of ours never has an IPv6 address
            record = encoded(message, **self._encoding)
            return producer.send_records(message.topic, message.queue_id, record, 1)
        return producer.send_async(
            Message(
                message.topic,
                message.body,
                tags=message.tags,
                keys=message.keys,
                queue_id=message.queue_id,
                properties={properties.UNIQ_KEY: message.key, **message.more},
                flag=message.flag,
            )
        )

    def send_one_by_one(self, records: Sequence[tuple[str, int, bytes]]) -> None:
        """Records of (topic, queue, bytes), each a request of its own, in this order."""
        producer = self.producer(None)
        for topic, queue_id, record in records:
            self._make(topic)
            future = producer.send_records(topic, queue_id, record, 1)
            producer.flush(10_000)
            assert future.result().status.name == "PUT_OK", future.result()

    def _make(self, topic: str) -> None:
        """Topics of groups have one queue where they are made by themselves."""
        if topic in self._made or not topic.startswith("%"):
            return
        self._made.add(topic)
        with AdminClient(self.node.endpoint) as admin, contextlib.suppress(AskRefused):  # it may exist
            admin.create_topic(topic, QUEUES)

    def producer(self, compression: str | None) -> Producer:
        if compression not in self._producers:
            self._producers[compression] = Producer(
                self.node.endpoint, compression=compression, linger_ms=1, batch_bytes_max=64 * KIB
            )
        return self._producers[compression]

    # --- reading

    @property
    def endpoint(self) -> str:
        return f"ipc://{self._sockets.socket('serve')}"

    def await_dispatched(self) -> int:
        """The end of the log, everything before it in queues and index."""

        def level() -> bool:
            return self.node.at(Position.DISPATCHED) == self.node.at(Position.APPENDED)

        await_(level, DISPATCH_S, "everything is dispatched")
        return self.node.at(Position.APPENDED)

    def read(self) -> list[dict[str, Any]]:
        """Every message of every queue, in the order of topic, queue and offset; no offset is missing."""
        self.await_dispatched()
        found = []
        with AdminClient(self.endpoint) as admin:
            topics = [facts["topic"] for facts in admin.topics()]
            bounds = {topic: admin.bounds(topic) for topic in topics}
        for topic in topics:
            messages = self._read_topic(topic)
            found += [seen(message) for message in messages]
            assert len(messages) == sum(end - first for first, end in bounds[topic].values())
        for before, after in pairwise(found):
            same = (before["topic"], before["queue_id"]) == (after["topic"], after["queue_id"])
            assert after["queue_offset"] == (before["queue_offset"] + 1 if same else 0)
        return found

    def _read_topic(self, topic: str) -> list[ReceivedMessage]:
        found: list[ReceivedMessage] = []
        with Consumer(self.endpoint, topic, start="first") as consumer:
            while consumer.position() and not consumer.at_end:
                batch = consumer.poll(POLL_MS)
                assert batch or consumer.at_end, f"nothing came of {topic} for {POLL_MS} ms"
                found += batch
            assert not consumer.moved
        return sorted(found, key=lambda message: (message.queue_id, message.queue_offset))

    def query(self, pairs: Sequence[tuple[str, str]]) -> list[list[int]]:
        """For each pair of topic and key the log offsets that the index leads to."""
        with AdminClient(self.endpoint) as admin:
            asked = [
                admin.by_key(topic, key) if key.startswith(KEY_PREFIX) else admin.by_unique_key(topic, key)
                for topic, key in pairs
            ]
        return [[message.physical_offset for message in found] for found in asked]


def encoded(message: Sent, **more: bool) -> bytes:
    """A record as a client of ours sends it, from any kind of address. `more` goes to the encoder."""
    encoder = MessageEncoder(message.topic.encode(), host(message.born_host, 12345), **more)
    assert message.compression in COMPRESSIONS
    body, sys_flag = Compressor(message.compression).compress(message.body)
    text = properties.encode(message.properties.items())
    return encoder.encode(message.queue_id, body, text, message.flag, sys_flag, NOON)
