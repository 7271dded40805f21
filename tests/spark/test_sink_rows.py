"""Rows as parts of messages: no JVM, no node."""

from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from towline.client.link.keys import KeySource
from towline.client.send.encoding import TopicEncoder
from towline.client.send.forms import DelayLimits
from towline.format.record import property_crc
from towline.format.record.compression import Compressor, decompress
from towline.format.record.properties import decode
from towline.format.record.record import Host
from towline.format.record.record import decode as decode_record
from towline.spark.delays import parts_of
from towline.spark.errors import UnwritableColumn, UnwritableRow, UnwritableType
from towline.spark.rows import REFUSED, by_topic, check_schema, encoded_properties, numbers_of, prepared, unique_keys

STEM = "0123456789ABCDEF01234567"
HOST = Host(bytes([127, 0, 0, 1]), 0)
MAP = pa.map_(pa.string(), pa.string())
TEXTS = st.text(st.characters(exclude_characters="\x00\x01\x02", exclude_categories=("Cs",)), min_size=1, max_size=8)
PAIRS = st.dictionaries(TEXTS, TEXTS, max_size=4)


def frame(**columns: object) -> pa.RecordBatch:
    return prepared(pa.RecordBatch.from_pydict(columns))


@given(st.lists(st.tuples(st.none() | PAIRS, st.none() | TEXTS, st.none() | TEXTS), min_size=1, max_size=12), st.data())
def test_properties_are_read_as_the_columns_say(
    rows: list[tuple[dict[str, str] | None, str | None, str | None]], data: st.DataObject
) -> None:
    skip = data.draw(st.integers(0, len(rows) - 1))
    batch = frame(
        body=[b"x"] * len(rows),
        properties=pa.array([None if own is None else list(own.items()) for own, _, _ in rows], MAP),
        tags=[tags for _, tags, _ in rows],
        keys=[keys for _, _, keys in rows],
    ).slice(skip)  # a part of a larger batch, as Arrow hands them on
    found = encoded_properties(batch, unique_keys(STEM, skip, len(batch)))
    for number, (encoded, (own, tags, keys)) in enumerate(zip(found, rows[skip:], strict=True), skip):
        written = (
            {"UNIQ_KEY": f"{STEM}{number:08X}"} | ({"TAGS": tags} if tags else {}) | ({"KEYS": keys} if keys else {})
        )
        assert decode(encoded) == (own or {}) | written


def test_what_others_write_is_left_out_and_stands_in_for_missing_columns() -> None:
    own = {
        "TAGS": "red",
        "KEYS": "k1 k2",
        "UNIQ_KEY": "of another",
        "CLUSTER": "c",
        "__CRC32#": "1",
        "__PSEQ__": "1",
        "__SHARDINGKEY": "s",
        "p": "v",
    }
    batch = frame(body=[b"", b""], tags=[None, "blue"], properties=pa.array([list(own.items())] * 2, MAP))
    first, second = map(decode, encoded_properties(batch, unique_keys(STEM, 0, 2)))
    assert first == {"TAGS": "red", "KEYS": "k1 k2", "__SHARDINGKEY": "s", "p": "v", "UNIQ_KEY": f"{STEM}00000000"}
    assert second == first | {"TAGS": "blue", "UNIQ_KEY": f"{STEM}00000001"}


def test_a_sharding_key_stands_in_the_column_or_in_the_properties() -> None:
    own = pa.array([[("__SHARDINGKEY", "s")]] * 2, MAP)
    batch = frame(body=[b"", b""], shardingKey=["k", None], properties=own)
    first, second = map(decode, encoded_properties(batch, unique_keys(STEM, 0, 2)))
    assert (first["__SHARDINGKEY"], second.get("__SHARDINGKEY")) == ("k", None)


@pytest.mark.parametrize("name", REFUSED)
def test_what_only_a_broker_writes_is_refused_by_name_or_left_out(name: str) -> None:
    batch = frame(body=[b"", b""], properties=pa.array([[("p", "v"), (name, None)], [(name, "1")]], MAP))
    with pytest.raises(UnwritableRow, match=f"row 1: only a broker writes the property {name}: .* dropReserved"):
        encoded_properties(batch, unique_keys(STEM, 0, 2))
    first, second = map(decode, encoded_properties(batch, unique_keys(STEM, 0, 2), drop_reserved=True))
    assert (first.keys(), second.keys()) == ({"p", "UNIQ_KEY"}, {"UNIQ_KEY"})


def test_what_asks_for_a_delay_is_named() -> None:
    for name, column in {
        "DELAY": "delayLevel",
        "TIMER_DELIVER_MS": "deliverAt",
        "TIMER_DELAY_SEC": "deliverAt",
    }.items():
        with pytest.raises(UnwritableRow, match=f"the column {column} asks for it"):
            encoded_properties(frame(body=[b""], properties=pa.array([[(name, "1")]], MAP)), unique_keys(STEM, 0, 1))


NOON_MS = 1_764_244_800_000
LIMITS = DelayLimits(levels=4, timer_max_sec=60)


