"""Property CRCs in kernels: put writes what the model fills in, the walk finds every flipped bit."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.kernels.base import entries
from tests.kernels.put.test_stamp import AT, BASE, NOW, RECORDS, V4, V6, Group, Request, one_group, sent
from towline.format.record import property_crc, record
from towline.format.record.record import Host, Record
from towline.format.record.rules import Rule
from towline.kernels.put import stamp
from towline.kernels.scan import scan
from towline.kernels.scan.verify import foreign_property_crcs

FORCED = scan.CHECK_ALL | scan.CHECK_PROPERTY_CRC
CHECKS = stamp.CHECK_CRC | stamp.PROPERTY_CRC


def with_room(one: Record) -> Record:
    return replace(one, properties=property_crc.appended(one.properties))


def sealed(bodies: list[bytes], properties: bytes = b"TAGS\x01TagA\x02") -> list[bytes]:
    """Records as they stand one behind the other from BASE on in a log with property CRCs."""
    found: list[bytes] = []
    at = BASE
    for number, body in enumerate(bodies):
        one = Record(
            topic=b"TopicA",
            body=body,
            properties=properties,
            physical_offset=at,
            store_timestamp=NOW,
            born_host=V6 if number % 2 else V4,
        )
        found.append(property_crc.filled(record.encode(with_room(one))))
        at += len(found[-1])
    return found


def walked(log: bytes, flags: int) -> tuple[int, int, int]:
    """What the walk returns, the byte it reached, the records it counted."""
    state = np.zeros(scan.WALK_STATE_SIZE, np.int64)
    reason = scan.walk(np.frombuffer(log, np.uint8), 0, len(log), BASE, flags, 1_000, state)
    return reason, int(state[scan.REACHED]), int(state[scan.COUNT])


@given(st.lists(RECORDS, min_size=1, max_size=5), st.sampled_from([V4, V6]), st.integers(1, 3))
def test_put_writes_what_the_model_fills_in(records: list[Record], host: Host, groups: int) -> None:
    parts, expected, at = [], [], 0
    for number in range(groups):
        encoded = []
        for index, one in enumerate(records):
            one = with_room(replace(one, queue_id=number, sys_flag=0, store_host=Host(bytes(len(host.address)), 0)))
            encoded.append(record.encode(one))
            stamped = replace(
                one,
                queue_offset=100 + index,
                physical_offset=BASE + AT + at,
                store_timestamp=NOW,
                store_host=host,
            )
            expected.append(property_crc.filled(record.encode(stamped)))
            at += len(expected[-1])
        parts.append(Group(b"TopicA", number, encoded))
    request = Request(parts, host=host, checks=CHECKS)
    assert request.run()[0] == Rule.OK
    assert request.log[8:] == b"".join(expected)[8:]
    log = expected[0][:8] + request.log[8:]
    state = np.zeros(scan.WALK_STATE_SIZE, np.int64)
    walk_from = np.frombuffer(bytes(AT) + log, np.uint8)
    assert scan.walk(walk_from, AT, AT + len(log), BASE, FORCED, 1_000, state) == Rule.OK


@pytest.mark.parametrize(
    "properties",
    [
        b"",
        b"A\x01b\x02",
        b"A\x01b\x02__CRC32#\x010000000000",
        b"A\x01b__CRC32#\x010000000000\x02",
        b"__CRC32#\x010000000000\x02A\x01b\x02",
    ],
)
def test_put_wants_room_for_it(properties: bytes) -> None:
    request = one_group(sent(b"TopicA", properties=properties), checks=CHECKS)
    assert request.run()[0] == Rule.PROPERTY_CRC_MISSING


@pytest.mark.parametrize(
    ("properties", "checks"),
    [
        (property_crc.PLACEHOLDER, stamp.FROM_CLIENT),
        (property_crc.appended(b"A\x01b\x02"), stamp.FROM_CLIENT),
        (b"__CRC32#\x01x\x02A\x01b\x02", stamp.FROM_CLIENT),
        (property_crc.PLACEHOLDER * 2, stamp.FROM_CLIENT | stamp.PROPERTY_CRC),
    ],
)
def test_put_takes_it_nowhere_else(properties: bytes, checks: int) -> None:
    request = one_group(sent(b"TopicA", properties=properties), checks=checks)
    assert request.run()[0] == Rule.PROPERTY_CRC_MISPLACED


@given(
    st.binary(max_size=120),
    st.sampled_from([b"", b"TAGS\x01TagA\x02", b"KEYS\x01k1 k2\x02UNIQ_KEY\x01" + b"0" * 32 + b"\x02"]),
    st.integers(0, 1),
    st.data(),
)
def test_any_flipped_bit_stops_a_walk_that_insists(
    body: bytes, properties: bytes, which: int, data: st.DataObject
) -> None:
    records = sealed([body, body + b"2", b"last"], properties)
    start = sum(map(len, records[:which]))
    log = bytearray(b"".join(records))
    assert walked(bytes(log), FORCED) == (Rule.OK, len(log), 3)
    bit = data.draw(st.integers(0, 8 * len(records[which]) - 1))
    log[start + bit // 8] ^= 1 << bit % 8
    reason, reached, count = walked(bytes(log), FORCED)
    assert reason != Rule.OK
    assert (reached, count) == (start, which)


def test_every_bit_of_one_record() -> None:
    log = b"".join(sealed([b"first", b"second"]))
    found = set()
    for bit in range(8 * len(sealed([b"first"])[0])):
        damaged = bytearray(log)
        damaged[bit // 8] ^= 1 << bit % 8
        reason, reached, _ = walked(bytes(damaged), FORCED)
        assert reached == 0, f"bit {bit} is not found"
        found.add(reason)
    assert {Rule.PROPERTY_CRC, Rule.PROPERTY_CRC_MISSING, Rule.BODY_CRC, Rule.MAGIC, Rule.PHYSICAL_OFFSET} <= found


def test_one_of_another_record_ends_only_a_walk_that_insists() -> None:
    records = sealed([b"first", b"second", b"third"])
    records[1] = records[1][: -property_crc.SIZE] + records[0][-property_crc.SIZE :]
    log = b"".join(records)
    assert walked(log, scan.CHECK_ALL) == (Rule.OK, len(log), 3)
    assert walked(log, FORCED) == (Rule.PROPERTY_CRC, len(records[0]), 1)
    assert walked(log, scan.CHECK_PROPERTY_CRC) == (Rule.PROPERTY_CRC, len(records[0]), 1)


def test_a_flipped_bit_of_a_body_ends_every_walk_that_compares_crcs() -> None:
    records = sealed([b"first", b"second", b"third"])
    log = b"".join(records).replace(b"second", b"tecond")
    for flags in (scan.CHECK_CRC, scan.CHECK_ALL, FORCED):
        assert walked(log, flags) == (Rule.BODY_CRC, len(records[0]), 1)


@given(st.lists(st.sampled_from(["own", "another", "none", "inside"]), max_size=12), st.integers(0, 4))
def test_those_of_other_records_are_found_and_counted(kinds: list[str], room: int) -> None:
    records: list[bytes] = []
    for number, kind in enumerate(kinds):
        properties = property_crc.appended(b"KEYS\x01k\x02")
        properties = properties + b"A\x01b\x02" if kind == "inside" else properties
        one = Record(
            topic=b"TopicA",
            body=b"body %d" % number,
            properties=b"KEYS\x01k\x02" if kind == "none" else properties,
            born_host=V6 if number % 2 else V4,
        )
        made = record.encode(one)
        records.append(property_crc.filled(made) if kind == "own" else made)
    log = np.frombuffer(b"".join(records) + b"behind", np.uint8)
    starts = np.cumsum([0, *map(len, records)])
    wanted = [int(starts[number]) for number, kind in enumerate(kinds) if kind == "another"]
    found = np.full(room, -1, np.int64)
    assert foreign_property_crcs(log, 0, int(starts[-1]), found) == len(wanted)
    assert found.tolist() == (wanted + [-1] * room)[:room]


@given(
    RECORDS,
    st.sampled_from([b"", b"A\x01b", b"A\x01b\x02", property_crc.PLACEHOLDER]),
    st.sampled_from(["own", "old", "no"]),
)
def test_the_walk_that_insists_has_the_models_rule(one: Record, before: bytes, last: str) -> None:
    data = record.encode(replace(one, properties=before + (b"" if last == "no" else property_crc.PLACEHOLDER)))
    data = property_crc.filled(data) if last == "own" else data
    rule = property_crc.broken(data, record.decode(data).properties)
    assert walked(data, scan.CHECK_PROPERTY_CRC)[0] == rule
    assert walked(data, scan.CHECK_CRC)[0] == Rule.OK


def test_a_record_without_one_is_refused_only_by_a_walk_that_insists() -> None:
    plain = record.encode(
        Record(topic=b"TopicA", properties=b"TAGS\x01TagA\x02", physical_offset=BASE, store_timestamp=1)
    )
    assert walked(plain, scan.CHECK_ALL)[0] == Rule.OK
    assert walked(plain, FORCED)[0] == Rule.PROPERTY_CRC_MISSING


@given(st.binary(max_size=300), st.integers(0, 300))
def test_a_crc_goes_on_where_another_ended(text: bytes, cut: int) -> None:
    cut = min(cut, len(text))
    buffer = np.frombuffer(text + b".", np.uint8)
    before = entries.crc32(buffer, 0, cut)
    assert entries.crc32_on(before, buffer, cut, len(text) - cut) == entries.crc32(buffer, 0, len(text))
