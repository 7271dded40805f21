"""What put refuses of a record, by status and rule, in the order of spec 5.1; and that nothing of it stays (H2).

The steps that concern the node (stopped, slave, flags, page cache, segments) are not a record's: a slave has no put
process at all, the others are tested where they are decided.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.processes.nodes import SEGMENT, TestNode, ending
from tests.processes.wire import Request, WireClient
from towline.format.files.topics import SYSTEM_TOPICS, TopicConfig, TopicTable, topics_content
from towline.format.record.forms import FORM_TOPICS, HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC
from towline.format.record.record import INNER_BATCH, TRANSACTION_PREPARED, Record, encode
from towline.format.record.rules import Rule
from towline.format.wire.status import PutStatus
from towline.limits import RECORD_OVERHEAD_MAX
from towline.log.files.config_file import ConfigFile
from towline.runtime.positions import Position

TOPIC = b"orders"
BODY_MAX = 100_000
CLUSTER = "cluster-a"
UNIQUE = b"UNIQ_KEY\x01%032d\x02"


@dataclass(frozen=True)
class Draft:
    """One record to be sent, which may be anything."""

    topic: bytes = TOPIC
    queue_id: int = 0
    body: bytes = b"body"
    sys_flag: int = 0
    properties: bytes = UNIQUE % 1
    without_body: bool = False

    @property
    def bytes(self) -> bytes:
        head = encode(Record(topic=self.topic[:255], queue_id=self.queue_id, body=self.body, sys_flag=self.sys_flag))
        made = bytearray(head[:-2] + len(self.properties).to_bytes(2, "big") + self.properties)
        made[:4] = len(made).to_bytes(4, "big")
        if self.without_body:
            made[84:88] = b"\xff" * 4
        return bytes(made)


def with_pair(name: str, value: str = "1") -> Callable[[Draft], Draft]:
    return lambda draft: replace(draft, properties=f"{name}\x01{value}\x02".encode() + draft.properties)


@dataclass(frozen=True)
class Step:
    name: str
    spoil: Callable[[Draft], Draft]
    status: PutStatus
    rule: Rule = Rule.OK


# In the order in which they are found. Where one draft breaks several, the first is named.
STEPS = [
    Step(
        "4: a topic of 128 bytes", lambda d: replace(d, topic=b"t" * 128), PutStatus.MESSAGE_ILLEGAL, Rule.TOPIC_LENGTH
    ),
    Step("the queue", lambda d: replace(d, queue_id=9), PutStatus.UNKNOWN_QUEUE),
    Step("7: inner batch", lambda d: replace(d, sys_flag=INNER_BATCH), PutStatus.MESSAGE_ILLEGAL, Rule.SYS_FLAG),
    Step("8: timer", with_pair("TIMER_DELAY_SEC"), PutStatus.WHEEL_TIMER_MSG_ILLEGAL, Rule.TIMER_MISPLACED),
    Step(
        "10: properties of 32768 bytes",
        lambda d: replace(d, properties=d.properties + b"A\x01" + b"x" * (32_768 - len(d.properties) - 3) + b"\x02"),
        PutStatus.PROPERTIES_SIZE_EXCEEDED,
        Rule.PROPERTIES_TOO_LARGE,
    ),
    Step(
        "11: a record above max_message_size + 65536",
        lambda d: replace(d, body=bytes(BODY_MAX + RECORD_OVERHEAD_MAX)),
        PutStatus.MESSAGE_ILLEGAL,
        Rule.RECORD_TOO_LARGE,
    ),
]
OTHERS = [
    Step(
        "4: a %RETRY% topic of 256 bytes",
        lambda d: replace(d, topic=b"%RETRY%" + b"g" * 249),
        PutStatus.MESSAGE_ILLEGAL,
        Rule.TOPIC_LENGTH,
    ),
    Step("4: a topic that nobody made", lambda d: replace(d, topic=b"nobody"), PutStatus.TOPIC_NOT_EXIST),
    Step("4: a topic that is not writable", lambda d: replace(d, topic=b"readonly"), PutStatus.NO_PERMISSION),
    Step("a queue below 0", lambda d: replace(d, queue_id=-1), PutStatus.UNKNOWN_QUEUE),
    Step("5: no body", lambda d: replace(d, without_body=True), PutStatus.MESSAGE_ILLEGAL, Rule.PARTS_DO_NOT_ADD_UP),
    Step("7: INNER_NUM", with_pair("INNER_NUM"), PutStatus.MESSAGE_ILLEGAL, Rule.PROPERTY_OF_THE_BROKER),
    Step(
        "a half message by SYSFLAG",
        lambda d: replace(d, sys_flag=TRANSACTION_PREPARED),
        PutStatus.MESSAGE_ILLEGAL,
        Rule.SYS_FLAG,
    ),
    Step("8: delay", with_pair("DELAY", "3"), PutStatus.MESSAGE_ILLEGAL, Rule.DELAY_MISPLACED),
    Step(
        "a half message by name", with_pair("TRAN_MSG", "true"), PutStatus.MESSAGE_ILLEGAL, Rule.TRANSACTION_MISPLACED
    ),
    Step("REAL_TOPIC", with_pair("REAL_TOPIC", "orders"), PutStatus.MESSAGE_ILLEGAL, Rule.PROPERTY_OF_THE_BROKER),
    Step("REAL_QID", with_pair("REAL_QID", "0"), PutStatus.MESSAGE_ILLEGAL, Rule.PROPERTY_OF_THE_BROKER),
    Step(
        "CLUSTER of others",
        with_pair("CLUSTER", "cluster-b"),
        PutStatus.MESSAGE_ILLEGAL,
        Rule.PROPERTY_OF_ANOTHER_BROKER,
    ),
    Step("POP_CK", with_pair("POP_CK"), PutStatus.MESSAGE_ILLEGAL, Rule.PROPERTY_NEVER_STORED),
    Step("a transient name", with_pair("__RMQ.TRANSIENT.x"), PutStatus.MESSAGE_ILLEGAL, Rule.PROPERTY_NEVER_STORED),
    Step("a property CRC", with_pair("__CRC32#", "1234567890"), PutStatus.MESSAGE_ILLEGAL, Rule.PROPERTY_CRC_MISPLACED),
    Step("a place", with_pair("__PSEQ__"), PutStatus.MESSAGE_ILLEGAL, Rule.SEQUENCE_MISPLACED),
    Step(
        "11: the body alone",
        lambda d: replace(d, body=bytes(BODY_MAX + 1)),
        PutStatus.MESSAGE_ILLEGAL,
        Rule.BODY_TOO_LARGE,
    ),
    Step("11: more than a segment", lambda d: replace(d, body=bytes(SEGMENT - 100)), PutStatus.MESSAGE_ILLEGAL),
    *(
        Step(f"the system topic {name}", lambda d, name=name: replace(d, topic=name.encode()), PutStatus.NO_PERMISSION)
        for name in (*sorted(SYSTEM_TOPICS - FORM_TOPICS), "RMQ_SYS_TRANS_OP_HALF_TOPIC", "rmq_sys_anything")
    ),
    *(
        Step(
            f"a queue that {name} has not",
            lambda d, name=name: replace(d, topic=name.encode(), queue_id=18),
            PutStatus.NO_PERMISSION,
        )
        for name in sorted(FORM_TOPICS)
    ),
]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestNode]:
    """A master whose topics are those of a real broker: system topics with queues that may be written to."""
    root: Path = tmp_path_factory.mktemp("statuses")
    topics = [
        TopicConfig(topic_name=TOPIC.decode()),
        TopicConfig(topic_name="readonly", perm=4),
        TopicConfig(topic_name="SCHEDULE_TOPIC_XXXX", read_queue_nums=18, write_queue_nums=18),
        TopicConfig(topic_name="RMQ_SYS_TRANS_HALF_TOPIC", read_queue_nums=1, write_queue_nums=1),
    ]
    (root / "config").mkdir()
    table = TopicTable(topics={each.topic_name: each for each in topics})
    ConfigFile(root / "config" / "topics.json").save(topics_content(table))
    made = TestNode("master", root, max_message_size=BODY_MAX, broker_cluster_name=CLUSTER, ha_listen_port=0)
    with ending(made):
        made.start("--without", "serve")
        yield made


@pytest.fixture
def client(node: TestNode) -> Iterator[WireClient]:
    made = WireClient(node.endpoint)
    yield made
    made.close()


def put(client: WireClient, *drafts: Draft):
    first = drafts[0]
    return client.put(Request(first.topic, first.queue_id, [draft.bytes for draft in drafts]))


@pytest.mark.parametrize("step", [*STEPS, *OTHERS], ids=lambda step: step.name)
def test_each_is_refused_by_its_status_and_nothing_of_it_stays(node: TestNode, client: WireClient, step: Step) -> None:
    stored = put(client, Draft())
    assert stored.status == PutStatus.PUT_OK
    end = node.at(Position.APPENDED)
    bad = step.spoil(Draft())
    good = replace(bad, properties=UNIQUE % 2, body=b"", sys_flag=0, without_body=False)
    answer = put(client, good, bad, good)
    assert (PutStatus(answer.status), Rule(answer.rule)) == (step.status, step.rule), answer.sentence
    if step.rule not in (Rule.OK, Rule.TOPIC_LENGTH):
        assert answer.record == 1
        assert "record 1" in answer.sentence
        assert step.rule.name in answer.sentence
    assert answer.places == []
    assert node.at(Position.APPENDED) == end
    with (node.store.commitlog / f"{end - end % SEGMENT:020d}").open("rb") as file:
        file.seek(end % SEGMENT)
        assert not any(file.read()), "bytes of a refused request are left"
    again = put(client, Draft())
    assert again.places[0][0] == stored.places[0][0] + 1, "a refused record took a queue offset"


@pytest.mark.parametrize("number", range(len(STEPS)), ids=[step.name for step in STEPS])
def test_of_several_reasons_the_first_is_named(client: WireClient, number: int) -> None:
    draft = Draft()
    for step in reversed(STEPS[number:]):
        draft = step.spoil(draft)
    answer = put(client, draft)
    assert (PutStatus(answer.status), Rule(answer.rule)) == (STEPS[number].status, STEPS[number].rule), answer.sentence


@pytest.mark.parametrize(
    ("topic", "status", "rule"),
    [
        (SCHEDULE_TOPIC, PutStatus.MESSAGE_ILLEGAL, Rule.DELAY_LEVEL),
        (HALF_TOPIC, PutStatus.MESSAGE_ILLEGAL, Rule.HALF_FORM),
        (TIMER_TOPIC, PutStatus.WHEEL_TIMER_MSG_ILLEGAL, Rule.TIMER_FORM),
    ],
)
def test_a_topic_of_the_brokers_own_takes_its_form_alone(
    node: TestNode, client: WireClient, topic: str, status: PutStatus, rule: Rule
) -> None:
    end = node.at(Position.APPENDED)
    answer = put(client, replace(Draft(), topic=topic.encode()))
    assert (PutStatus(answer.status), Rule(answer.rule), answer.record) == (status, rule, 0), answer.sentence
    assert node.at(Position.APPENDED) == end


def test_a_refusal_names_the_property(client: WireClient) -> None:
    answer = put(client, with_pair("REAL_QID", "3")(Draft()))
    assert "PROPERTY_OF_THE_BROKER by REAL_QID:" in answer.sentence


@pytest.mark.parametrize(
    "pair",
    [("CLUSTER", CLUSTER), ("MSG_REGION", "DefaultRegion"), ("TRACE_ON", "true"), ("WAIT", "false"), ("PGROUP", "g")],
    ids=lambda pair: pair[0],
)
def test_what_is_no_forgery_is_stored(client: WireClient, pair: tuple[str, str]) -> None:
    assert put(client, with_pair(*pair)(Draft())).status == PutStatus.PUT_OK


def test_a_record_without_a_unique_key_is_stored(client: WireClient) -> None:
    assert put(client, replace(Draft(), properties=b"")).status == PutStatus.PUT_OK


@pytest.mark.parametrize("name", ["TBW102", "rmq_sys_anything"])
def test_no_client_makes_a_system_topic(client: WireClient, name: str) -> None:
    for question in ({"op": "create_topic", "topic": name, "queues": 1}, {"op": "route", "topic": name}):
        answer = client.ask(question)
        assert answer["error"] == "IllegalTopic", json.dumps(answer)
