"""The tables of what requests and questions take: a row for each, whoever adds one."""

import ast
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import towline.master
import towline.remoting
import towline.serve
from towline.format.record.forms import SCHEDULE_TOPIC, delayed
from towline.format.record.properties import encode as encode_properties
from towline.format.record.record import Record, encode
from towline.format.remoting.codes import RequestCode, RequestRefused, ResponseCode
from towline.format.remoting.command import Command
from towline.format.wire.frames import ANSWER, Buffer, Group, Kind, expect, read_json
from towline.link.permissions import Act, NotPermitted, Permit, read_roles
from towline.remoting.connections import Answer
from towline.remoting.needs import ASKED_OF_CLIENTS, NEEDS, need_of
from towline.remoting.own_needs import OWN_NEEDS, check_put, check_question, judged
from towline.remoting.readers import check_record

PROCESSES = (towline.master, towline.serve)
ASKED_ELSEWHERE = {"group_send_back"}  # by our client of brokers, which have no processes


def trees(package: object) -> Iterator[ast.AST]:
    for path in sorted(Path(package.__file__).parent.rglob("*.py")):
        yield ast.parse(path.read_text())


def answered() -> set[str]:
    """The questions that processes of a node answer, as their code names them: cases of `match`, and tables."""
    found: set[str] = set()
    for package in PROCESSES:
        for tree in trees(package):
            for node in ast.walk(tree):
                if isinstance(node, ast.MatchMapping):
                    for key, pattern in zip(node.keys, node.patterns, strict=True):
                        if isinstance(key, ast.Constant) and key.value == "op":
                            found |= {each.value for each in ast.walk(pattern) if isinstance(each, ast.Constant)}
                elif isinstance(node, ast.Dict):
                    names = {key.value for key in node.keys if isinstance(key, ast.Constant)}
                    found |= {name for name in names if isinstance(name, str) and name.startswith("group_")}
                elif isinstance(node, ast.Compare) and ast.unparse(node.left) == "question.get('op')":
                    found |= {each.value for each in node.comparators if isinstance(each, ast.Constant)}
    return found


def test_each_question_that_a_process_answers_has_a_row() -> None:
    questions = answered()
    assert {"route", "query_offset", "group_join", "transaction_end", "node_status", "open_ring"} <= questions
    assert questions - OWN_NEEDS.keys() == set()
    assert OWN_NEEDS.keys() - questions - {"node_configure", "transaction_topics"} == set()


def test_each_request_has_a_row_but_those_that_clients_are_asked() -> None:
    assert set(RequestCode) - NEEDS.keys() == ASKED_OF_CLIENTS
    assert NEEDS.keys() <= set(RequestCode)


def test_each_request_with_a_handler_has_a_row() -> None:
    """Whatever names a code beside a handler: also one that is not in the table of codes would have to be there."""
    handled = {
        key.attr
        for tree in trees(towline.remoting)
        for node in ast.walk(tree)
        if isinstance(node, ast.Dict)
        for key in node.keys
        if isinstance(key, ast.Attribute) and ast.unparse(key.value) == "RequestCode"
    }
    assert {"SEND_MESSAGE", "POP_MESSAGE", "GET_CONSUME_STATS", "WIPE_WRITE_PERM_OF_BROKER"} <= handled
    assert {RequestCode[name] for name in handled} <= NEEDS.keys()


def limited(*roles: str, groups: tuple[str, ...] = ()) -> Permit:
    kinds, limits = read_roles(roles, groups)
    return Permit("app", kinds, limits)


def test_a_row_without_names_is_for_all_topics_or_judged_later_or_for_everybody() -> None:
    """So that nobody adds a request of a topic, and forgets to say where it stands."""
    bare = {
        RequestCode(code).name
        for code, need in NEEDS.items()
        if not (need.topics or need.groups or need.whole or need.later)
    }
    assert bare == {"GET_ROUTEINFO_BY_TOPIC", "GET_BROKER_CLUSTER_INFO", "TOWLINE"}
    own = {op for op, need in OWN_NEEDS.items() if not (need.topics or need.groups or need.whole or need.later)}
    assert own == {"begin_producer", "log_ends", "transaction_status"}


