"""A node whose ports get changed captures, by thousands, beside clients that are honest."""

import os
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random
from typing import Final

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
from tests.remoting.test_extreme_values import EMPTY, HEADERS
from tests.remoting.test_floods import check_unharmed, p99
from towline.format.remoting.command import Form
from towline.format.remoting.wire_message import encode_message
from towline.format.wire.frames import ASK, Group, Kind, Pull, encode_pull, encode_put, json_part
from towline.link.handshake import encode_greeting

SEED: Final = int(os.environ.get("TOWLINE_SEED", "94"))
SENDS: Final = 3_000  # of the honest client, beside the others
SENT_MIN: Final = 2_000  # changed captures to each port meanwhile
TOPIC: Final = b"changed"
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
    requests = [remoting_frame(form, FIELDS | fields, b"{}", int(code)) for form in Form for code in codes]
    return [*requests, *(b"".join(map(bytes, encode_message(parts, from_node=False))) for parts in own)]


def puts() -> list[list[bytes]]:
    """Messages to put: a request, and questions."""
    request = records_of(TOPIC, 3)
    head = encode_put(1, 0, 1 << 60, [Group(TOPIC, 0, 3, len(request.data))])
    asked = ({"op": "topics"}, {"op": "route", "topic": TOPIC.decode()}, {"op": "open_ring"} | RING)
    return [[head, request.data], *([ASK.pack(Kind.ASK, 1), json_part(facts)] for facts in asked)]


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


@pytest.mark.slow
@pytest.mark.alone
def test_changed_captures_leave_others_their_latency_and_every_process_its_life(node: RemotingNode) -> None:
    pids = node.pids()
    with RawClient(node.port) as honest:
        assert honest.put("beside", b"first").code == 0
        alone = p99(honest, "beside", SENDS)
        with changed_captures(node) as sent:
            await_(lambda: min(sent["remoting"], sent["put"]) > 0, 30.0, "both ports get some")
            beside = p99(honest, "beside", SENDS)
            await_(lambda: min(sent["remoting"], sent["put"]) > SENT_MIN, 120.0, "they got enough")
        print(dict(sent))
    check_unharmed(alone, beside)
    assert node.pids() == pids
    log = Path(node.store.root, "run/node.log")
    assert not log.exists() or "Traceback" not in log.read_text(encoding="utf-8", errors="replace")
