"""A record becomes the request that makes a broker store it: what a broker makes of the request is the record again."""

import struct

import pytest

from towline.errors import MalformedRecord
from towline.format.record import properties as names
from towline.format.record.forms import StoredForm, cancelling, delayed, half, timed
from towline.format.record.record import COMPRESSED, Host, Record, encode
from towline.format.remoting.batch import members_of
from towline.format.remoting.headers import SendMessage, read_header, write_header
from towline.format.remoting.sent import Recall, is_timed, of_form, send_body, send_header, sendables
from towline.format.remoting.stored import BrokerFacts, stored_message

BROKER = BrokerFacts("c", 18, 3 * 24 * 3600)
NOW_MS = 1_000_000
OWN = {names.UNIQ_KEY: "K", names.TAGS: "red"}


def record_of(form: StoredForm, **more: object) -> bytes:
    pairs = {**OWN, **dict(form.pairs)}
    record = Record(
        topic=form.topic.encode(),
        queue_id=form.queue_id,
        body=b"body",
        flag=7,
        born_host=Host(bytes([127, 0, 0, 1]), 0),
        born_timestamp=NOW_MS,
        properties=names.encode(pairs.items()),
        **more,  # type: ignore[arg-type]
    )
    return encode(record)


PLAIN = StoredForm("T", 3, ())


@pytest.mark.parametrize(
    "form", [PLAIN, delayed("T", 3, 5), timed("T", 3, NOW_MS + 5_000), half("T", 3, "pg")], ids=lambda form: form.topic
)
def test_a_broker_makes_the_same_record_of_it(form: StoredForm):
    (sendable,) = sendables(record_of(form), 1)
    wanted = of_form(sendable, "b")
    assert not isinstance(wanted, Recall)
    fields = write_header(send_header([wanted], "pg", "b"), letters=True)
    header = read_header(SendMessage, fields, letters=True)
    assert (header.topic, header.queue_id, header.flag, header.batch) == ("T", 3, 7, False)
    stored = stored_message(header, header.queue_id, NOW_MS, BROKER)
    assert (stored.topic, stored.queue_id) == (form.topic, form.queue_id)
    found = names.decode(stored.properties)
    for name in (names.CLUSTER, names.MSG_REGION, names.TRACE_ON):
        del found[name]
    assert found == {**OWN, **dict(form.pairs)}
    assert send_body([wanted]) == b"body"
    assert is_timed(wanted) == (form.topic == "rmq_sys_wheel_timer")


def test_what_cancels_a_message_names_its_handle():
    (sendable,) = sendables(record_of(cancelling("T", 0, 12_345, "KEY")), 1)
    recall = of_form(sendable, "b")
    assert isinstance(recall, Recall)
    assert (recall.handle.topic, recall.handle.broker) == ("T", "b")
    assert (recall.handle.deliver_at, recall.handle.unique_key) == (12_345, "KEY")


def test_records_of_one_queue_become_a_batch():
    records = sendables(record_of(PLAIN) * 3, 3)
    header = send_header(records, "pg", "b")
    assert header.batch
    assert header.properties == ""
    members = list(members_of(send_body(records)))
    assert [(each.flag, each.body, names.decode(each.properties)) for each in members] == [(7, b"body", OWN)] * 3


def test_the_flags_of_a_body_are_kept():
    (sendable,) = sendables(record_of(PLAIN, sys_flag=COMPRESSED), 1)
    assert send_header([sendable], "pg", "b").sys_flag == COMPRESSED


@pytest.mark.parametrize("size", [0, 1, 87, 95, -1])
def test_bytes_that_are_no_records_are_refused(size: int):
    with pytest.raises((MalformedRecord, struct.error)):
        sendables(record_of(PLAIN)[:size], 1)
