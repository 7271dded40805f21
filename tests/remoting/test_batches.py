"""Batches by kernels, beside what the interpreter makes of the same frames: records, answers, and their order."""

import contextlib
import os
import random
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.kernels.remoting.test_puts import split
from tests.processes.nodes import ending
from tests.processes.puts.test_idempotent import batch, begin, client_of
from tests.processes.waiting import await_
from towline.format.files.topics import TopicConfig
from towline.format.record import sequence
from towline.format.record.record import Host
from towline.format.record.record import decode as decode_record
from towline.format.remoting.batch import member
from towline.format.remoting.codes import RequestCode, ResponseCode
from towline.format.remoting.command import Command, Form, decode, encode
from towline.format.remoting.stored import BrokerFacts
from towline.format.wire.frames import PUT, decode_put_answer, encode_put_answer, encode_put_refusal
from towline.format.wire.put_ring import Cut, entry_max, read_request_word
from towline.format.wire.status import PutStatus
from towline.kernels.remoting import puts
from towline.limits import MIB
from towline.link.put_ring import ClientRing, NodeRing, Offer
from towline.remoting.connections import Answer
from towline.remoting.plain_sends import PlainSends
from towline.remoting.producers import Producers

from .conftest import RemotingNode, remoting_node
from .raw import WAIT_S, RawClient, sent
from .reading import bodies, messages

AREA = 1 << 20
NOW_MS = 1_700_000_000_000
STORE = Host(bytes([10, 0, 0, 1]), 10_911)
BORN = (Host(bytes([127, 0, 0, 1]), 4_711), Host(bytes(range(16)), 65_535))
KEY = "0A" * 16
PLACE = sequence.Place(4_711, 1_782_579_200_000_004_103, 42)
PROPERTIES = ("", "WAIT\x01true\x02", f"UNIQ_KEY\x01{KEY}\x02WAIT\x01true", f"UNIQ_KEY\x01{KEY}\x02")
OF_MEMBERS = ("", "TAGS\x01A", "TAGS\x01A\x02", "KEYS\x01\u4e2d\u6587\x02TAGS\x01\U0001f600", "k\x01" + "v" * 3_000)
SYS_FLAGS = (0, 1, 0x301, 0x3C, 0xFF, -1, (1 << 31) - 1)
FLAGS = (0, 7, -1, -(1 << 31), (1 << 31) - 1)


class LeftAlone(Exception):
    """The frame is not for kernels."""


class BothWays:
    """The same frame by kernels, through a ring whose other end is here, and by the interpreter."""

    def __init__(self, bell: Path, born: Host, *, store_ipv6: bool) -> None:
        self.counted: tuple[list[int], list[int]] = [], []  # codes, both ways
        self._ring = ClientRing(Offer(AREA, 1, bell))
        self.node = NodeRing(self._ring.facts, AREA, 1)
        self.plain = PlainSends(
            self._ring,
            AREA,
            cluster="c1",
            store_host=STORE,
            store_ipv6=store_ipv6,
            wall_ms=lambda: NOW_MS,
            deadline_ms=3_000,
            refused=lambda code: self.counted[0].append(code),
        )
        self.plain.know(b"batches", 3)
        self.connection: Any = SimpleNamespace(number=5, host=born, puts=False)
        self._done: Any = None
        self._records: list[bytes] = []
        self._told: list[Command] = []
        topics: Any = SimpleNamespace(find=lambda name: TopicConfig(topic_name=name), is_being_made=lambda name: False)
        put: Any = SimpleNamespace(welcome={"store_host_ipv6": store_ipv6}, plain=None, put=self._put)
        facts = BrokerFacts("c1", 18, 60)
        self._producers = Producers(put, topics, facts, "broker-a", STORE, lambda: NOW_MS, lambda *_: None)

    def _put(self, groups: Any, records: bytes, done: Any) -> bool:
        (group,) = groups
        assert (group.topic, group.queue_id, group.size) == (b"batches", 3, len(records))
        assert len(split(records)) == group.count
        self._records, self._done = [records], done
        return True

    def send(self, frame: bytes) -> tuple[bytes, bytes]:
        """What stands in the log, but for what put stamps: by kernels, and by the interpreter. Raises LeftAlone."""
        came = np.frombuffer(frame, np.uint8)
        assert self.plain.read(came) == 1
        if self.plain.put(self.connection, came, 0, 1) != (1, puts.DONE):
            raise LeftAlone
        taken = self.node.requests.take(entry_max(AREA))
        assert taken is not None
        head = taken[1][: read_request_word(taken[0])[0]]
        self._number = PUT.unpack_from(head)[3]
        request = decode(frame)
        counts = SimpleNamespace(refused=self.counted[1].append)
        connections: Any = SimpleNamespace(send=lambda _, command: self._told.append(command), counts=counts)
        self._producers.send(self.connection, request, Answer(connections, self.connection, request))
        return taken[1][len(head) :], self._records.pop()

    def answer(self, answer: bytes) -> tuple[Command, Command]:
        """What the producer is told by kernels, and by the interpreter."""
        frames: list[bytes] = []
        self.node.answer(answer)
        self.plain.take(lambda number, data: frames.append(data))
        if not frames:  # what is no PUT_OK is left in the ring
            left = self._ring.receive()
            assert left is not None
            ended = self.plain.finish(decode_put_answer(left))
            assert ended is not None
            frames.append(ended[1])
            self.plain.take(lambda number, data: frames.append(data))
        self._done(decode_put_answer(answer))
        (frame,) = frames
        return decode(frame), decode(b"".join(encode(self._told.pop())))

    def close(self) -> None:
        self.plain.close()
        self.node.close(Cut.CLOSING)
        self._ring.close()

    def placed(self, offset: int, place: int, status: int = 0) -> bytes:
        return encode_put_answer(self._number, status, [(offset, place)])

    def refused(self, status: int) -> bytes:
        return encode_put_refusal(self._number, status, 0, 1, 0, "it is full")


