"""Several name servers: who is asked, and whose word counts."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.processes.nodes import free_port
from towline.client.admin import AdminClient
from towline.client.errors import AskRefused
from towline.client.producer import Producer
from towline.errors import LinkRefused, UnknownTopic
from towline.format.remoting.codes import RequestCode

from .standins import Answer, Standin, broker, names_of, refuses, serving, silent

ROUTE, CLUSTER, DELETE = (
    RequestCode.GET_ROUTEINFO_BY_TOPIC,
    RequestCode.GET_BROKER_CLUSTER_INFO,
    RequestCode.DELETE_TOPIC_IN_NAMESRV,
)
TIMEOUT_MS = 20_000


class Cluster:
    """A broker `a` with the topic `t`, and two name servers that know it."""

    def __init__(self, opened: ExitStack) -> None:
        self.broker = opened.enter_context(serving(broker()))
        told = names_of({"a": {0: self.broker.address}}, {"t": {"a": 4}})
        self.names: list[Standin] = [opened.enter_context(serving(told)) for _ in range(2)]

    @property
    def endpoint(self) -> str:
        return f"rocketmq://{self.names[0].address};{self.names[1].address}"

    def admin(self) -> AdminClient:
        return AdminClient(self.endpoint, timeout_ms=TIMEOUT_MS)


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with ExitStack() as opened:
        yield Cluster(opened)


@pytest.mark.parametrize("says", [refuses(14), refuses(3), refuses(1, ""), refuses(4711), silent])
def test_one_that_refuses_or_is_silent_is_left_for_the_next(cluster: Cluster, says: Answer) -> None:
    cluster.names[0].answers[ROUTE] = says
    with cluster.admin() as admin:
        assert admin.bounds("t") == dict.fromkeys(range(4), (0, 0))
        assert ROUTE in cluster.names[0].codes()
        assert cluster.names[1].codes().count(ROUTE) == 1
        cluster.names[0].asked.clear()
        admin.bounds("t")
    assert ROUTE not in cluster.names[0].codes(), "the one that has answered is asked first from then on"


def test_one_that_refuses_everything_keeps_nobody_out(cluster: Cluster) -> None:
    cluster.names[0].answers.clear()
    with Producer(cluster.endpoint) as producer:
        assert producer.route("t").write_queues == 4


def test_what_all_refuse_is_refused_by_the_name_of_the_last_ones_code(cluster: Cluster) -> None:
    cluster.names[0].answers[ROUTE] = refuses(14)
    cluster.names[1].answers[ROUTE] = refuses(16, "not for you")
    with cluster.admin() as admin, pytest.raises(AskRefused, match="NO_PERMISSION: not for you"):
        admin.bounds("t")


def test_a_refusal_is_told_where_the_others_are_gone(cluster: Cluster) -> None:
    cluster.names[0].answers[ROUTE] = refuses(16, "not for you")
    endpoint = f"rocketmq://{cluster.names[0].address};127.0.0.1:{free_port()}"
    with AdminClient(endpoint, timeout_ms=TIMEOUT_MS) as admin, pytest.raises(AskRefused, match="NO_PERMISSION"):
        admin.bounds("t")


def test_a_topic_that_one_does_not_know_is_unknown(cluster: Cluster) -> None:
    with cluster.admin() as admin, pytest.raises(UnknownTopic):
        admin.bounds("another")
    assert ROUTE not in cluster.names[1].codes()


def test_one_that_ends_idle_connections_is_asked_over_a_new_one(cluster: Cluster) -> None:
    endpoint = f"rocketmq://{cluster.names[0].address}"
    with AdminClient(endpoint, timeout_ms=TIMEOUT_MS) as admin:
        admin.bounds("t")
        cluster.names[0].cut()
        admin.bounds("t")
    assert cluster.broker.codes().count(RequestCode.HEART_BEAT) == 1, "the link has stayed"


def test_a_topic_is_deleted_at_every_name_server(cluster: Cluster) -> None:
    with cluster.admin() as admin:
        admin.delete_topic("t")
    assert [each.codes().count(DELETE) for each in cluster.names] == [1, 1]


@pytest.mark.parametrize("says", [refuses(3), silent])
def test_a_topic_is_deleted_where_its_broker_has_done_it(
    cluster: Cluster, says: Answer, caplog: pytest.LogCaptureFixture
) -> None:
    for each in cluster.names:
        each.answers[DELETE] = says
    with cluster.admin() as admin:
        admin.delete_topic("t")
    assert RequestCode.DELETE_TOPIC_IN_BROKER in cluster.broker.codes()
    assert "its route may still be told" in caplog.text


def test_a_topic_that_its_broker_keeps_is_not_deleted_at_name_servers(cluster: Cluster) -> None:
    cluster.broker.answers[RequestCode.DELETE_TOPIC_IN_BROKER] = refuses(16, "not for you")
    with cluster.admin() as admin, pytest.raises(AskRefused, match="NO_PERMISSION"):
        admin.delete_topic("t")
    assert [each.codes().count(DELETE) for each in cluster.names] == [0, 0]


def test_of_several_brokers_one_is_named_as_the_refusal_says(cluster: Cluster) -> None:
    with serving(broker()) as other:
        brokers = {"a": {0: cluster.broker.address}, "b": {0: other.address}}
        cluster.names[0].answers.update(names_of(brokers, {"t": {"a": 4, "b": 4}}))
        endpoint = f"rocketmq://{cluster.names[0].address}"
        with AdminClient(endpoint) as admin, pytest.raises(LinkRefused, match="the cluster has a, b") as refused:
            admin.topics()
        assert refused.value.code == "SEVERAL_BROKERS"
        assert refused.value.advice.endswith("as in rocketmq://HOST:9876/BROKER")
        with AdminClient(f"{endpoint}/b") as admin:
            assert [row["topic"] for row in admin.topics()] == ["t"]
        assert RequestCode.GET_ALL_TOPIC_CONFIG in other.codes()
        assert RequestCode.GET_ALL_TOPIC_CONFIG not in cluster.broker.codes()
