"""The dispatch scan against a model made of `decode` and `properties.decode`."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from towline.format.files import consume_queue
from towline.format.record import properties, record
from towline.format.record.record import Host, Record
from towline.format.record.rules import Rule
from towline.kernels.base.directory import QueueDirectory
from towline.kernels.jit import rows
from towline.kernels.jit.rows import Stop
from towline.kernels.scan import dispatch
from towline.kernels.scan.scan import COUNT, REACHED, TIMESTAMP

BASE = 7_000
DELAYS = np.array([1_000, 5_000, 10_000], np.int64)
SCHEDULE = dispatch.SCHEDULE_TOPIC


class Scan:
    """Arrays for one scan over `log`."""

    def __init__(self, log: bytes, room: int = 64, keys: int = 256) -> None:
        self.log = np.frombuffer(log, np.uint8)
        self.directory = QueueDirectory()
        self.rows = np.zeros(room, rows.DISPATCH)
        self.keys = np.zeros(keys, rows.KEY)
        self.state = np.zeros(dispatch.STATE_SIZE, np.int64)

    def run(self, start: int = 0) -> int:
        return dispatch.scan_dispatch(
            self.log, start, len(self.log), BASE, *self.directory.arrays, DELAYS, self.rows, self.keys, self.state
        )

    def add(self, log: bytes) -> None:
        """Registers the queue of each record."""
        at = 0
        while at < len(log):
            one = record.decode(log, at)
            self.directory.add(one.topic, one.queue_id)
            at += int.from_bytes(log[at : at + 4], "big")

    def key(self, number: int) -> bytes:
        start, length, _ = self.keys[number].item()
        return self.log[start : start + length].tobytes()


def model_tags_code(one: Record) -> int:
    found = properties.decode(one.properties)
    level = found.get("DELAY", "")
    if one.topic == SCHEDULE and level.isascii() and level.isdigit() and 0 < int(level) <= 2**31 - 1:
        return one.store_timestamp + int(DELAYS[min(int(level), len(DELAYS)) - 1])
    return consume_queue.tags_code(found.get("TAGS"))


def model_keys(one: Record) -> list[bytes]:
    if one.sys_flag & record.TRANSACTION_MASK == record.TRANSACTION_ROLLBACK:
        return []
    found = properties.decode(one.properties)
    words = [found.get("UNIQ_KEY", ""), *found.get("KEYS", "").split(" ")]
    return [word.encode() for word in words if word]


NAMES = st.sampled_from(["TAGS", "KEYS", "UNIQ_KEY", "DELAY", "WAIT", "TAGT", "UNIQ_KEZ", "", "n" * 40])
VALUES = st.sampled_from(
    [
        "",
        "1",
        "3",
        "99",
        "0",
        "x",
        "a b",
        " a  b ",
        "标签",
        "k" * 31,
        "k" * 33,
        "a\x01b",
        " ".join("abcdefghijklmnopqrstuvwxyz"),
    ]
)
ITEMS = st.lists(st.tuples(NAMES, VALUES).map("\x01".join) | st.sampled_from(["", "TAGS", "\x01"]))
RECORDS = st.builds(
    Record,
    topic=st.sampled_from([b"A", b"TopicTest", SCHEDULE, b"%RETRY%" + b"g" * 150]),
    queue_id=st.integers(0, 2),
    queue_offset=st.integers(0, 2**40),
    body=st.binary(max_size=40),
    properties=st.tuples(ITEMS, st.sampled_from(["", "\x02"])).map(
        lambda parts: ("\x02".join(parts[0]) + parts[1]).encode()
    ),
    sys_flag=st.sampled_from([0, 4, 8, 12]),
    born_host=st.sampled_from([record.NO_HOST, Host(bytes(16), 1)]),
    store_host=st.sampled_from([record.NO_HOST, Host(bytes(16), 1)]),
    store_timestamp=st.integers(1, 2**42),
)


@given(st.lists(RECORDS, max_size=8))
def test_rows_and_keys(records: list[Record]) -> None:
    encoded = [record.encode(one) for one in records]
    scan = Scan(b"".join(encoded))
    scan.add(b"".join(encoded))
    assert scan.run() == Stop.DONE
    assert scan.state[REACHED] == len(scan.log)
    assert scan.state[COUNT] == len(records)
    assert scan.state[TIMESTAMP] == (records[-1].store_timestamp if records else -1)
    at = 0
    wanted_keys: list[tuple[int, bytes]] = []
    for number, one in enumerate(records):
        row = scan.rows[number]
        assert row["phy"] == BASE + at
        assert row["size"] == len(encoded[number])
        assert row["queue_offset"] == one.queue_offset
        assert row["store_timestamp"] == one.store_timestamp
        assert row["transaction"] == one.sys_flag & record.TRANSACTION_MASK
        assert row["queue_index"] == scan.directory.lookup(one.topic, one.queue_id)
        assert scan.log[row["topic_start"] :][: row["topic_length"]].tobytes() == one.topic
        assert row["tags_code"] == model_tags_code(one)
        keys = model_keys(one)
        assert (row["key_start"], row["key_count"]) == (len(wanted_keys), len(keys))
        wanted_keys += [(number, key) for key in keys]
        at += len(encoded[number])
    assert scan.state[dispatch.KEY_COUNT] == len(wanted_keys)
    assert [(int(scan.keys[number]["record"]), scan.key(number)) for number in range(len(wanted_keys))] == wanted_keys


G1 = Record(
    topic=b"TopicA",
    body=b"hello",
    properties=b"KEYS\x01k1 k2\x02TAGS\x01TagA\x02UNIQ_KEY\x01AC11000100002A9A0000000000000000\x02",
)


def test_an_unknown_queue_stops_the_scan_and_names_itself() -> None:
    first, second = record.encode(G1), record.encode(Record(topic=b"TopicB", queue_id=5))
    scan = Scan(first + second)
    scan.directory.add(b"TopicA", 0)
    assert scan.run() == Stop.UNKNOWN_QUEUE
    assert scan.state[: dispatch.KEY_COUNT + 1].tolist() == [len(first), 1, 0, 3]
    row = scan.rows[1]
    assert scan.log[row["topic_start"] :][: row["topic_length"]].tobytes() == b"TopicB"
    scan.directory.add(b"TopicB", 5)
    assert scan.run(len(first)) == Stop.DONE


def test_a_scan_stops_early_when_an_array_is_full() -> None:
    log = record.encode(G1) * 3
    for room, keys, count in ((2, 99, 2), (9, 8, 2), (9, 9, 3), (9, 2, 0)):
        scan = Scan(log, room, keys)
        scan.directory.add(b"TopicA", 0)
        assert scan.run() == (Stop.DONE if count == 3 else Stop.FULL)
        assert scan.state[COUNT] == count
        assert scan.state[REACHED] == count * len(log) // 3
        assert scan.state[dispatch.KEY_COUNT] == count * 3


@pytest.mark.parametrize(
    ("level", "code"),
    [("3", 1_700_000_010_123), ("99", 1_700_000_010_123), ("0", 2598919), ("-1", 2598919), ("x", 2598919)],
)
def test_delayed_messages(level: str, code: int) -> None:
    text = f"TAGS\x01TagA\x02DELAY\x01{level}\x02".encode()
    for topic in (SCHEDULE, b"SCHEDULE_TOPIC_XXXY"):
        one = Record(topic=topic, properties=text, store_timestamp=1_700_000_000_123)
        scan = Scan(record.encode(one))
        scan.directory.add(topic, 0)
        assert scan.run() == Stop.DONE
        assert scan.rows[0]["tags_code"] == (code if topic == SCHEDULE else 2598919)


def test_most_keys_of_one_record_fit() -> None:
    text = b"KEYS\x01" + b"k " * ((32_767 - 5) // 2)
    scan = Scan(record.encode(Record(topic=b"T", properties=text)), keys=dispatch.KEYS_OF_A_RECORD_MAX)
    scan.directory.add(b"T", 0)
    assert scan.run() == Stop.DONE
    assert scan.state[dispatch.KEY_COUNT] == (32_767 - 5) // 2


@given(st.data())
def test_damage_never_reads_past_the_record(data: st.DataObject) -> None:
    log = bytearray(record.encode(G1) * 2)
    for _ in range(data.draw(st.integers(1, 4))):
        log[data.draw(st.integers(0, len(log) - 1))] = data.draw(st.integers(0, 255))
    scan = Scan(bytes(log))
    scan.directory.add(b"TopicA", 0)
    reason = scan.run()
    assert reason in [*Stop, *Rule]
    assert scan.state[REACHED] <= len(log)