@pytest.fixture(params=[(born, store) for born in BORN for store in (False, True)], ids=str)
def ways(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BothWays]:
    os.mkfifo(tmp_path / "put.bell")
    born, store_ipv6 = request.param
    made = BothWays(tmp_path / "put.bell", born, store_ipv6=store_ipv6)
    yield made
    made.close()


def frame_of(chance: random.Random, form: Form, most: int = 100) -> bytes:
    """A batch of a producer, of any kind that is plain, with at most so many messages."""
    members = [
        member(chance.choice(FLAGS), chance.randbytes(chance.choice((0, 1, 7, 100, 3_000))), text.encode())
        for text in chance.choices(OF_MEMBERS, (5, 5, 5, 5, 1), k=min(most, chance.choice((1, 2, 3, 32, 100))))
    ]
    fields = sent("batches", chance.choice(PROPERTIES), e=3, f=chance.choice(SYS_FLAGS), h=chance.choice(FLAGS))
    code, batch = chance.choice(((310, "true"), (320, "true"), (320, "false")))
    text = {name: str(value) for name, value in {**fields, "m": batch}.items()}
    return b"".join(encode(Command(code, chance.choice(FLAGS), 0, "", text, b"".join(members), form, 409)))


def batch_frame(members: list[bytes], form: Form) -> bytes:
    text = {name: str(value) for name, value in sent("batches", "", e=3, m="true").items()}
    return b"".join(encode(Command(RequestCode.SEND_BATCH_MESSAGE, 1, 0, "", text, b"".join(members), form, 409)))


@pytest.mark.parametrize("form", Form)
def test_records_and_answers_are_the_same_by_kernels_and_by_the_interpreter(ways: BothWays, form: Form) -> None:
    chance = random.Random(67)
    stored = 0
    for _ in range(60):
        mine, theirs = ways.send(frame_of(chance, form))
        assert mine == theirs
        stored += len(split(mine))
        mine, theirs = ways.answer(ways.placed(chance.choice((0, 9, 1 << 40)), chance.choice((0, 1 << 30, 1 << 60))))
        assert mine == theirs
    assert stored > 600


@pytest.mark.parametrize("form", Form)
def test_a_batch_that_is_not_acknowledged_is_told_and_counted_the_same_both_ways(ways: BothWays, form: Form) -> None:
    chance = random.Random(68)
    for status in PutStatus:
        ways.send(frame_of(chance, form))
        mine, theirs = ways.answer(ways.placed(7, 1 << 33, status) if status.stored else ways.refused(status))
        assert mine == theirs
    assert ways.counted[0] == ways.counted[1]
    assert len(ways.counted[0]) == len(PutStatus) - 1


