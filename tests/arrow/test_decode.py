"""Every column of every record, against the plain decoder."""

import mmap
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from towline.arrow.columns import COLUMNS, SCHEMA, nearest
from towline.arrow.decode import batches, chosen, decode
from towline.arrow.errors import DamagedRecord, UnknownColumn
from towline.arrow.selection import Selection
from towline.format.record.record import COMPRESSED, Host, Record

from .logs import BASE, array, message, narrowed, rows, segment
from .reference import DELAYS_MS, rows_of

EVERYTHING = Selection(system=True, halves=True)
V6 = Host(bytes(range(16)), 65_535)

_text = st.text(st.characters(codec="utf-8", exclude_characters="\x00\x01\x02"), min_size=1, max_size=12)
_names = st.sampled_from(["TAGS", "KEYS", "UNIQ_KEY", "DELAY", "WAIT", "customer-name", "customer-nickname"]) | _text
_sound = st.lists(st.tuples(_names, _text), max_size=5).map(
    lambda pairs: "".join(f"{name}\x01{value}\x02" for name, value in pairs).encode()
)
_cut = _sound.map(lambda encoded: encoded[:-1])
_broken = st.lists(
    st.sampled_from([b"TAGS", b"KEYS", b"a", b"\x01", b"\x02", b"\xff", b"\xc3\xa9", b"2"]), max_size=10
).map(b"".join)
_hosts = st.sampled_from([Host(bytes([10, 0, 0, 1]), 10911), Host(bytes([255] * 4), -1), V6, Host(bytes(16), 1)])
_i4 = st.integers(-(2**31), 2**31 - 1)
_i8 = st.integers(-(2**63), 2**63 - 1)
_ms = st.integers(-(2**53), 2**53)
_topics = st.sampled_from(
    [b"orders", b"SCHEDULE_TOPIC_XXXX", b"%RETRY%" + b"g" * 130, "bücher".encode(), b"bad\xff\xc3"]
)
_records = st.builds(
    Record,
    topic=_topics,
    body=st.binary(max_size=60),
    properties=_sound | _cut | _broken,
    queue_id=_i4,
    flag=_i4,
    queue_offset=_i8,
    sys_flag=st.sampled_from([0, 2, 4, 8, 12]),
    born_timestamp=_ms,
    born_host=_hosts,
    store_timestamp=_ms,
    store_host=_hosts,
    reconsume_times=_i4,
    prepared_transaction_offset=_i8,
)


def read(log: bytes, **how: Any) -> list[dict[str, Any]]:
    how = {"broker_name": "broker-a", "delays_ms": DELAYS_MS} | how
    return rows(batches(array(log), BASE, 0, len(log), COLUMNS, EVERYTHING, **how))


@settings(max_examples=100, deadline=None)
@given(st.lists(_records, max_size=12), st.integers(1, 5))
def test_every_column_is_what_the_plain_decoder_says(records: list[Record], in_a_batch: int) -> None:
    log = segment(records, size=64 * 1024)
    expected = rows_of(log, BASE)
    assert len(expected) == len(records)
    assert read(log) == expected
    assert read(log, rows=in_a_batch) == expected


def test_a_batch_has_the_schema_to_the_letter() -> None:
    log = array(segment(map(message, range(3))))
    (batch,) = batches(log, BASE, 0, len(log), COLUMNS)
    assert batch.schema.equals(SCHEMA)
    batch.validate(full=True)
    assert batch.schema.field("topic").nullable is False
    assert batch.schema.field("tags").nullable is True


@pytest.mark.parametrize("name", COLUMNS)
def test_each_column_alone_is_the_same_as_among_all(name: str) -> None:
    log = segment([*map(message, range(5)), message(5, properties=b"", body=b"")])
    (batch,) = batches(array(log), BASE, 0, len(log), [name], broker_name="broker-a")
    assert batch.schema.names == [name]
    assert rows([batch]) == narrowed(rows_of(log, BASE), [name])


@pytest.mark.parametrize(
    "properties",
    [
        b"TAGS\x01red\x02KEYS\x01%02d\x02WAIT\x01%d\x02",
        b"TAGS\x01red\x02TAGS\x01blue\x02KEYS\x01%02d %d\x02",
        b"customer-a\x01%02d\x02customer-b\x01%d\x02",
        b"customer-a\x01%02d\x02customer-a\x01%d\x02",
        b"k%02d\x01v%d\x02",
        b"PGROUP\x01%02d\x02CLUSTER\x01%d",
    ],
)
def test_names_and_sizes_that_are_the_same_in_every_record(properties: bytes) -> None:
    log = segment(message(number, properties=properties % (number, number), body=b"same size") for number in range(30))
    assert read(log) == rows_of(log, BASE)
    assert read(log, rows=7) == rows_of(log, BASE)


def test_columns_come_in_the_order_asked_for() -> None:
    log = array(segment([message(1)]))
    assert decode(log, BASE, np.array([0]), ["body", "topic"]).schema.names == ["body", "topic"]


def test_no_columns_at_all_still_count() -> None:
    log = array(segment(map(message, range(3))))
    assert sum(batch.num_rows for batch in batches(log, BASE, 0, len(log), [])) == 3


