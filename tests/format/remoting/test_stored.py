"""What a broker makes of a message that a producer sent."""

import pytest

from towline.format.record.properties import decode, encode
from towline.format.remoting.codes import RequestRefused
from towline.format.remoting.headers import SendMessage
from towline.format.remoting.stored import BrokerFacts, RecallHandle, StoredMessage, recalling, stored_message

NOW = 1_700_000_000_000
BROKER = BrokerFacts(cluster="c1", levels=18, timer_max_sec=60)
OURS = {"CLUSTER": "c1", "MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}
KEY = "K" * 32


def sent(properties: dict[str, str], **more: object) -> SendMessage:
    text = encode(properties.items()).decode()
    given = {"producer_group": "pg", "topic": "T", "queue_id": 1, "sys_flag": 0, "born_timestamp": NOW, "flag": 0}
    return SendMessage(**given, properties=text, **more)  # type: ignore[arg-type]


def stored(properties: dict[str, str], **more: object) -> tuple[StoredMessage, dict[str, str]]:
    header = sent({"UNIQ_KEY": KEY, **properties})
    found = stored_message(SendMessage(**{**_fields(header), **more}), 1, NOW, BROKER)
    return found, decode(found.properties)


def _fields(header: SendMessage) -> dict[str, object]:
    return {name: getattr(header, name) for name in SendMessage.__dataclass_fields__}


def test_a_single_message_gets_what_a_broker_adds():
    found, pairs = stored({"TAGS": "A", "KEYS": "k"})
    assert (found.topic, found.queue_id, found.unique_key, found.deliver_at) == ("T", 1, KEY, 0)
    assert pairs == {"UNIQ_KEY": KEY, "TAGS": "A", "KEYS": "k", **OURS}


def test_a_message_without_a_key_gets_one_of_its_own():
    first, second = (stored_message(sent({}), 0, NOW, BROKER) for _ in range(2))
    assert first.unique_key != second.unique_key
    assert decode(first.properties)["UNIQ_KEY"] == first.unique_key
    assert len(first.unique_key) == 32


@pytest.mark.parametrize(
    "name",
    ["CLUSTER", "MSG_REGION", "TRACE_ON", "MIN_OFFSET", "MAX_OFFSET", "POP_CK", "INNER_NUM", "REAL_TOPIC", "REAL_QID",
     "TIMER_OUT_MS", "TIMER_ROLL_TIMES", "__CRC32#", "__PSEQ__", "__RMQ.TRANSIENT.x"],
)  # fmt: skip
def test_names_that_only_a_broker_writes_are_not_taken_from_a_client(name):
    header = SendMessage(**{**_fields(sent({})), "properties": f"UNIQ_KEY\x01{KEY}\x02{name}\x01other"})
    pairs = decode(stored_message(header, 0, NOW, BROKER).properties)
    assert pairs == {"UNIQ_KEY": KEY, **OURS}


def test_a_delay_level_makes_a_delayed_message():
    found, pairs = stored({"DELAY": "3", "TAGS": "A"})
    assert (found.topic, found.queue_id) == ("SCHEDULE_TOPIC_XXXX", 2)
    assert pairs == {"UNIQ_KEY": KEY, "TAGS": "A", **OURS, "REAL_TOPIC": "T", "REAL_QID": "1", "DELAY": "3"}
    assert stored({"DELAY": "99"})[0].queue_id == 17, "the highest there is"


@pytest.mark.parametrize("level", ["0", "-1", "x", "1.5"])
def test_a_level_that_is_none_delays_nothing(level):
    found, pairs = stored({"DELAY": level})
    assert found.topic == "T"
    assert "DELAY" not in pairs


@pytest.mark.parametrize(
    ("name", "text", "at"),
    [
        ("TIMER_DELAY_SEC", "5", NOW + 5_000),
        ("TIMER_DELAY_MS", "5", NOW + 5),
        ("TIMER_DELIVER_MS", str(NOW + 60_000), NOW + 60_000),
        ("TIMER_DELIVER_MS", str(NOW - 1), NOW - 1),
    ],
)
def test_a_time_makes_a_timed_message(name, text, at):
    found, pairs = stored({name: text})
    assert (found.topic, found.queue_id, found.deliver_at) == ("rmq_sys_wheel_timer", 0, at)
    assert (pairs["TIMER_DELIVER_MS"], pairs["TIMER_OUT_MS"], pairs["REAL_QID"]) == (str(at), str(at), "1")
    assert {"TIMER_DELAY_SEC", "TIMER_DELAY_MS"}.isdisjoint(pairs)


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [("TIMER_DELAY_SEC", "61", "max delay 60s"), ("TIMER_DELIVER_MS", "soon", "not a number"),
     ("TIMER_DELAY_MS", "9" * 30, "not a number")],
)  # fmt: skip
def test_a_time_that_is_none_or_too_far_away_is_refused(name, text, why):
    with pytest.raises(RequestRefused, match=why) as refused:
        stored({name: text})
    assert refused.value.code == 13


def test_a_prepared_message_is_a_half_of_its_group():
    found, pairs = stored({"TRAN_MSG": "true", "PGROUP": "billing", "DELAY": "3"})
    assert (found.topic, found.queue_id) == ("RMQ_SYS_TRANS_HALF_TOPIC", 0)
    assert (pairs["PGROUP"], pairs["REAL_TOPIC"], pairs["TRAN_MSG"]) == ("billing", "T", "true")
    assert "DELAY" not in pairs
    assert stored({"TRAN_MSG": "true"})[1]["PGROUP"] == "pg"


@pytest.mark.parametrize(
    ("times", "most", "topic"), [(16, -1, "%RETRY%g"), (17, -1, "%DLQ%g"), (4, 3, "%DLQ%g"), (3, 3, "%RETRY%g")]
)
def test_a_retried_message_is_given_up_after_so_many_times(times, most, topic):
    found, _ = stored({}, topic="%RETRY%g", reconsume_times=times, max_reconsume_times=most)
    assert found.topic == topic
    delayed, pairs = stored({"DELAY": "4"}, topic="%RETRY%g", reconsume_times=times, max_reconsume_times=most)
    assert pairs.get("REAL_TOPIC", delayed.topic) == topic


def test_a_handle_recalls_the_message_of_its_time_and_key():
    handle = RecallHandle("T", "broker-a", NOW, KEY)
    assert RecallHandle.read(str(handle)) == handle
    found = recalling(handle, BROKER)
    pairs = decode(found.properties)
    assert (found.topic, found.queue_id) == ("rmq_sys_wheel_timer", 1)
    assert (pairs["TIMER_DEL_UNIQKEY"], pairs["TIMER_DELIVER_MS"], pairs["REAL_TOPIC"]) == (KEY, str(NOW), "T")


@pytest.mark.parametrize("text", ["", "x", "!!!!", "djEgVCBi", "djIgVCBiIDEgSw==", "djEgVCBiIHggSw==", "/////w=="])
def test_what_is_no_handle_is_refused(text):
    with pytest.raises(RequestRefused, match="invalid"):
        RecallHandle.read(text)
