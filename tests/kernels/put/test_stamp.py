"""Put's kernel: what it stamps is what the model encodes, and every damage is refused with its rule."""

import random
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kernels.put.entries import append_request
from towline.errors import MalformedRecord
from towline.format.record import record
from towline.format.record.record import Host, Record
from towline.format.record.rules import Rule
from towline.kernels.base import forms, ownership
from towline.kernels.jit import rows
from towline.kernels.put import stamp

AT = 40
AFTER = 70  # bytes of the log behind a request
BASE = 5_000
NOW = 1_700_000_000_123
V4 = Host(bytes([10, 0, 0, 1]), 10911)
V6 = Host(bytes(range(16)), 10911)
MAX_BODY = 4_194_304
LATEST_MS = 1000
PROPERTIES = b"KEYS\x01k1 k2\x02TAGS\x01TagA\x02"


@dataclass
class Group:
    topic: bytes
    queue_id: int
    records: list[bytes]
    next_offset: int = 100
    size: int | None = None
    count: int | None = None
    form: int = 0


@dataclass
class Request:
    groups: list[Group]
    host: Host = V4
    max_body: int = MAX_BODY
    checks: int = stamp.CHECK_CRC
    cluster: str = "cluster-a"
    reals: dict[bytes, int] = field(default_factory=dict)
    log: bytes = b""
    result: np.ndarray = field(default_factory=lambda: np.zeros(stamp.RESULT_SIZE, np.int64))

    def run(self, frame: bytes | None = None) -> tuple[Rule, list[int]]:
        """The rule, and the groups' next offsets. `log` becomes the frame's bytes afterwards."""
        if frame is None:
            frame = b"".join(encoded for group in self.groups for encoded in group.records)
        log = np.zeros(AT + len(frame) + AFTER, np.uint8)
        table = np.zeros(len(self.groups), rows.GROUP)
        arena = bytearray(b"....")
        for number, group in enumerate(self.groups):
            size = sum(map(len, group.records)) if group.size is None else group.size
            count = len(group.records) if group.count is None else group.count
            table[number] = (size, count, group.next_offset, len(arena), len(group.topic), group.queue_id, group.form)
            arena += group.topic
        real_topics = forms.RealTopics()
        real_topics.replace(self.reals)
        rule = append_request(
            log,
            AT,
            np.frombuffer(frame, np.uint8),
            table,
            len(self.groups),
            np.frombuffer(bytes(arena), np.uint8),
            ownership.own_values(self.cluster),
            BASE,
            NOW,
            np.frombuffer(self.host.packed, np.uint8),
            self.max_body,
            self.checks,
            real_topics.at(NOW, NOW + LATEST_MS),
            self.result,
        )
        assert not log[AT : AT + 8].any(), "the first 8 bytes are the caller's"
        assert not log[:AT].any()
        assert not log[AT + len(frame) :].any(), "what is not the request's is not touched"
        self.log = log[AT : AT + len(frame)].tobytes()
        return Rule(rule), table["next_offset"].tolist()


def is_copied(log: bytes, frame: bytes) -> bool:
    """Whether the log holds nothing but bytes of the frame, from its beginning on, and zeros."""
    return all(found in (0, given) for found, given in zip(log[8:], frame[8:], strict=True))


def sent(topic: bytes, queue_id: int = 3, **fields: object) -> Record:
    return Record(topic=topic, queue_id=queue_id, born_timestamp=NOW - 5, **fields)  # type: ignore[arg-type]


def one_group(*records: Record, **fields: object) -> Request:
    first = records[0]
    group = Group(first.topic, first.queue_id, [record.encode(one) for one in records])
    return Request([group], **fields)  # type: ignore[arg-type]


TEXTS = st.binary(max_size=70).map(lambda text: bytes(byte % 90 + 33 for byte in text))
RECORDS = st.builds(
    sent,
    topic=st.just(b"TopicA"),
    body=st.binary(max_size=90),
    properties=st.lists(st.tuples(TEXTS.filter(len), TEXTS)).map(
        lambda pairs: b"".join(name + b"\x01" + value + b"\x02" for name, value in pairs)
    ),
    sys_flag=st.sampled_from(
        [0, 1, record.TRANSACTION_PREPARED, record.TRANSACTION_COMMIT, record.TRANSACTION_ROLLBACK]
    ),
    born_host=st.sampled_from([V4, V6]),
    flag=st.integers(-(2**31), 2**31 - 1),
)