def test_nothing_aliases_the_log() -> None:
    log = np.frombuffer(segment(map(message, range(1))), np.uint8).copy()
    (batch,) = batches(log, BASE, 0, len(log), COLUMNS)
    before = rows([batch])
    log[:] = 0xEE
    assert rows([batch]) == before


def test_a_segment_may_be_unmapped_as_soon_as_its_batches_are_made(tmp_path: Path) -> None:
    log = segment([message(0, body=zlib.compress(b"a" * 100), sys_flag=COMPRESSED), *map(message, range(1, 200))])
    path = tmp_path / "segment"
    path.write_bytes(log)
    with path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    made = list(batches(np.frombuffer(mapped, np.uint8), BASE, 0, len(log), COLUMNS, Selection(tags="red"), rows=64))
    mapped.close()  # BufferError while anything aliases it
    assert narrowed(rows(made), ["body", "properties"]) == narrowed(rows_of(log, BASE), ["body", "properties"])


def test_positions_may_come_in_any_order_and_twice() -> None:
    records = [message(number, body=b"x" * number) for number in range(6)]
    log = segment(records)
    expected = rows_of(log, BASE)
    at = np.array([row["commitLogOffset"] - BASE for row in expected])
    for order in ([5, 0, 3], [2, 2, 1], [0, 0], [4, 3, 2, 1, 0]):
        wanted = [expected[place] for place in order]
        assert rows([decode(array(log), BASE, at[order], COLUMNS, broker_name="broker-a")]) == wanted
        assert rows(chosen(array(log), BASE, at[order], COLUMNS, broker_name="broker-a", rows=2)) == wanted


def test_chosen_selects() -> None:
    log = segment(map(message, range(8)))
    expected = rows_of(log, BASE)
    at = np.array([row["commitLogOffset"] - BASE for row in expected])
    selection = Selection(queue_ids=frozenset({1}))
    found = rows(chosen(array(log), BASE, at[::-1], COLUMNS, selection, broker_name="broker-a"))
    assert found == [row for row in reversed(expected) if row["queueId"] == 1]


@pytest.mark.parametrize("at", [-1, 1, 10**9])
def test_a_position_where_no_record_stands_is_refused(at: int) -> None:
    log = array(segment([message(0), message(1)]))
    with pytest.raises(DamagedRecord, match=f"offset {BASE + at} "):
        decode(log, BASE, np.array([at]), ["topic"])


def test_a_time_beyond_what_microseconds_hold_is_the_last_there_is() -> None:
    log = segment([message(0, born_timestamp=2**63 - 1), message(1, born_timestamp=-(2**63))])
    found = [row["bornTimestamp"] for row in read(log)]
    assert found == [(2**63 - 1) // 1000 * 1000, -((2**63 - 1) // 1000 * 1000)]


def test_no_broker_name_is_empty() -> None:
    log = array(segment([message(0)]))
    assert decode(log, BASE, np.array([0]), ["brokerName"]).to_pydict() == {"brokerName": [""]}


@pytest.mark.parametrize(
    ("name", "wanted"),
    [("Topic", "topic"), ("queue_id", "queueId"), ("bodyCrc", "bodyCRC"), ("storetime", "storeTimestamp")],
)
def test_an_unknown_column_is_refused_with_the_nearest(name: str, wanted: str) -> None:
    assert nearest(name) == wanted
    with pytest.raises(UnknownColumn, match=f"the nearest is '{wanted}'"):
        decode(array(b""), BASE, np.empty(0, np.int64), ["topic", name])


def test_no_records_are_an_empty_batch() -> None:
    batch = decode(array(b""), BASE, np.empty(0, np.int64), COLUMNS)
    assert batch.schema.equals(SCHEMA)
    assert batch.num_rows == 0


def test_equal_names_with_the_same_first_and_last_bytes_are_told_apart() -> None:
    one, other = "customer-first-name-of-it", "customer-other-name-of-it"
    log = segment([message(0, properties=f"{one}\x01a\x02{other}\x01b\x02{one}\x01c\x02".encode())])
    assert read(log)[0]["properties"] == {one: "c", other: "b"}


def test_many_properties_of_one_record() -> None:
    pairs = [(f"name-{number % 50}", f"value-{number}") for number in range(100)]
    log = segment([message(0, properties="".join(f"{name}\x01{value}\x02" for name, value in pairs).encode())])
    assert read(log) == rows_of(log, BASE)
    assert read(log)[0]["properties"] == dict(pairs)


def test_delayed_messages_have_their_delivery_time_as_tags_code() -> None:
    levels = [b"1", b"3", b"99", b"0", b"x", b"", b"007", b"99999999999999999999", b"2147483648"]
    records = [
        message(number, topic=b"SCHEDULE_TOPIC_XXXX", properties=b"TAGS\x01t\x02DELAY\x01%s\x02" % level)
        for number, level in enumerate(levels)
    ]
    log = segment([*records, message(9, properties=b"TAGS\x01t\x02DELAY\x011\x02")])
    stored = 1_700_000_000_100
    delays = {0: 1_000, 1: 60_000, 2: 60_000, 6: 60_000, 8: 60_000}
    expected = [stored + row + delays[row] if row in delays else ord("t") for row in range(10)]
    assert [row["tagsCode"] for row in read(log)] == expected
    assert [row["tagsCode"] for row in read(log, delays_ms=())] == [ord("t")] * 10
    assert pa.types.is_int64(SCHEMA.field("tagsCode").type)
