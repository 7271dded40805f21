"""Which topics a node makes by itself, after what, and how many queues it holds (spec 1.4)."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.processes.nodes import TestNode, ending
from towline.client.admin import AdminClient
from towline.client.errors import AskRefused
from towline.client.message import Message
from towline.client.producer import Producer
from towline.errors import UnknownTopic
from towline.format.files.topics import PERM_INHERIT, PERM_READ, PERM_READ_WRITE, TEMPLATE_TOPIC
from towline.limits import TOPIC_QUEUES_MAX

QUEUES_OF_NEW = 6
QUEUES_MAX = 40


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestNode]:
    """It makes no topics by itself unless they are a group's or take after one that may be inherited."""
    made = TestNode(
        "master",
        tmp_path_factory.mktemp("rules"),
        auto_create_topic_enable=False,
        default_topic_queue_nums=QUEUES_OF_NEW,
        queues_max=QUEUES_MAX,
        ha_listen_port=0,
    )
    with ending(made):
        made.start()
        yield made


@pytest.fixture
def admin(node: TestNode) -> Iterator[AdminClient]:
    with AdminClient(node.endpoint, timeout_ms=20_000) as made:
        yield made


def routed(admin: AdminClient, topic: str, **wishes: Any) -> tuple[int, int, int]:
    """Read queues, write queues and permission of a topic that was asked for as a producer does."""
    facts = admin.ask("route", topic=topic, **wishes).facts
    return facts["read_queues"], facts["write_queues"], facts["perm"]


def test_where_none_are_made_an_unknown_one_is_refused_by_name_and_not_made(node: TestNode, admin: AdminClient) -> None:
    with Producer(node.endpoint) as producer, pytest.raises(UnknownTopic):
        producer.send(Message("nowhere", b""))
    assert "nowhere" not in [row["topic"] for row in admin.topics()]


def test_topics_of_a_group_are_made_with_one_queue_whatever_the_settings_say(admin: AdminClient) -> None:
    for topic in ("%RETRY%of", "%DLQ%of"):
        assert routed(admin, topic, queues=5) == (1, 1, PERM_READ_WRITE)


def test_a_topic_takes_after_one_that_may_be_inherited_and_has_its_permission(admin: AdminClient) -> None:
    admin.create_topic("model", 3, perm=PERM_READ | PERM_INHERIT)
    assert routed(admin, "alike", template="model", queues=8) == (3, 3, PERM_READ)
    assert routed(admin, "smaller", template="model", queues=2) == (2, 2, PERM_READ)
    admin.alter_topic("model", perm=PERM_READ)
    with pytest.raises(UnknownTopic):
        routed(admin, "too-late", template="model")


def test_what_is_no_topic_is_refused_by_the_rule_it_breaks(admin: AdminClient) -> None:
    for name, said in (("a b", "a b"), ("x" * 256, "the limit is 127"), ("", "topic")):
        with pytest.raises(AskRefused, match=said):
            admin.create_topic(name, 1)
    for queues in (0, TOPIC_QUEUES_MAX + 1):
        with pytest.raises(AskRefused, match=str(queues)):
            admin.create_topic("much", queues)
    with pytest.raises(AskRefused, match="nobody could read the last of them"):
        admin.create_topic("deaf", 1, write_queues=2, read_queues=1)


def test_a_node_holds_so_many_queues_and_says_which_of_them_are_of_deleted_topics(
    node: TestNode, admin: AdminClient
) -> None:
    with Producer(node.endpoint) as producer:
        admin.create_topic("gone", 4)
        producer.send_batch([Message("gone", b"", queue_id=queue) for queue in range(4)])
        admin.delete_topic("gone")
        with pytest.raises(AskRefused, match=f"{QUEUES_MAX} queues.*4 .*deleted"):
            admin.create_topic("all", QUEUES_MAX)
        left = QUEUES_MAX - sum(max(row["read_queues"], row["write_queues"]) for row in admin.topics()) - 4
        assert admin.create_topic("rest", left)["write_queues"] == left
        with pytest.raises(AskRefused, match="deleted"):
            admin.create_topic("more", 1)


def test_where_they_are_made_a_new_one_has_the_templates_queues_at_most(tmp_path: Path) -> None:
    node = TestNode("master", tmp_path, default_topic_queue_nums=QUEUES_OF_NEW, ha_listen_port=0)
    with ending(node):
        node.start()
        with closing(AdminClient(node.endpoint, timeout_ms=20_000)) as admin:
            assert routed(admin, "new") == (QUEUES_OF_NEW, QUEUES_OF_NEW, PERM_READ_WRITE)
            assert routed(admin, "few", queues=4) == (4, 4, PERM_READ_WRITE)  # as RocketMQ's producers ask for
            assert routed(admin, "wide", queues=50) == (QUEUES_OF_NEW, QUEUES_OF_NEW, PERM_READ_WRITE)
            assert routed(admin, "one", queues=1) == (1, 1, PERM_READ_WRITE)
            with pytest.raises(AskRefused, match="broker's own"):
                admin.alter_topic(TEMPLATE_TOPIC, perm=PERM_READ_WRITE)