@given(
    st.lists(
        st.tuples(
            st.sampled_from([b"A", b"TopicB", b"T" * 127, b"%RETRY%" + b"g" * 200]), st.lists(RECORDS, min_size=1)
        ),
        min_size=1,
        max_size=4,
    ),
    st.sampled_from([V4, V6]),
)
def test_a_stamped_request_is_what_the_model_encodes(parts: list[tuple[bytes, list[Record]]], host: Host) -> None:
    groups, expected, next_offsets, at = [], [], [], 0
    for number, (topic, records) in enumerate(parts):
        encoded = []
        next_offset = 10 * number
        for one in records:
            one = replace(one, topic=topic, queue_id=number, store_host=Host(bytes(len(host.address)), 0))
            encoded.append(record.encode(one))
            aside = one.sys_flag & record.TRANSACTION_MASK in (4, 12)
            stamped = replace(
                one,
                queue_offset=0 if aside else next_offset,
                physical_offset=BASE + AT + at,
                store_timestamp=NOW,
                store_host=host,
            )
            next_offset += not aside
            expected.append(record.encode(stamped))
            at += len(expected[-1])
        groups.append(Group(topic, number, encoded, next_offset=10 * number))
        next_offsets.append(next_offset)
    request = Request(groups, host=host)
    assert request.run() == (Rule.OK, next_offsets)
    assert request.log[8:] == b"".join(expected)[8:]
    assert request.result[:3].tolist() == [len(expected), at, 0]


THREE = [sent(b"TopicA", body=b"body-%d" % number, properties=PROPERTIES) for number in range(3)]
UNCHECKED = {
    name
    for name in record.LAYOUT.offset
    if name not in ("total_size", "magic", "body_crc", "queue_id", "sys_flag", "body_size")
}


def model_rule(frame: bytes, sizes: list[int]) -> tuple[Rule, int]:
    """What a frame of one group of three records breaks, by `decode` and the group's numbers; and in which record."""
    at = 0
    for index in range(len(sizes)):
        if at == len(frame):
            return Rule.COUNT_MISMATCH, index
        try:
            found = record.decode(frame, at)
        except MalformedRecord as refused:
            if frame[at + 39] & 0x20 and refused.rule != "MAGIC" and len(frame) - at >= record.SIZE_MIN:
                return Rule.STORE_HOST_FLAG, index
            return Rule[refused.rule], index
        size = int.from_bytes(frame[at : at + 4], "big")
        if found.store_host.is_ipv6:
            return Rule.STORE_HOST_FLAG, index
        if found.queue_id != 3:
            return Rule.QUEUE_ID, index
        if found.topic != b"TopicA":
            return Rule.TOPIC_MISMATCH, index
        items = [item for item in found.properties.split(b"\x02") if item]
        if b"\x00" in found.properties or not all(item.find(b"\x01") > 0 for item in items):
            return Rule.PROPERTIES_FORM, index
        at += size
    return (Rule.OK if at == len(frame) else Rule.GROUP_SIZE), len(sizes)


def test_every_flipped_byte_is_refused_where_it_is_checked() -> None:
    encoded = [record.encode(one) for one in THREE]
    frame = b"".join(encoded)
    request = Request([Group(b"TopicA", 3, encoded)])
    refused = 0
    for at in range(len(frame)):
        for flip in (0x01, 0x20, 0x80, 0xFF):
            damaged = bytearray(frame)
            damaged[at] ^= flip
            rule, next_offsets = request.run(bytes(damaged))
            wanted, index = model_rule(bytes(damaged), [len(one) for one in encoded])
            assert rule == wanted, f"byte {at} ^ {flip:02x}"
            inside = at % len(encoded[0])
            name = next((name for name, start in reversed(record.LAYOUT.offset.items()) if start <= inside), "")
            if name in UNCHECKED and inside < record.LAYOUT.size:
                assert rule == Rule.OK, f"byte {at} is not put's to judge"
                continue
            if rule == Rule.OK:
                # Only text that parses as well as before, and bits of SYSFLAG that say nothing about the form.
                assert inside >= record.LAYOUT.size or name == "sys_flag"
                continue
            refused += 1
            assert request.result[0] == index
            assert next_offsets == [100]
            assert is_copied(request.log, bytes(damaged)), "a refused request is not stamped"
    assert refused > 400


@given(st.binary(min_size=95, max_size=400), st.integers(0, 3))
def test_any_bytes_are_judged_without_reading_past_them(noise: bytes, count: int) -> None:
    frame = record.encode(THREE[0])[:88] + noise
    request = Request([Group(b"TopicA", 3, [frame], count=count)])
    rule, _ = request.run()
    assert rule != Rule.OK or count == 1


def test_rules_of_sizes() -> None:
    big = one_group(sent(b"T", body=bytes(101)), max_body=100)
    assert big.run()[0] == Rule.BODY_TOO_LARGE
    assert one_group(sent(b"T", body=bytes(100)), max_body=100).run()[0] == Rule.OK
    huge = sent(b"T", body=bytes(70_000))
    assert one_group(huge, max_body=100).run()[0] == Rule.RECORD_TOO_LARGE
    assert one_group(huge, max_body=70_000).run()[0] == Rule.OK