def test_who_may_send_nowhere_begins_no_idempotent_producer() -> None:
    question = {"op": "begin_producer", "name": "billing"}
    with pytest.raises(NotPermitted, match="for who may send"):
        check_question(limited("consumer"), question, makes=False)
    for role in ("producer:orders", "producer", "admin"):
        check_question(limited(role), question, makes=False)


@pytest.mark.parametrize("code", sorted(code for code, need in NEEDS.items() if need.topics and not need.later))
def test_who_is_limited_to_other_topics_is_refused(code: int) -> None:
    """Of every request that names one in a field."""
    request = Command(code, fields=FIELDS | {"statsKey": "orders"}, body=BODY)
    refusing = limited("producer:bills", "consumer:bills", "admin:bills", groups=("g",))
    with pytest.raises(NotPermitted, match="'orders'"):
        need_of(code).check(refusing, request)
    need_of(code).check(limited("producer:orders", "consumer:orders", "admin:orders", groups=("g",)), request)


@pytest.mark.parametrize("code", sorted(code for code, need in NEEDS.items() if need.groups))
def test_who_is_limited_to_other_groups_is_refused(code: int) -> None:
    request = Command(code, fields=FIELDS, body=BODY)
    with pytest.raises(NotPermitted, match="group 'g'"):
        need_of(code).check(limited("consumer", "admin:orders", groups=("h",)), request)


@pytest.mark.parametrize("op", sorted(op for op, need in OWN_NEEDS.items() if need.topics or need.groups))
def test_questions_for_other_topics_and_groups_are_refused(op: str) -> None:
    question = {"op": op, "topic": "orders", "group": "g", "topics": {"orders": {}}, "offsets": {"orders": {}},
                "queues": [["orders", 0]], "claims": [], "places": [["orders", 0, 0]]}  # fmt: skip
    if op == "group_offsets":
        question["topics"] = ["orders"]
    need = OWN_NEEDS[op]
    roles = ("producer:orders", "consumer:orders", "admin:orders")
    check_question(limited(*roles, groups=("g",)), question, makes=False)
    if need.topics:
        others = tuple(role.replace("orders", "bills") for role in roles)
        with pytest.raises(NotPermitted, match="'orders'"):
            check_question(limited(*others, groups=("g",)), question, makes=False)
    if need.groups:
        with pytest.raises(NotPermitted, match="group 'g'"):
            check_question(limited(*roles, groups=("h",)), question, makes=False)


def test_a_consumer_s_key_writes_its_group_s_topics_by_sends_alone() -> None:
    """Nobody asks a consumer to reply, or to recall what he timed, into the topics by which a group tries again."""
    assert {RequestCode(code).name for code, need in NEEDS.items() if need.gives_back} == {
        "SEND_MESSAGE", "SEND_MESSAGE_V2", "SEND_BATCH_MESSAGE",
    }  # fmt: skip


def test_what_nobody_knows_is_for_an_admin_of_all() -> None:
    for permit in (limited("admin:orders", groups=("g",)), limited("consumer", groups=("g",))):
        with pytest.raises(NotPermitted):
            check_question(permit, {"op": "unheard_of"}, makes=False)
        with pytest.raises(NotPermitted):
            need_of(999_999).check(permit, Command(999_999))


# --- what is judged by its records


def put_of(*records: bytes) -> tuple[list[Group], bytes]:
    data = b"".join(records)
    return [Group(SCHEDULE_TOPIC.encode(), 0, len(records), len(data))], data


def delayed_record(topic: str, body: bytes = b"") -> bytes:
    form = delayed(topic, 0, 1)
    return encode(Record(topic=form.topic.encode(), body=body, properties=encode_properties(form.pairs)))


