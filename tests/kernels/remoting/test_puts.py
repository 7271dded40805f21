"""Plain sends through a ring, beside what the interpreter makes of them; the answers, beside its answers."""

from itertools import accumulate
from types import SimpleNamespace

import numpy as np
import pytest

from towline.format.record.record import Host, Record, encode
from towline.format.record.record import decode as decode_record
from towline.format.remoting.batch import member
from towline.format.remoting.command import Command, Form, decode
from towline.format.remoting.headers import SendMessage, read_header
from towline.format.remoting.stored import stored_message
from towline.format.wire.frames import PUT_ANSWER, Group, Kind, encode_put
from towline.format.wire.put_ring import ANSWERS_SIZE, file_size, read_request_word
from towline.kernels.base.directory import QueueDirectory
from towline.kernels.remoting import puts
from towline.kernels.remoting.members import MEMBERS_MAX
from towline.kernels.remoting.records import SIZES_MAX
from towline.kernels.remoting.sends import SENT, TEXT_MAX, read_sends
from towline.link.put_ring import answers_writer, requests_reader

from .test_sends import BROKER, FIELDS, PROPERTIES, batch, frame

AREA = 1 << 16
BROKER_HOST = Host(bytes([10, 0, 0, 1]), 9876)
SUFFIX = b"CLUSTER\x01c1\x02MSG_REGION\x01DefaultRegion\x02TRACE_ON\x01true\x02"
HOSTS = [Host(bytes([127, 0, 0, 1]), 4711), Host(bytes(range(16)), 65_535)]


class Ring:
    """A ring in memory, this side by kernels, put's side by the interpreter."""

    def __init__(self, born: Host, *, store_ipv6: bool = False) -> None:
        self.memory = np.zeros(file_size(AREA), np.uint8)
        view = memoryview(self.memory)
        shared = SimpleNamespace(view=view, words=view.cast("q"))
        self.requests, self.answers = requests_reader(shared, AREA), answers_writer(shared, AREA)
        self.ways = np.zeros(1, puts.WAY)
        bits = (0x10 if born.is_ipv6 else 0) | (0x20 if store_ipv6 else 0)
        for name, value in {
            "area": AREA, "next_id": 1, "oldest_id": 1, "born_size": len(born.packed), "connection": 5,
            "store_size": 20 if store_ipv6 else 8, "host_bits": bits, "stamp": 9,
        }.items():  # fmt: skip
            self.ways[name] = value
        self.pendings = np.zeros(puts.PENDING_MAX, puts.PENDING)
        self.keys = np.zeros(puts.PENDING_MAX * puts.KEY_MAX, np.uint8)
        self.sizes = np.zeros(SIZES_MAX, np.int32)
        self.topics = QueueDirectory()
        self.topics.add(b"topic-A", 3)
        self.head = np.frombuffer(encode_put(0, 0, 123, [Group(b"", 0, 1, 0)]), np.uint8)
        self.born = np.frombuffer(born.packed, np.uint8)
        self.suffix = np.frombuffer(SUFFIX, np.uint8)
        self.out = np.zeros(puts.ANSWER_MAX, np.uint8)
        self.rows = np.zeros(256, puts.ANSWERED)

    def send(self, data: bytes) -> tuple[int, int]:
        """How many rows went, and why no more."""
        sends = np.zeros(64, SENT)
        text = np.zeros(64 * TEXT_MAX, np.uint8)
        came = np.frombuffer(data, np.uint8)
        count = read_sends(came, len(data), sends, text)
        done = puts.put_sends(
            self.memory, self.ways, came, sends, 0, count, text, self.topics.arrays, self.head, self.suffix, self.born,
            self.pendings, self.keys, self.sizes,
        )  # fmt: skip
        return done, int(self.ways["why"][0])

    def request(self) -> tuple[bytes, bytes]:
        """The next one's head and records."""
        word, data = self.requests.take(AREA)
        head_size, _, stamp = read_request_word(word)
        assert stamp == 9
        return data[:head_size], data[head_size:]

    def answer(self, number: int, offset: int, physical: int, status: int = 0) -> None:
        head = PUT_ANSWER.pack(Kind.PUT_ANSWER, status, 0, 1, number, -1, 0)
        assert self.answers.offer(*_entry(head + offset.to_bytes(8, "big") + physical.to_bytes(8, "big")))

    def taken(self) -> list[tuple[int, bytes]]:
        """(connection, frames) of each row."""
        host = np.frombuffer(BROKER_HOST.packed, np.uint8)
        count = puts.take_answers(
            self.memory, self.ways, self.pendings, self.keys, self.sizes, host, self.out, self.rows
        )
        found = self.rows[:count].tolist()
        return [(connection, self.out[start : start + size].tobytes()) for connection, start, size in found]