@pytest.mark.parametrize(
    ("fields", "rule"),
    [
        ({"count": 2}, Rule.COUNT_MISMATCH),
        ({"count": 4}, Rule.COUNT_MISMATCH),
        ({"count": 0}, Rule.COUNT_MISMATCH),
        ({"size": -1}, Rule.GROUP_SIZE),
        ({"size": 10**9}, Rule.GROUP_SIZE),
        ({"size": 1}, Rule.ENDS_INSIDE),
        ({"topic": b""}, Rule.TOPIC_LENGTH),
        ({"topic": b"x" * 256}, Rule.TOPIC_LENGTH),
        ({"topic": b"TopicB"}, Rule.TOPIC_MISMATCH),
        ({"topic": b"TopicAA"}, Rule.TOPIC_MISMATCH),
        ({"queue_id": 4}, Rule.QUEUE_ID),
    ],
)
def test_rules_of_groups(fields: dict[str, object], rule: Rule) -> None:
    group = replace(Group(b"TopicA", 3, [record.encode(one) for one in THREE]), **fields)  # type: ignore[arg-type]
    wanted = Rule.GROUP_SIZE if fields == {"count": 2} else rule
    assert Request([group]).run()[0] == wanted


def test_a_group_must_end_where_a_record_ends() -> None:
    first, second = ([record.encode(one) for one in THREE], [record.encode(THREE[0])])
    size = sum(map(len, first))
    for moved in (-1, 1, 100):
        groups = [
            Group(b"TopicA", 3, first, size=size + moved),
            Group(b"TopicA", 3, second, size=len(second[0]) - moved),
        ]
        rule, next_offsets = Request(groups).run()
        assert rule in (Rule.GROUP_SIZE, Rule.SIZE_PAST_END)
        assert next_offsets == [100, 100]


def test_nothing_is_stamped_when_the_last_group_is_bad() -> None:
    good = Group(b"TopicA", 3, [record.encode(one) for one in THREE])
    bad = Group(b"TopicA", 4, [record.encode(THREE[0])])
    request = Request([good, bad])
    assert request.run() == (Rule.QUEUE_ID, [100, 100])
    before = sum(map(len, good.records))
    assert request.result[:3].tolist() == [3, before, 0]
    assert is_copied(request.log, b"".join(good.records + bad.records))


def test_the_crc_is_checked_only_when_told() -> None:
    damaged = bytearray(record.encode(THREE[0]))
    damaged[90] ^= 1
    group = Group(b"TopicA", 3, [bytes(damaged)])
    assert Request([group]).run()[0] == Rule.BODY_CRC
    assert Request([group], checks=0).run()[0] == Rule.OK


@pytest.mark.parametrize(
    ("properties", "rule"),
    [
        (b"", Rule.OK),
        (b"a\x01", Rule.OK),
        (b"a\x01b", Rule.OK),
        (b"a\x01b\x02", Rule.OK),
        (b"a\x01b\x01c\x02\x02d\x01e", Rule.OK),
        (b"a", Rule.PROPERTIES_FORM),
        (b"\x01", Rule.PROPERTIES_FORM),
        (b"\x01a\x01\x02", Rule.PROPERTIES_FORM),
        (b"a\x01b\x02c", Rule.PROPERTIES_FORM),
        (b"a\x01b\x02c\x02", Rule.PROPERTIES_FORM),
        (b"a\x01b\x00\x02", Rule.PROPERTIES_FORM),
        (b"n" * 40 + b"\x01" + b"v" * 90 + b"\x02", Rule.OK),
        (b"n" * 40 + b"\x01" + b"v" * 90 + b"\x00", Rule.PROPERTIES_FORM),
    ],
)
def test_properties(properties: bytes, rule: Rule) -> None:
    assert one_group(sent(b"TopicA", properties=properties)).run()[0] == rule


def test_a_topic_with_nul_is_refused() -> None:
    assert one_group(sent(b"Topic\x00A")).run()[0] == Rule.TOPIC_FORM


def test_address_families_must_fit() -> None:
    assert one_group(sent(b"T"), host=V6).run()[0] == Rule.STORE_HOST_FLAG
    assert one_group(sent(b"T", store_host=V6)).run()[0] == Rule.STORE_HOST_FLAG


@settings(max_examples=30)
@given(st.randoms())
def test_shuffled_bytes_never_pass(pick: random.Random) -> None:
    encoded = [record.encode(one) for one in THREE]
    frame = bytearray(b"".join(encoded))
    for _ in range(8):
        left, right = sorted(pick.sample(range(len(frame)), 2))
        frame[left:right] = bytes(reversed(frame[left:right]))
    request = Request([Group(b"TopicA", 3, encoded)])
    rule, _ = request.run(bytes(frame))
    sizes = [len(one) for one in encoded]
    assert (rule == Rule.OK) == (model_rule(bytes(frame), sizes)[0] == Rule.OK)
