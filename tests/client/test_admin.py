"""Questions to a node in a thread (`standin`)."""

from collections.abc import Callable, Iterator

import pytest

from towline.client.admin import AdminClient
from towline.client.errors import AskRefused, ClientClosed
from towline.client.link.routes import check_one_node
from towline.client.message import Message
from towline.client.producer import Producer
from towline.errors import InvalidEndpoint, NoAnswer, UnknownTopic

from .standin import STORE_TIME, Standin


@pytest.fixture
def admin(node: Standin) -> Iterator[AdminClient]:
    with AdminClient(node.endpoint, timeout_ms=5_000) as made:
        yield made


def fill(node: Standin) -> None:
    """Two messages with the key k1, one with another key of the same hash, in this order."""
    with Producer(node.endpoint) as producer:
        for number, keys in enumerate((("k1", "Aa"), ("BB",), ("k1",))):
            producer.send(Message("t", b"%d" % number, keys=keys, queue_id=0))
    node.extra = list(node.queues["t", 0])


class TestTopics:
    def test_topics_are_created_and_listed(self, admin: AdminClient) -> None:
        assert admin.create_topic("new", 3)["write_queues"] == 3
        assert {topic["topic"]: topic["read_queues"] for topic in admin.topics()} == {"t": 4, "one": 1, "new": 3}

    def test_changes_carry_only_what_is_named(self, node: Standin, admin: AdminClient) -> None:
        admin.create_topic("ordered", 2, perm=4, order=True)
        with pytest.raises(AskRefused):
            admin.alter_topic("t", write_queues=1)
        with pytest.raises(AskRefused):
            admin.delete_topic("t")
        assert node.asked[-3:] == [
            {"op": "create_topic", "topic": "ordered", "queues": 2, "perm": 4, "order": True},
            {"op": "alter_topic", "topic": "t", "write_queues": 1},
            {"op": "delete_topic", "topic": "t"},
        ]

    def test_bounds_are_told_for_each_queue(self, node: Standin, admin: AdminClient) -> None:
        fill(node)
        node.first["t", 0] = 1
        assert admin.bounds("t") == {0: (1, 3), 1: (0, 0), 2: (0, 0), 3: (0, 0)}

    def test_an_unknown_topic_and_an_unknown_operation_are_refused(self, admin: AdminClient) -> None:
        with pytest.raises(UnknownTopic):
            admin.bounds("unknown")
        with pytest.raises(AskRefused, match="no operation juggle"):
            admin.ask("juggle")

    def test_the_welcome_tells_who_answers(self, admin: AdminClient) -> None:
        assert admin.welcome()["name"] == "a"