def test_a_body_that_ends_inside_a_name_opens_no_topic_that_it_hides() -> None:
    permit = limited("producer:ab*", "consumer", groups=("g*",))
    for body in (b"REAL_TOPIC\x01ab", b"REAL_TOPIC\x01%RETRY%g"):
        check_put(permit, *put_of(delayed_record("ab-mine", body)))
        with pytest.raises(NotPermitted, match="produce to topic 'secret'"):
            check_put(permit, *put_of(delayed_record("secret", body)))
    for cut in (delayed_record("secret")[:-1], delayed_record("ab", b"REAL_TOPIC\x01ab")[:-1]):
        with pytest.raises(NotPermitted, match="may not produce what cannot be read: SIZE_PAST_END"):
            check_put(permit, *put_of(delayed_record("ab"), cut))


def answer_with(*records: bytes) -> list[Buffer]:
    sizes = b"".join(len(record).to_bytes(4, "big") for record in records)
    return [ANSWER.pack(Kind.ANSWER, 0, 7, len(records)), b"{}", sizes, b"".join(records)]


def test_an_answer_is_judged_by_what_is_done_with_the_topics_of_its_records() -> None:
    """A half that a producer is to look at counts as produced."""
    half_of = [answer_with(delayed_record(topic)) for topic in ("orders", "bills")]
    producer, consumer = limited("producer:orders"), limited("consumer:orders")
    assert judged(producer, half_of[0], Act.PRODUCE) is half_of[0]
    assert judged(consumer, half_of[0]) is half_of[0]
    for refused in (
        judged(producer, half_of[1], Act.PRODUCE),
        judged(consumer, half_of[1]),
        judged(consumer, half_of[0], Act.PRODUCE),
    ):
        assert expect(ANSWER, refused[0]) == (Kind.ANSWER, 1, 7, 0)
        assert read_json(refused[1])["error"] == "NotPermitted"


def test_a_record_that_cannot_be_read_is_an_answer_that_is_refused_and_ends_nothing() -> None:
    bad = delayed_record("orders")[:-2]
    found = judged(limited("consumer:orders"), answer_with(bad))
    assert (expect(ANSWER, found[0])[1], read_json(found[1])["error"]) == (1, "MalformedRecord")
    asked: Any = SimpleNamespace(permit=limited("consumer:orders"))
    with pytest.raises(RequestRefused, match="SIZE_PAST_END") as refused:
        check_record(asked, [b"", bad])
    assert refused.value.code == ResponseCode.SYSTEM_ERROR


# --- what is answered later


def test_an_answer_that_is_held_is_judged_by_what_the_key_is_by_then() -> None:
    """Also where that has no limits: it may have lost its role."""
    connection: Any = SimpleNamespace(permit=Permit("app", ("producer", "consumer")), is_open=True)
    connections: Any = None
    answer = Answer(connections, connection, Command(RequestCode.PULL_MESSAGE))
    answer.judged_by(connection.permit)
    answer.check(Act.CONSUME, "orders")
    answer.check(Act.JOIN, "g")
    connection.permit = Permit("app", ("producer",))
    for act, name in ((Act.CONSUME, "orders"), (Act.JOIN, "g")):
        with pytest.raises(RequestRefused, match="its roles are producer") as refused:
            answer.check(act, name)
        assert refused.value.code == ResponseCode.NO_PERMISSION
    connection.permit = Permit("another", ("producer",))
    answer.check(Act.CONSUME, "orders")


GROUPS = ("consumerGroup", "group", "groupName", "srcGroup", "destGroup", "compareGroup")
FIELDS = {"topic": "orders", "b": "orders", "statsKey": "orders@g", **dict.fromkeys(GROUPS, "g")}
BODY = b"""{"topic": "orders", "consumerGroup": "g", "clientID": "c", "mode": "PULL", "groupName": "g",
  "groupConfigList": [{"groupName": "g"}], "subscriptionData": {"topic": "orders", "subString": "*"},
  "topicConfigList": [{"topicName": "orders", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6}],
  "mqSet": [{"topic": "orders", "queueId": 0}],
  "consumerDataSet": [{"groupName": "g", "subscriptionDataSet": [{"topic": "orders", "subString": "*"}]}],
  "acks": [{"c": "g", "t": "orders", "r": "0", "so": 0, "q": 0, "rq": 0, "pt": 1, "b": "AQ=="}]}"""