def _entry(data: bytes) -> tuple[int, tuple[bytes]]:
    return len(data), (data,)


def expected(data: bytes, born: Host, *, store_ipv6: bool) -> bytes:
    """The record that the interpreter makes."""
    command = decode(data)
    header = read_header(SendMessage, command.fields, letters=True)
    stored = stored_message(header, header.queue_id, 0, BROKER)
    return encode(
        Record(
            topic=header.topic.encode(), body=bytes(command.body), properties=stored.properties,
            queue_id=header.queue_id, flag=header.flag, sys_flag=header.sys_flag & ~0xFC,
            born_timestamp=header.born_timestamp, born_host=born,
            store_host=Host(bytes(16 if store_ipv6 else 4), 0),
        )
    )  # fmt: skip


@pytest.mark.parametrize("store_ipv6", [False, True])
@pytest.mark.parametrize("born", HOSTS, ids=["IPv4", "IPv6"])
@pytest.mark.parametrize("form", Form)
@pytest.mark.parametrize("size", [0, 1, 7, 100, 5_000])
def test_a_record_is_the_one_that_the_interpreter_makes(form: Form, born: Host, store_ipv6: bool, size: int) -> None:
    ring = Ring(born, store_ipv6=store_ipv6)
    data = frame(form, {**FIELDS, "f": str(0x301 | 0x3C)}, bytes(range(256)) * (size // 256 + 1))
    data = frame(form, {**FIELDS, "f": str(0x301 | 0x3C)}, (bytes(range(256)) * 20)[:size])
    assert ring.send(data) == (1, puts.DONE)
    head, record = ring.request()
    assert record == expected(data, born, store_ipv6=store_ipv6)
    assert head == encode_put(puts.OWN | 1, 0, 123, [Group(b"topic-A", 3, 1, len(record))])
    assert decode_record(record).body == decode(data).body


@pytest.mark.parametrize("form", Form)
@pytest.mark.parametrize(("offset", "physical"), [(0, 0), (9, 1), (1_234_567_890_123, (1 << 62) + 5)])
def test_an_answer_is_the_one_that_the_interpreter_gives(form: Form, offset: int, physical: int) -> None:
    ring = Ring(HOSTS[0])
    data = frame(form)
    ring.send(data)
    ring.answer(puts.OWN | 1, offset, physical)
    ((connection, came),) = ring.taken()
    found = decode(came)
    fields = {
        "queueId": "3", "queueOffset": str(offset), "msgId": f"0A00000100002694{physical:016X}",
        "MSG_REGION": "DefaultRegion", "TRACE_ON": "true", "transactionId": "A" * 32,
    }  # fmt: skip
    wanted = decode(data).answer(0, fields)
    assert (connection, found.fields, found.form) == (5, wanted.fields, wanted.form)
    assert (found.code, found.opaque, found.flag, found.version) == (0, 77, 1, wanted.version)
    assert not found.remark
    assert not found.body


@pytest.mark.parametrize("form", Form)
@pytest.mark.parametrize("opaque", [-(1 << 31), -1, 0, 9, 10, (1 << 31) - 1])
def test_an_answer_has_its_request_s_number_whatever_that_is(form: Form, opaque: int) -> None:
    ring = Ring(HOSTS[0])
    assert ring.send(frame(form, opaque=opaque)) == (1, puts.DONE)
    ring.answer(puts.OWN | 1, 0, 0)
    ((_, came),) = ring.taken()
    assert decode(came).opaque == opaque


def test_answers_of_one_connection_that_follow_each_other_are_one_row_and_one_way_ones_none() -> None:
    ring = Ring(HOSTS[0])
    ring.send(frame(Form.JSON) + frame(Form.ROCKETMQ, flag=2) + frame(Form.ROCKETMQ))
    ring.ways["connection"] = 6
    ring.send(frame(Form.JSON))
    for number in (1, 2, 3, 4):
        ring.answer(puts.OWN | number, number, 0)
    first, second = ring.taken()
    assert (first[0], second[0]) == (5, 6)
    assert (first[1].count(b"queueOffset"), second[1].count(b"queueOffset")) == (2, 1)
    assert ring.ways["oldest_id"][0] == 5
    assert ring.taken() == []


def test_what_is_another_s_answer_or_no_put_ok_is_left_in_the_ring() -> None:
    ring = Ring(HOSTS[0])
    ring.send(frame(Form.JSON) * 2)
    ring.answer(7, 0, 0)
    assert (ring.taken(), ring.ways["why"][0]) == ([], puts.OTHER)
    ring.ways["answers_head"] += 8 + (PUT_ANSWER.size + 16 + 7) // 8 * 8
    ring.answer(puts.OWN | 1, 0, 0, status=1)
    assert (ring.taken(), ring.ways["why"][0]) == ([], puts.OTHER)


@pytest.mark.parametrize(
    "changed",
    [{"e": "4"}, {"e": "-1"}, {"b": "topic-B"}, {"i": PROPERTIES.replace("A" * 32, "A" * 65)},
     {"i": PROPERTIES.replace("A" * 32, 'A"A')}, {"i": PROPERTIES + "\x02long\x01" + "x" * 32_660}],
    ids=["no such queue", "any queue", "no such topic", "a long key", "a key with a quote", "long properties"],
)  # fmt: skip
@pytest.mark.parametrize("form", Form)
def test_what_takes_thought_ends_the_run(form: Form, changed: dict[str, str]) -> None:
    ring = Ring(HOSTS[0])
    assert ring.send(frame(form) + frame(form, {**FIELDS, **changed}) + frame(form)) == (1, puts.OTHER)


def test_a_full_ring_takes_no_more_until_put_has_taken_and_wraps() -> None:
    ring = Ring(HOSTS[0])
    sent = taken = 0
    data = frame(Form.ROCKETMQ, body=bytes(900))
    for _ in range(400):
        done, why = ring.send(data)
        sent += done
        if why == puts.FULL:
            for _ in range(20):
                assert decode_record(ring.request()[1]).body == bytes(900)
                taken += 1
            ring.ways["oldest_id"] = taken + 1
    assert sent > 200
    while (found := ring.requests.take(AREA)) is not None:
        taken += 1
        assert decode_record(found[1][read_request_word(found[0])[0] :]).body == bytes(900)
    assert taken == sent


def test_a_full_ring_takes_no_more_batches_either_and_nothing_of_one_is_lost() -> None:
    ring = Ring(HOSTS[0])
    sent = taken = 0
    wanted = [b"%d" % number * 40 for number in range(32)]
    data = batch(Form.ROCKETMQ, body=b"".join(member(0, body, b"") for body in wanted))

    def take() -> int:
        head, records = ring.request()
        assert head == encode_put(puts.OWN | taken + 1, 0, 123, [Group(b"topic-A", 3, 32, len(records))])
        assert [record.body for record in records_of(records)] == wanted
        return 1

    for _ in range(100):
        done, why = ring.send(data * 3)
        sent += done
        if why == puts.FULL:
            for _ in range(3):
                taken += take()
            ring.ways["oldest_id"] = taken + 1
    assert sent > 100
    while taken < sent:
        taken += take()
    assert ring.requests.take(AREA) is None


def test_the_ids_of_a_batch_are_told_wherever_their_sizes_are_noted_and_no_more_is_sent_than_can_be() -> None:
    ring = Ring(HOSTS[0])
    count = MEMBERS_MAX // 16
    data = batch(Form.JSON, body=b"".join(member(0, b"x" * (number % 7), b"") for number in range(count)))
    first = SIZES_MAX - 5  # so that the sizes of the first one wrap
    ring.ways["sizes_tail"] = first
    places = []
    while (sent := ring.send(data))[0]:
        assert sent == (1, puts.DONE)
        places.append([*accumulate((len(each) for each in split(ring.request()[1])), initial=len(places) << 20)][:-1])
    assert sent == (0, puts.FULL)
    assert len(places) == SIZES_MAX // count
    ring.answer(puts.OWN | 2, 0, places[1][0])
    told(ring, places[1])
    assert ring.send(data) == (0, puts.FULL), "the oldest is not answered"
    ring.answer(puts.OWN | 1, 0, places[0][0])
    told(ring, places[0])
    assert ring.send(data * 3) == (2, puts.FULL)


def told(ring: Ring, places: list[int]) -> None:
    """The next answer tells where records stand."""
    ((_, came),) = ring.taken()
    assert decode(came).fields["msgId"].split(",") == [f"0A00000100002694{place:016X}" for place in places]


def split(records: bytes) -> list[bytes]:
    found = []
    while records:
        size = int.from_bytes(records[:4], "big")
        found.append(records[:size])
        records = records[size:]
    return found


def records_of(records: bytes) -> list[Record]:
    return [decode_record(each) for each in split(records)]


def test_answers_wrap_too() -> None:
    ring = Ring(HOSTS[0])
    data = frame(Form.JSON, body=b"")
    rounds = 3 * ANSWERS_SIZE // (8 + PUT_ANSWER.size + 16)
    for number in range(1, rounds, 32):
        assert ring.send(data * 32) == (32, puts.DONE)
        for each in range(number, number + 32):
            ring.request()
            ring.answer(puts.OWN | each, each, 0)
        ((_, came),) = ring.taken()
        assert came.count(b"queueOffset") == 32
    assert isinstance(decode(came[: 4 + int.from_bytes(came[:4], "big")]), Command)
