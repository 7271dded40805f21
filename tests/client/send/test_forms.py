"""Messages in a form: which one a message asks for, and what of it cannot be."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from towline.client.errors import IllegalDelay, IllegalHandle
from towline.client.link.keys import KeySource
from towline.client.message import Message
from towline.client.send import forms
from towline.client.send.encoding import TopicEncoder
from towline.client.send.forms import (
    DelayLimits,
    Handle,
    handle_of,
    stored_form,
)
from towline.errors import IllegalProperty
from towline.format.record import property_crc
from towline.format.record.compression import Compressor
from towline.format.record.forms import (
    HALF_TOPIC,
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
    StoredForm,
    cancelling,
    delayed,
    half,
    timed,
)
from towline.format.record.properties import decode, encode
from towline.format.record.record import TRANSACTION_COMMIT, Host, Record
from towline.format.record.record import decode as decode_record
from towline.format.record.retries import sent_back

NOW = 1_700_000_000_000
BOUNDS = DelayLimits(levels=3, timer_max_sec=60)
HOST = Host(bytes([127, 0, 0, 1]), 0)


def form_of(**when: object) -> StoredForm | None:
    return stored_form(Message("orders", b"", **when), 2, BOUNDS, NOW)  # type: ignore[arg-type]


def test_a_message_without_a_delay_has_no_form() -> None:
    assert form_of() is None
    assert form_of(delay_level=0) is None


def test_a_level_is_a_queue_and_the_highest_stands_for_all_above() -> None:
    for level, taken in ((1, 1), (3, 3), (4, 3), (10**9, 3)):
        form = form_of(delay_level=level)
        pairs = (("REAL_TOPIC", "orders"), ("REAL_QID", "2"), ("DELAY", str(taken)))
        assert form == StoredForm(SCHEDULE_TOPIC, taken - 1, pairs)


def test_a_time_is_taken_as_it_is() -> None:
    form = form_of(deliver_at=NOW + 60_000)
    assert form is not None
    assert (form.topic, form.queue_id) == (TIMER_TOPIC, 0)
    assert dict(form.pairs)["TIMER_DELIVER_MS"] == dict(form.pairs)["TIMER_OUT_MS"] == str(NOW + 60_000)
    assert form_of(deliver_at=1) is not None, "what is over is delivered at once"


def test_a_datetime_is_the_same_time_and_has_a_handle() -> None:
    at = datetime.fromtimestamp((NOW + 60_000) / 1000, UTC)
    assert form_of(deliver_at=at) == form_of(deliver_at=NOW + 60_000)
    assert handle_of(Message("t", b"", deliver_at=at), 1, "K") == f"{NOW + 60_000}-K-1-t"


@pytest.mark.parametrize(
    ("when", "name"),
    [
        ({"delay_level": -1}, "delay_level"),
        ({"delay_level": 1.5}, "delay_level"),
        ({"delay_level": "3"}, "delay_level"),
        ({"delay_level": True}, "delay_level"),
        ({"deliver_at": 0}, "deliver_at"),
        ({"deliver_at": -5}, "deliver_at"),
        ({"deliver_at": NOW / 1000}, "deliver_at"),
        ({"deliver_at": NOW + 60_001}, "deliver_at"),
        ({"delay_level": 1, "deliver_at": NOW}, "delay_level and deliver_at"),
    ],
)
def test_what_cannot_be_is_refused_by_name(when: dict[str, object], name: str) -> None:
    with pytest.raises(IllegalDelay) as caught:
        form_of(**when)
    assert caught.value.name == name
    assert name in str(caught.value)


def test_the_nodes_bounds_are_those_of_its_welcome() -> None:
    assert DelayLimits.of({"delay_levels": 3, "timer_max_delay_sec": 60}) == BOUNDS
    assert DelayLimits.of({}) == DelayLimits(18, 259_200)


def test_a_handle_says_all_that_cancelling_takes() -> None:
    message = Message("a-topic-with-dashes", b"", deliver_at=NOW)
    text = forms.handle_of(message, 7, "K" * 32)
    handle = Handle.read(text)
    assert handle == Handle(NOW, "K" * 32, 7, "a-topic-with-dashes")
    form = cancelling(handle.topic, handle.queue_id, handle.deliver_at, handle.unique_key)
    assert (form.topic, form.queue_id, dict(form.pairs)["TIMER_DEL_UNIQKEY"]) == (TIMER_TOPIC, 1, "K" * 32)
    assert forms.handle_of(Message("t", b"", delay_level=2), 0, "K") == ""


@pytest.mark.parametrize("text", ["", "x", "1-2-3", "a-key-0-topic", "1-key-q-topic", "1--0-topic", "1-key-0-"])
def test_what_is_no_handle_is_refused(text: str) -> None:
    with pytest.raises(IllegalHandle):
        Handle.read(text)


def encoder(topic: str, *, crc: bool = False) -> TopicEncoder:
    return TopicEncoder(
        topic,
        HOST,
        KeySource(HOST.address),
        Compressor(None, 4096),
        store_host_ipv6=False,
        body_size_max=1000,
        append_property_crc=crc,
    )


@pytest.mark.parametrize(
    "message",
    [
        Message("orders", b"body"),
        Message("orders", b"body", tags="a", keys=["k"], sharding_key="s", properties={"own": "1"}),
    ],
)
def test_a_forms_pairs_stand_behind_the_messages_own(message: Message) -> None:
    form = half("orders", 1, "sellers")
    plain, _ = encoder("orders").encode(message, 1)
    record, key = encoder(HALF_TOPIC).encode(message, form.queue_id, form.pairs)
    found = decode(decode_record(record, check_crc=True).properties)
    own = decode(decode_record(plain, check_crc=True).properties)
    assert found == {**own, "UNIQ_KEY": key, **dict(form.pairs)}


def test_names_of_a_form_cannot_be_set_otherwise() -> None:
    for name in ("DELAY", "TIMER_DELIVER_MS", "TIMER_OUT_MS", "REAL_TOPIC", "TRAN_MSG"):
        with pytest.raises(IllegalProperty) as caught:
            encoder("orders").encode(Message("orders", b"", properties={name: "1"}), 0)
        assert name in str(caught.value)


@pytest.mark.parametrize("crc", [False, True])
def test_a_message_sent_back_keeps_what_is_its_own(crc: bool) -> None:
    left = dict(delayed("orders", 0, 2).pairs) | dict(timed("orders", 0, NOW).pairs) | {"TRAN_MSG": "true"}
    properties = encode({"TAGS": "a", "UNIQ_KEY": "K", **left}.items())
    record = Record(
        topic=b"%RETRY%workers",
        body=b"body",
        queue_id=0,
        queue_offset=9,
        physical_offset=99,
        store_timestamp=NOW,
        properties=property_crc.appended(properties) if crc else properties,
        sys_flag=TRANSACTION_COMMIT | 1,
        born_timestamp=NOW - 5,
        born_host=HOST,
        store_host=HOST,
        reconsume_times=1,
        flag=3,
        prepared_transaction_offset=4,
    )
    form = delayed("%RETRY%workers", 0, 5)
    made = sent_back(record, form, {"RETRY_TOPIC": "orders"}, 2, append_property_crc=crc)
    found = decode_record(made, check_crc=False)
    wanted = {"TAGS": "a", "UNIQ_KEY": "K", "RETRY_TOPIC": "orders", **dict(form.pairs)}
    assert {name: value for name, value in decode(found.properties).items() if name != "__CRC32#"} == wanted
    assert found.properties.endswith(b"\x02")
    assert ("__CRC32#" in decode(found.properties)) is crc
    assert found == replace(
        record,
        topic=SCHEDULE_TOPIC.encode(),
        queue_id=4,
        properties=found.properties,
        sys_flag=1,
        queue_offset=0,
        physical_offset=0,
        store_timestamp=0,
        reconsume_times=2,
        prepared_transaction_offset=0,
    )
    dead = decode_record(
        sent_back(record, StoredForm("%DLQ%workers", 0, ()), {}, 3, append_property_crc=crc), check_crc=False
    )
    assert not {"DELAY", "REAL_TOPIC", "TRAN_MSG", "TIMER_OUT_MS"} & decode(dead.properties).keys()
