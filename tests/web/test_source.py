"""Who asks the nodes asks no more than is shown: the whole status now and then, counters in place of rates."""

from typing import Any

import pytest

from tests.web.asked import status
from towline.client.admin import AdminClient
from towline.errors import NoAnswer
from towline.web import source as module
from towline.web.source import Asked, Source

NODE = "tcp://127.0.0.1:1"


class Node:
    """What a node answers, in the place of a connection to it."""

    def __init__(self) -> None:
        self.briefly: list[bool] = []
        self.pids = [1, 2]
        self.put = {"orders": 10, "payments": 5}
        self.silent = False
        self.facts = {"write_queues": 4, "read_queues": 4, "perm": 6, "order": False, "system": False}
        self.busy = False  # for what takes long

    def node_status(self, admin: AdminClient, *, brief: bool = False) -> dict[str, Any]:
        self.briefly.append(brief)
        if self.busy and not brief:
            raise NoAnswer(NODE, 1, "it was not answered")
        return status(
            processes=[{"pid": pid, "cpu_s": 0.0} for pid in self.pids],
            statistics={"put_messages": 0, "get_messages": 0},
        )

    def topics(self, admin: AdminClient) -> list[dict[str, Any]]:
        if self.silent:
            raise NoAnswer(NODE, 1, "nobody listens there")
        return [{"topic": name, **self.facts} for name in ("orders", "payments", "quiet")]

    def node_stats(
        self, admin: AdminClient, interval_ms: int = 1_000, *, top: int = 10, topic: str | None = None
    ) -> Any:
        rows = [
            {"topic": name, "put": {"messages": n, "bytes": 100 * n}, "get": {"messages": 0}}
            for name, n in self.put.items()
        ]
        return {"topics": rows}


class Clock:
    now = 1_000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> Node:
    made = Node()
    for name in ("node_status", "topics", "node_stats"):
        method = getattr(made, name)
        monkeypatch.setattr(AdminClient, name, lambda *given, method=method, **named: method(*given, **named))
    return made


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(module, "time", made)
    return made


def test_a_node_is_asked_briefly_and_now_and_then_for_what_takes_it_long(node: Node, clock: Clock) -> None:
    source = Source(lambda: {NODE: ""})

    def asked() -> str:
        """At one look: b for a brief question, w for one for all."""
        node.briefly.clear()
        source.look(NODE)
        clock.now += 1
        return "".join("b" if brief else "w" for brief in node.briefly)

    assert [asked() for _ in range(4)] == ["b", "bw", "b", "b"]
    node.pids.append(3)
    assert [asked() for _ in range(3)] == ["bw", "b", "b"], "a new process has a memory"
    clock.now += 30
    assert [asked() for _ in range(2)] == ["bw", "b"]
    source.close()


def test_a_node_that_takes_too_long_for_all_of_it_is_shown_by_what_it_said(node: Node, clock: Clock) -> None:
    source = Source(lambda: {NODE: ""})
    source.look(NODE)
    node.busy = True
    assert source.look(NODE).status is not None
    source.close()


def test_rates_of_topics_are_differences_of_their_counters(node: Node, clock: Clock) -> None:
    source = Source(lambda: {NODE: ""})
    asked = Asked({"a": NODE}, {"a-0": NODE})
    first = source.read("topics", asked)
    assert [row[8:] for row in first.rows] == [[10, None, None, 0, None], [5, None, None, 0, None], [None] * 5]
    node.put["orders"] += 50
    clock.now += 5
    second = source.read("topics", asked)
    assert [row[8:] for row in second.rows] == [[60, 10.0, 1000.0, 0, 0.0], [5, 0.0, 0.0, 0, 0.0], [None] * 5]
    node.put = {"orders": 1}
    clock.now += 5
    assert source.read("topics", asked).rows[0][9] == 0.0, "the node was started anew"
    source.close()


def test_a_node_that_is_silent_leaves_its_rows_as_they_were_with_the_reason(node: Node, clock: Clock) -> None:
    source = Source(lambda: {NODE: ""})
    asked = Asked({"a": NODE}, {"a-0": NODE})
    before = source.read("topics", asked)
    node.silent = True
    after = source.read("topics", asked)
    assert after.rows == before.rows
    assert after.why == [f"a: no answer from {NODE} within 1 ms: nobody listens there"]
    source.close()


def test_a_node_of_another_version_leaves_the_rows_of_all_nodes_with_what_is_odd(node: Node, clock: Clock) -> None:
    source = Source(lambda: {NODE: ""})
    asked = Asked({"a": NODE, "b": NODE}, {})
    before = source.read("topics", asked)
    del node.facts["order"]
    after = source.read("topics", asked)
    assert after.rows == before.rows
    assert [why.partition(":")[0] for why in after.why] == ["a", "b"]
    assert "KeyError: 'order'" in after.why[0]
    source.close()


def test_nodes_that_were_known_stay_known_while_nobody_says_which_they_are() -> None:
    silent = False

    def where() -> dict[str, str]:
        if silent:
            raise NoAnswer("etcd", 1, "it is silent")
        return {NODE: "a"}

    source = Source(where)
    assert source.names() == {NODE: "a"}
    silent = True
    assert source.names() == {NODE: "a"}
    with pytest.raises(NoAnswer):
        Source(where).names()
