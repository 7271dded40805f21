"""The fields of requests: by name and by letter, and the refusals that name them."""

import pytest

from towline.errors import MalformedFrame
from towline.format.remoting.codes import ResponseCode, put_status_of, response_of
from towline.format.remoting.headers import LETTERS, MakeTopic, OfTopic, SendMessage, UnregisterClient, read_header
from towline.format.wire.status import PutStatus

LETTERED = {
    "a": "pg", "b": "T", "c": "TBW102", "d": "4", "e": "-1", "f": "0", "g": "1700000000000", "h": "0",
    "i": "UNIQ_KEY\x01A", "j": "0", "k": "false", "l": "16", "m": "true", "n": "broker-a",
}  # fmt: skip
NAMED = {
    "producerGroup": "pg", "topic": "T", "defaultTopic": "TBW102", "defaultTopicQueueNums": "4", "queueId": "-1",
    "sysFlag": "0", "bornTimestamp": "1700000000000", "flag": "0", "properties": "UNIQ_KEY\x01A",
    "reconsumeTimes": "0", "unitMode": "false", "maxReconsumeTimes": "16", "batch": "true", "brokerName": "broker-a",
}  # fmt: skip
SENT = SendMessage(
    producer_group="pg", topic="T", default_topic="TBW102", default_topic_queue_nums=4, queue_id=-1, sys_flag=0,
    born_timestamp=1_700_000_000_000, flag=0, properties="UNIQ_KEY\x01A", max_reconsume_times=16, batch=True,
    broker_name="broker-a",
)  # fmt: skip


def test_a_send_by_letters_and_by_names():
    assert read_header(SendMessage, LETTERED, letters=True) == SENT
    assert read_header(SendMessage, NAMED) == SENT
    assert "".join(LETTERS.values()) == "abcdefghijklmn"


def test_what_may_be_missing_has_a_default():
    few = {letter: LETTERED[letter] for letter in "abefgh"}
    found = read_header(SendMessage, few, letters=True)
    assert (found.properties, found.batch, found.max_reconsume_times) == ("", False, -1)
    assert read_header(UnregisterClient, {"clientID": "c"}) == UnregisterClient(client_id="c")
    assert read_header(OfTopic, {"topic": "T", "acceptStandardJsonOnly": "true"}).topic == "T"


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"b": None}, "b .topic. is missing"),
        ({"e": "1.5"}, "e .queue_id. is '1.5'"),
        ({"e": ""}, "a number is wanted"),
        ({"e": "\u0661"}, "a number is wanted"),
        ({"g": "9223372036854775808"}, "64 bits"),
        ({"i": "x" * 65_536}, "65535 are allowed"),
    ],
)
def test_a_field_that_is_missing_or_of_another_type_is_named(changed, why):
    given = {name: text for name, text in (LETTERED | changed).items() if text is not None}
    with pytest.raises(MalformedFrame, match=why):
        read_header(SendMessage, given, letters=True)


def test_a_topic_to_be_made():
    given = {"topic": "T", "readQueueNums": "8", "writeQueueNums": "8", "perm": "6", "order": "TRUE"}
    assert read_header(MakeTopic, given) == MakeTopic(
        topic="T", read_queue_nums=8, write_queue_nums=8, perm=6, order=True
    )


def test_every_status_of_a_put_has_a_code():
    found = {status: response_of(status) for status in PutStatus}
    assert [status for status, code in found.items() if code in (0, 10, 11, 12)] == [
        status for status in PutStatus if status.stored
    ]
    assert found[PutStatus.UNKNOWN_ERROR] is ResponseCode.SYSTEM_ERROR


@pytest.mark.parametrize("status", [status for status in PutStatus if status.stored])
def test_what_was_stored_is_told_by_a_code_of_its_own_and_read_back_as_it_was(status):
    assert put_status_of(response_of(status)) is status
