"""The records of a transaction, byte by byte where RocketMQ reads them."""

from dataclasses import replace

import pytest

from towline.errors import MalformedRecord
from towline.format.record import property_crc
from towline.format.record.properties import decode as decode_properties
from towline.format.record.properties import encode as encode_properties
from towline.format.record.record import COMPRESSED, TRANSACTION_COMMIT, Host, Record, decode
from towline.format.record.transactions import (
    Half,
    Op,
    Outcome,
    as_sent,
    checked_again,
    committed,
    op_record,
    put_aside,
    read_half,
    read_op,
)

BROKER = Host(bytes(4), 0)
PROPERTIES = encode_properties(
    [("TRAN_MSG", "true"), ("REAL_TOPIC", "orders"), ("REAL_QID", "3"), ("PGROUP", "g"), ("UNIQ_KEY", "K"), ("a", "b")]
)
HALF = Record(
    topic=b"RMQ_SYS_TRANS_HALF_TOPIC",
    body=b"body",
    properties=PROPERTIES,
    flag=7,
    queue_offset=5,
    physical_offset=4711,
    sys_flag=COMPRESSED,
    born_timestamp=1,
    born_host=Host(b"\x0a\0\0\x01", 1),
    store_timestamp=2,
    store_host=Host(b"\x0a\0\0\x02", 2),
    reconsume_times=0,
)


def test_a_half_is_read() -> None:
    assert read_half(HALF) == Half(5, 5, 4711, "g", "K", "orders", 3, 2, 0, -1)


@pytest.mark.parametrize(("text", "expected"), [("7", 7000), ("-1", -1), ("soon", -1), ("0", 0)])
def test_immunity_is_seconds(text: str, expected: int) -> None:
    more = encode_properties([("CHECK_IMMUNITY_TIME_IN_SECONDS", text)])
    assert read_half(replace(HALF, properties=PROPERTIES + more)).immunity_ms == expected


def test_the_committed_message_names_its_half_and_keeps_its_properties() -> None:
    found = decode(committed(HALF, BROKER))
    assert (found.topic, found.queue_id) == (b"orders", 3)
    assert found.sys_flag == COMPRESSED | TRANSACTION_COMMIT
    assert found.prepared_transaction_offset == 4711
    assert found.properties == PROPERTIES
    assert (found.body, found.flag, found.born_timestamp, found.born_host) == (b"body", 7, 1, HALF.born_host)
    assert (found.queue_offset, found.physical_offset, found.store_timestamp) == (0, 0, 0)


def test_a_checked_half_says_how_often_and_where_it_stood_first() -> None:
    once = decode(checked_again(HALF, BROKER))
    again = decode(checked_again(replace(once, queue_offset=9, physical_offset=9000, store_timestamp=4), BROKER))
    assert again.topic == HALF.topic
    assert decode_properties(again.properties) == decode_properties(PROPERTIES) | {
        "TRANSACTION_CHECK_TIMES": "2",
        "TRAN_PREPARED_QUEUE_OFFSET": "5",
    }
    assert again.properties.startswith(PROPERTIES)


def test_a_property_crc_stays_the_last_property() -> None:
    half = replace(HALF, properties=property_crc.appended(PROPERTIES))
    again = decode(checked_again(half, BROKER), check_crc=False)
    assert property_crc.ends_with(again.properties)
    assert again.properties.count(property_crc.HEAD) == 1
    assert decode(as_sent(half)).properties == PROPERTIES
    op = op_record(5, 5, Outcome.COMMITTED, BROKER, 1, append_property_crc=True)
    assert property_crc.ends_with(decode(op, check_crc=False).properties)


def test_properties_that_grow_too_long_are_refused() -> None:
    half = replace(HALF, properties=PROPERTIES + encode_properties([("x", "y" * (32760 - len(PROPERTIES)))]))
    with pytest.raises(MalformedRecord):
        checked_again(half, BROKER)
    assert decode(put_aside(half, BROKER)).properties == half.properties


def test_what_was_checked_too_often_keeps_its_content() -> None:
    found = decode(put_aside(HALF, BROKER))
    assert (found.topic, found.queue_id, found.sys_flag) == (b"TRANS_CHECK_MAX_TIME_TOPIC", 0, COMPRESSED)
    assert found.properties == PROPERTIES


def test_what_a_producer_is_asked_about_has_its_real_topic_and_the_offsets_of_the_half() -> None:
    found = decode(as_sent(HALF))
    assert (found.topic, found.queue_id) == (b"orders", 3)
    assert (found.queue_offset, found.physical_offset) == (5, 4711)


def test_an_op_record_is_read_by_rocketmq_4_and_5() -> None:
    found = decode(op_record(9, 5, Outcome.ROLLED_BACK, BROKER, 17, append_property_crc=False))
    assert (found.topic, found.queue_id, found.body, found.born_timestamp) == (
        b"RMQ_SYS_TRANS_OP_HALF_TOPIC",
        0,
        b"9",
        17,
    )
    assert decode_properties(found.properties)["TAGS"] == "d"
    assert read_op(found) == Op((9,), 5, Outcome.ROLLED_BACK)


@pytest.mark.parametrize(
    ("body", "offsets"), [(b"7", (7,)), (b"7,8,12,", (7, 8, 12)), (b"", ()), (b"x,7", (7,)), (b"\xff", ())]
)
def test_op_records_of_other_brokers(body: bytes, offsets: tuple[int, ...]) -> None:
    record = Record(topic=b"o", body=body, properties=encode_properties([("TAGS", "d"), ("TOWLINE_OUTCOME", "?")]))
    assert read_op(record) == Op(offsets, -1, Outcome.ENDED)