def test_rows_stand_where_their_form_is_kept_until_they_are_due() -> None:
    at = datetime.fromtimestamp(NOON_MS / 1000, UTC) + timedelta(microseconds=1_999)
    batch = frame(body=[b""] * 5, delayLevel=[None, 2, 0, 9, None], deliverAt=[None, None, None, None, at])
    plain, delayed, timed = parts_of(batch, "T", np.array([3, 1, 2, 1, 7]), LIMITS, NOON_MS)
    assert (plain.topic, plain.rows.tolist(), plain.queue_ids.tolist(), plain.pairs) == ("T", [0, 2], [3, 2], None)
    assert (delayed.topic, delayed.rows.tolist(), delayed.queue_ids.tolist()) == ("SCHEDULE_TOPIC_XXXX", [1, 3], [1, 3])
    assert [decode(pairs) for pairs in delayed.pairs or ()] == [
        {"REAL_TOPIC": "T", "REAL_QID": "1", "DELAY": "2"},
        {"REAL_TOPIC": "T", "REAL_QID": "1", "DELAY": "4"},
    ]
    assert (timed.topic, timed.rows.tolist(), timed.queue_ids.tolist()) == ("rmq_sys_wheel_timer", [4], [0])
    times = dict.fromkeys(("TIMER_DELIVER_MS", "TIMER_OUT_MS"), str(NOON_MS + 1))
    assert [decode(pairs) for pairs in timed.pairs or ()] == [{"REAL_TOPIC": "T", "REAL_QID": "7"} | times]


@pytest.mark.parametrize(
    ("columns", "why"),
    [
        ({"delayLevel": [0, -1]}, "delayLevel is negative"),
        ({"deliverAt": [None, datetime(1969, 12, 31, tzinfo=UTC)]}, "deliverAt is not after 1970"),
        ({"deliverAt": [None, datetime.fromtimestamp(NOON_MS / 1000 + 61, UTC)]}, "more than timer_max_delay_sec"),
        ({"delayLevel": [1, 1], "deliverAt": [None, datetime(2025, 1, 1, tzinfo=UTC)]}, "one of them says when"),
    ],
)
def test_a_delay_that_cannot_be_is_refused(columns: dict[str, object], why: str) -> None:
    with pytest.raises(UnwritableRow, match=f"row 1: .*{why}"):
        parts_of(frame(body=[b"", b""], **columns), "T", np.zeros(2, np.int64), LIMITS, NOON_MS)


@pytest.mark.parametrize(
    ("columns", "row", "why"),
    [
        ({"tags": ["a", "b\x01"]}, 1, "the column tags"),
        ({"keys": ["a\x02", "b"]}, 0, "the column keys"),
        ({"properties": pa.array([[], [("n\x00", "v")]], MAP)}, 1, "the name of a property"),
        ({"properties": pa.array([[("n", "v")], [("m", "v"), ("n", "")]], MAP)}, 1, "the value of a property"),
    ],
)
def test_what_a_reader_would_not_give_back_is_refused(columns: dict[str, object], row: int, why: str) -> None:
    batch = frame(body=[b"", b""], **columns)
    with pytest.raises(UnwritableRow, match=f"row {row}: {why}"):
        encoded_properties(batch, unique_keys(STEM, 0, 2))


def test_numbers_of_more_than_32_bits_are_refused() -> None:
    assert numbers_of(frame(body=[b""] * 3, flag=[1, None, -(2**31)]), "flag", 7).tolist() == [1, 7, -(2**31)]
    with pytest.raises(UnwritableRow, match="row 1: flag is 2147483648"):
        numbers_of(frame(body=[b""] * 2, flag=[0, 2**31]), "flag", 0)


def test_columns_of_other_types_are_refused_and_text_is_a_body() -> None:
    assert frame(body=["ü"]).column(0).to_pylist() == ["ü".encode()]
    for name, values in {
        "tags": [1],
        "flag": ["1"],
        "queueId": [1.5],
        "properties": ["p"],
        "body": [1],
        "deliverAt": [1],
    }.items():
        columns = {"body": [b""]} | {name: values}
        with pytest.raises(UnwritableType, match=f"the column {name} is"):
            frame(**columns)


def test_unknown_missing_and_unreadable_columns_are_refused_when_a_write_is_planned() -> None:
    check_schema(["body", "topic"], topic=False)
    check_schema(["body"], topic=True)
    for names, topic in ((["body", "offset"], True), (["tags"], True), (["body"], False), (["Body"], True)):
        with pytest.raises(UnwritableColumn):
            check_schema(names, topic=topic)


def test_the_option_is_the_topic_of_rows_that_name_none() -> None:
    batch = frame(body=[b""] * 4, topic=["A", None, "B", "A"])
    assert {topic: rows.tolist() for topic, rows in by_topic(batch, "T")} == {"A": [0, 3], "T": [1], "B": [2]}
    with pytest.raises(UnwritableRow, match="row 1: neither"):
        by_topic(batch, "")


@pytest.mark.parametrize("crc", [False, True])
@pytest.mark.parametrize("ipv6", [False, True])
def test_rows_are_encoded_as_single_messages_are(crc: bool, ipv6: bool) -> None:
    encoder = TopicEncoder(
        "Ü",
        HOST,
        KeySource(HOST.address),
        Compressor("zlib", 100),
        store_host_ipv6=ipv6,
        body_size_max=10_000,
        append_property_crc=crc,
    )
    batch = frame(body=[b"a", None, b"c" * 2_000], queueId=[1, 0, 2], flag=[-5, 0, 9], tags=["t", None, "u"])
    properties = encoded_properties(batch, unique_keys(STEM, 7, 3))
    queues, flags = numbers_of(batch, "queueId", 0), numbers_of(batch, "flag", 0)
    records = encoder.encode_rows([b"a", b"", b"c" * 2_000], properties, queues, flags)
    for row, (record, body) in enumerate(zip(records, (b"a", b"", b"c" * 2_000), strict=True)):
        found = decode_record(property_crc.filled(record) if crc else record, check_crc=True)
        assert (found.queue_id, found.flag, found.topic.decode()) == (queues[row], flags[row], "Ü")
        assert decompress(found.body, found.sys_flag) == body
        assert len(found.body) <= 100
        assert found.properties.startswith(properties[row])
        assert decode(found.properties)["UNIQ_KEY"] == f"{STEM}{7 + row:08X}"
        assert len(record) == int.from_bytes(record[:4], "big")