def test_a_damaged_batch_is_left_alone_or_stored_as_the_interpreter_stores_it(ways: BothWays) -> None:
    chance = random.Random(69)
    stored = 0
    for _ in range(3_000):
        frame = bytearray(frame_of(chance, chance.choice(list(Form)), 3))
        for _ in range(chance.randint(1, 3)):
            frame[chance.randrange(4, len(frame))] = chance.randrange(256)
        with contextlib.suppress(LeftAlone):
            mine, theirs = ways.send(bytes(frame))
            assert mine == theirs
            mine, theirs = ways.answer(ways.placed(1, 2))
            assert mine == theirs
            stored += 1
    assert 500 < stored < 2_900


@pytest.mark.parametrize("form", Form)
def test_a_batch_with_a_copied_place_is_left_to_the_interpreter_wherever_it_stands(ways: BothWays, form: Form) -> None:
    """And whatever stands beside it, in the first message or a later one."""
    place = sequence.encode(PLACE)
    sound = member(0, b"x", b"Q\x01__PSEQ_\x02KEYS\x01" + b"Q" * 80)
    for before in (b"", *(b"k\x01%s\x02" % (b"Q" * size) for size in range(1, 70))):
        for copied in (place, place[:-1], place + b"A\x01b\x02"):
            members = [sound, member(0, b"copied", before + copied)]
            for each in (members, members[::-1]):
                with pytest.raises(LeftAlone):
                    ways.send(batch_frame(each, form))
    mine, theirs = ways.send(batch_frame([sound, sound], form))
    assert mine == theirs


# --- a node


def alike(node: RemotingNode, topic: str, count: int) -> list[dict[str, object]]:
    """The records of a topic, without what each has for itself: its place and its time."""
    found = [message.record for message in messages(node, topic, count)]
    names = ("body", "properties", "queue_id", "flag", "sys_flag", "born_timestamp", "born_host", "store_host")
    return [{name: getattr(record, name) for name in names} for record in found]


@pytest.mark.parametrize("form", Form)
def test_the_first_batch_of_a_topic_and_the_next_are_stored_and_answered_alike(node: RemotingNode, form: Form) -> None:
    """The first one is the interpreter's."""
    topic = f"alike-{form.name}"
    members = [member(number, b"%d" % number * 100, b"TAGS\x01A") for number in range(8)]
    with RawClient(node.port, form) as client:
        first, second = (client.put_batch(topic, members, PROPERTIES[2], f=0x3D, g=NOW_MS) for _ in range(2))
    records = alike(node, topic, 16)
    assert records[:8] == records[8:]
    places = [message.record.physical_offset for message in messages(node, topic, 16)]
    for answer, there in ((first, places[:8]), (second, places[8:])):
        assert answer.code == 0
        assert [int(text[16:], 16) for text in answer.fields["msgId"].split(",")] == there
        assert answer.fields["transactionId"] == KEY
    assert (first.fields["queueOffset"], second.fields["queueOffset"]) == ("0", "8")
    assert {**first.fields, "msgId": "", "queueOffset": ""} == {**second.fields, "msgId": "", "queueOffset": ""}


@pytest.mark.parametrize("form", Form)
def test_a_batch_with_a_copied_place_is_stored_without_it_and_not_judged_as_its_producers(
    node: RemotingNode, form: Form
) -> None:
    """The first one is the interpreter's, the next would be a kernel's."""
    with RawClient(node.port, form) as bridge, client_of(node) as producer:
        place = begin(producer)
        first = batch(place)
        stored = producer.put(first)
        at = stored.places[0][0]
        copied = member(0, b"copied", decode_record(first.records[-1]).properties)
        answers = [bridge.put_batch("orders", [copied] * count) for count in (1, 1, 3)]
        assert [answer.code for answer in answers] == [0] * 3
        assert [int(answer.fields["queueOffset"]) for answer in answers] == [at + 3, at + 4, at + 5]
        assert producer.put(first).places == stored.places, "a repeat"
        following = producer.put(batch(place._replace(number=3)))
        assert (PutStatus(following.status), following.places[0][0]) == (PutStatus.PUT_OK, at + 8)
    found = [message.record for message in messages(node, "orders", at + 11)][at:]
    assert [sequence.HEAD in record.properties for record in found] == [True] * 3 + [False] * 5 + [True] * 3
    assert {record.properties for record in found if record.body == b"copied"} == {b"KEYS\x01k\x02"}


