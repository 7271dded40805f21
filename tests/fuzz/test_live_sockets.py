"""A node whose ports get changed captures, by thousands, beside clients that are honest."""

import os
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random
from typing import Final

import numpy as np
import pytest

from tests.fuzz.mutation import Mutation
from tests.fuzz.target import Grammar
from tests.fuzz.targets.remoting import FIELDS, framed
from tests.fuzz.targets.remoting import frame as remoting_frame
from tests.fuzz.targets.wire import OWN, RING, SLAVE
from tests.processes.flooding import greeted, message
from tests.processes.nodes import check_nothing_is_left, ending
from tests.processes.waiting import await_
from tests.processes.wire import records_of
from tests.remoting.conftest import RemotingNode, remoting_node
from tests.remoting.raw import RawClient
from tests.remoting.reading import messages
from tests.remoting.test_extreme_values import EMPTY, HEADERS
from tests.remoting.test_floods import check_unharmed, p99
from towline.client.message import Message
from towline.client.producer import Producer
from towline.format.record.record import MessageEncoder
from towline.format.record.sequence import Place
from towline.format.record.sequence_columns import numbered
from towline.format.remoting.command import Form
from towline.format.remoting.wire_message import encode_message
from towline.format.wire.frames import ASK, Group, Kind, Pull, encode_pull, encode_put, json_part
from towline.link.handshake import encode_greeting
from towline.master.put.sequences import PER_MS

SEED: Final = int(os.environ.get("TOWLINE_SEED", "94"))
SENDS: Final = 3_000  # of the honest client, beside the others
SENT_MIN: Final = 2_000  # changed captures to each port meanwhile
TOPIC: Final = b"changed"
PRODUCER: Final = 4_711
BINARY_MAX: Final = (1 << 15) - 1  # the greatest code that a binary header holds
EXACT: Final = 300  # messages of an idempotent producer that is honest
_SILENT_S: Final = 0.02
_AT_ONCE: Final = 20  # captures of one connection


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RemotingNode]:
    made = remoting_node(tmp_path_factory.mktemp("fuzz") / "store")
    with ending(made):
        made.start()
        yield made
        assert made.stop()
        check_nothing_is_left(made)


def frames() -> list[bytes]:
    """Of RocketMQ's protocol, one of each request and form; and of ours in such frames."""
    own = [encode_greeting(OWN), encode_greeting(SLAVE), *puts(), encode_pull(Pull(1, TOPIC, 0, 0, 32, 1 << 20, 0))]
    fields = {"topic": TOPIC.decode(), "consumerGroup": "g", "queueId": "0"}
    codes = [*HEADERS, *EMPTY]
    requests = [
        remoting_frame(form, FIELDS | fields, b"{}", int(code))
        for form in Form
        for code in codes
        if form is Form.JSON or code <= BINARY_MAX
    ]
    return [*requests, *(b"".join(map(bytes, encode_message(parts, from_node=False))) for parts in own)]


def puts() -> list[list[bytes]]:
    """Messages to put: a request, one of an idempotent producer, and questions."""
    sent = [records_of(TOPIC, 3).data, placed()]
    begins = {"op": "begin_producer"}
    asked = (
        {"op": "topics"},
        {"op": "route", "topic": TOPIC.decode()},
        {"op": "open_ring"} | RING,
        begins | {"name": ""},
        begins | {"name": "changed"},
        begins | {"producer": PRODUCER, "epoch": epoch()},
    )
    return [
        *([encode_put(1, 0, 1 << 60, [Group(TOPIC, 0, 3, len(data))]), data] for data in sent),
        *([ASK.pack(Kind.ASK, 1), json_part(facts)] for facts in asked),
    ]


def epoch() -> int:
    """One that a node would give out now."""
    return time.time_ns() // 1_000_000 * PER_MS


def placed() -> bytes:
    """The first three records of a producer in an epoch, which the first time are new."""
    records = [MessageEncoder(TOPIC, sequenced=True).encode(0, b"%d" % number, b"KEYS\x01k\x02") for number in range(3)]
    return numbered(b"".join(records), np.cumsum([len(each) for each in records]), Place(PRODUCER, epoch(), 0))


def to_remoting(node: RemotingNode, chance: Random, stop: threading.Event, sent: Counter[str]) -> None:
    mutation, seeds = Mutation(chance, Grammar.JSON, (TOPIC,), 1 << 16), frames()
    while not stop.is_set():
        with suppress(OSError), RawClient(node.port) as client:
            client.socket.settimeout(_SILENT_S)
            for _ in range(_AT_ONCE):
                data = mutation.changed(chance.choice(seeds), chance.choice(seeds))
                client.write(framed(data) if mutation.below(3) else data)
                sent["remoting"] += 1
            client.is_closed()


def to_put(node: RemotingNode, chance: Random, stop: threading.Event, sent: Counter[str]) -> None:
    mutation, seeds = Mutation(chance, Grammar.JSON, (TOPIC,), 1 << 16), puts()
    place = str(node.runtime / "put.sock")
    while not stop.is_set():
        with suppress(OSError), greeted(place, "producer") as connection:
            connection.settimeout(_SILENT_S)
            for _ in range(_AT_ONCE):
                parts = [mutation.changed(part, b"") if mutation.below(2) else part for part in chance.choice(seeds)]
                data = message(parts)
                connection.sendall(data if mutation.below(4) else mutation.changed(data, b""))
                sent["put"] += 1


@contextmanager
def changed_captures(node: RemotingNode) -> Iterator[Counter[str]]:
    """As many as go, to both ports, to the end of the block."""
    stop, sent = threading.Event(), Counter[str]()
    threads = [
        threading.Thread(target=send, args=(node, Random(f"{SEED} {send.__name__}"), stop, sent))
        for send in (to_remoting, to_put)
    ]
    for thread in threads:
        thread.start()
    try:
        yield sent
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def check_exact(node: RemotingNode) -> None:
    """What an honest idempotent producer sends is stored once, in its order."""
    with Producer(node.endpoint, idempotent=True) as producer:
        results = [producer.send(Message("exact", b"%d" % number)) for number in range(EXACT)]
    assert all(result.acknowledged for result in results)
    found = messages(node, "exact", EXACT)
    assert [message.body for message in found] == [b"%d" % number for number in range(EXACT)]


@pytest.mark.slow
@pytest.mark.alone
def test_changed_captures_leave_others_their_latency_and_every_process_its_life(node: RemotingNode) -> None:
    pids = node.pids()
    with RawClient(node.port) as honest:
        assert honest.put("beside", b"first").code == 0
        assert honest.put(TOPIC.decode(), b"first").code == 0, "so that records of this topic can be stored"
        alone = p99(honest, "beside", SENDS)
        with changed_captures(node) as sent:
            await_(lambda: min(sent["remoting"], sent["put"]) > 0, 30.0, "both ports get some")
            beside = p99(honest, "beside", SENDS)
            check_exact(node)
            await_(lambda: min(sent["remoting"], sent["put"]) > SENT_MIN, 120.0, "they got enough")
        print(dict(sent))
    check_unharmed(alone, beside)
    assert node.pids() == pids
    log = Path(node.store.root, "run/node.log")
    assert not log.exists() or "Traceback" not in log.read_text(encoding="utf-8", errors="replace")