class TestLookups:
    def test_messages_are_found_by_key_and_other_keys_of_its_hash_are_left_out(
        self, node: Standin, admin: AdminClient
    ) -> None:
        fill(node)
        assert [message.body for message in admin.by_key("t", "k1")] == [b"0", b"2"]
        assert [message.body for message in admin.by_key("t", "Aa", begin=5, max_count=9)] == [b"0"]
        assert node.asked[-1] | {"end": 0} == {
            "op": "query_key", "topic": "t", "key": "Aa", "begin": 5, "end": 0, "max": 9,
        }  # fmt: skip

    def test_what_an_answer_says_of_itself_is_told(self, node: Standin, admin: AdminClient) -> None:
        fill(node)
        found = admin.by_key("t", "k1")
        assert (found.truncated, found.complete) == (False, True)
        node.found = {"truncated": True, "complete": False}
        for found in (admin.by_key("t", "k1"), admin.by_unique_key("t", "u", begin=5, max_count=9)):
            assert (found.truncated, found.complete) == (True, False)
        assert node.asked[-1] | {"end": 0} == {
            "op": "query_unique_key", "topic": "t", "key": "u", "begin": 5, "end": 0, "max": 9,
        }  # fmt: skip

    def test_a_node_that_has_just_started_is_asked_again(self, node: Standin, admin: AdminClient) -> None:
        fill(node)
        node.starting = 3
        assert admin.bounds("t")
        node.starting = 1 << 30
        with AdminClient(node.endpoint, timeout_ms=100) as hasty, pytest.raises(NoAnswer, match="still starting"):
            hasty.bounds("t")

    def test_a_message_is_found_by_unique_key_id_and_place(self, node: Standin, admin: AdminClient) -> None:
        fill(node)
        first = admin.by_key("t", "Aa")[0]
        assert [message.body for message in admin.by_unique_key("t", str(first.unique_key))] == [b"0"]
        node.extra = node.extra[:1]
        for found in (admin.by_id(first.message_id), admin.by_offset(first.physical_offset)):
            assert found is not None
            assert found.raw == first.raw

    def test_nothing_found_is_none(self, admin: AdminClient) -> None:
        assert admin.by_key("t", "k") == []
        assert admin.by_id("0" * 32) is None
        assert admin.by_offset(7) is None

    def test_messages_are_found_by_time_over_all_queues(self, node: Standin, admin: AdminClient) -> None:
        with Producer(node.endpoint) as producer:
            for number in range(12):
                producer.send(Message("t", b"%d" % number))
        found = admin.by_time("t", STORE_TIME + 1_000, max_count=6)
        assert [message.queue_offset for message in found] == [1, 1, 1, 1, 2, 2]
        assert admin.by_time("t", STORE_TIME + 60_000) == []
        assert admin.offset_at("t", 2, STORE_TIME + 1_500) == 2


class TestTheNodeItself:
    @pytest.mark.parametrize(
        "ask",
        [
            AdminClient.node_status,
            AdminClient.node_stats,
            AdminClient.node_segments,
            AdminClient.node_settings,
            lambda admin: admin.configure_node(broker_permission=4),
        ],
        ids=["status", "statistics", "segments", "settings", "a change"],
    )
    def test_is_not_asked_for_where_several_may_answer(
        self, node: Standin, ask: Callable[[AdminClient], object]
    ) -> None:
        for endpoint in (f"{node.endpoint},tcp://127.0.0.1:9", [node.endpoint, "tcp://127.0.0.1:9"]):
            with AdminClient(endpoint) as admin, pytest.raises(InvalidEndpoint, match="several may answer there"):
                ask(admin)
        assert not node.asked

    @pytest.mark.parametrize("endpoint", ["cluster:/there/cluster.toml", "etcd:http://127.0.0.1:9/name"])
    def test_has_an_endpoint_and_is_no_cluster(self, endpoint: str) -> None:
        with pytest.raises(InvalidEndpoint, match="several may answer there"):
            check_one_node(endpoint)

    def test_is_the_master_of_a_group_for_who_asks_masters_alone(self, node: Standin) -> None:
        with (
            AdminClient(lambda: (node.endpoint, "tcp://127.0.0.1:9"), masters_only=True) as admin,
            pytest.raises(AskRefused),
        ):
            admin.node_status()
        assert node.asked[-1]["op"] == "node_status"


class TestLosing:
    def test_a_restarted_node_is_asked_over_a_new_link(self, node: Standin, admin: AdminClient) -> None:
        admin.topics()
        node.stop()
        node.start()
        assert len(admin.topics()) == 2

    def test_a_node_out_of_reach_is_no_answer(
        self, node: Standin, admin: AdminClient, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        admin.topics()
        node.stop()
        monkeypatch.setattr(admin, "_timeout_ms", 30)  # only of what is to fail
        with pytest.raises(NoAnswer, match="within 30 ms"):
            admin.topics()
        node.start()

    def test_a_closed_client_asks_nothing(self, node: Standin) -> None:
        admin = AdminClient(node.endpoint)
        admin.close()
        admin.close()
        with pytest.raises(ClientClosed):
            admin.topics()