@pytest.mark.parametrize(
    ("damaged", "why"),
    [
        (b"", "empty"),
        (member(0, b"x", b"")[:-2], "ends inside"),
        (member(0, b"x", b"") + member(0, b"x" * 9, b"")[:-1], "do not add up"),
        ((1 << 31).to_bytes(4, "big") + bytes(30), "do not add up"),
        ((22).to_bytes(4, "big") + bytes(12) + b"\xff\xff\xff\xff" + bytes(10), "do not add up"),
        (bytes(1_000), "do not add up"),
        (member(0, b"x", b"k\x01" + b"v" * 32_766), "properties"),
        (member(0, b"x", b"CLUSTER\x01other\x02"), "CLUSTER"),
    ],
    ids=["empty", "cut", "cut later", "negative", "negative body", "zeros", "long properties", "a broker's property"],
)
def test_a_batch_that_cannot_be_is_refused_with_the_reason_once_its_queue_is_known_too(
    node: RemotingNode, client: RawClient, damaged: bytes, why: str
) -> None:
    sound = [member(0, b"sound", b"")]
    before = node.pids()
    first = client.put_batch("refusing", [damaged])
    assert client.put_batch("refusing", sound).code == 0
    second = client.put_batch("refusing", [damaged])
    assert (second.code, second.remark) == (first.code, first.remark)
    assert second.code == ResponseCode.MESSAGE_ILLEGAL
    assert why in second.remark
    assert client.put_batch("refusing", sound).code == 0
    assert node.pids() == before


@pytest.mark.parametrize("form", Form)
def test_batches_single_messages_and_pulls_of_one_connection_keep_their_order(node: RemotingNode, form: Form) -> None:
    """Among them batches that are too large for the ring, or have more members than a kernel takes."""
    topic, chance = f"order-{form.name}", random.Random(5)
    wanted: list[bytes] = []
    with RawClient(node.port, form) as client:
        assert client.put(topic, b"first", f"UNIQ_KEY\x01{KEY}\x02").code == 0
        await_(lambda: client.pull("g", topic, 0, 0).code == 0, WAIT_S, "the message that is pulled")
        asked = 0
        for number in range(600):
            size = 100_000 if number % 200 == 7 else 5_000 if number % 200 == 8 else chance.choice((0, 10, 1_000))
            count = 12 if size == 100_000 else size if size == 5_000 else chance.randint(1, 40)
            padding = bytes(size if size != 5_000 else 3)
            batch = [b"%d-%d-%s" % (number, each, padding) for each in range(count)]
            if number % 5 == 4:
                client.send(RequestCode.PULL_MESSAGE, {"consumerGroup": "g", "topic": topic, "queueId": 0,
                            "queueOffset": 0, "maxMsgNums": 1, "sysFlag": 4, "commitOffset": 0, "subscription": "*",
                            "suspendTimeoutMillis": 0, "subVersion": 1})  # fmt: skip
            elif number % 3:
                body = b"".join(member(0, each, b"") for each in batch)
                client.send(RequestCode.SEND_BATCH_MESSAGE, sent(topic, PROPERTIES[number % 4], m="true"), body)
                wanted += batch
            else:
                client.send(RequestCode.SEND_MESSAGE_V2, sent(topic, f"UNIQ_KEY\x01{number:032X}\x02"), batch[0])
                wanted.append(batch[0])
            asked += 1
        assert [client.read().code for _ in range(asked)] == [0] * asked
    found = bodies(node, topic, 1 + len(wanted))
    assert found[1:] == wanted


def test_batches_that_are_more_than_the_ring_holds_go_on_when_put_has_taken_some(tmp_path: Path) -> None:
    made = remoting_node(tmp_path / "store", shared_memory_puts_size=MIB // 4)
    with ending(made):
        made.start()
        with RawClient(made.port) as client:
            assert client.put("ring", b"first").code == 0
            batches = [[b"%d-%d-%s" % (number, each, bytes(1_000)) for each in range(32)] for number in range(200)]
            for batch in batches:
                body = b"".join(member(0, each, b"TAGS\x01A\x02") for each in batch)
                client.send(RequestCode.SEND_BATCH_MESSAGE, sent("ring", "", m="true"), body)
            assert [client.read().code for _ in batches] == [0] * len(batches)
            assert bodies(made, "ring", 1 + 32 * 200)[1:] == [each for batch in batches for each in batch]
        assert made.stop()
