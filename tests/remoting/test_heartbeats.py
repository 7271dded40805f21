"""What heartbeats leave behind is bounded, for all clients together: memory, members of groups, topics of groups."""

import json
import random
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.processes.nodes import check_nothing_is_left, ending
from tests.processes.waiting import await_
from towline.format.remoting.codes import RequestCode, RequestRefused, ResponseCode
from towline.format.remoting.command import Command, Form
from towline.format.remoting.consumers import Heartbeat, read_heartbeat
from towline.format.remoting.headers import UnregisterClient
from towline.limits import MIB
from towline.link.keys import Key
from towline.remoting.clients import CLIENTS_MAX, KEPT_MAX, MEMBERS_MAX, Clients, cost_of
from towline.remoting.connections import Connection
from towline.remoting.consumers import LISTED_MAX, RETRY_TOPICS_MAX, Consumers
from towline.runtime.positions import Positions
from towline.runtime.remoting_counts import RemotingCounts, Total

from .conftest import RemotingNode, remoting_node
from .raw import RawClient
from .test_floods import anonymous, check_unharmed, p99

BEAT = Command(RequestCode.HEART_BEAT)
GROWTH_MAX = KEPT_MAX + 96 * MIB  # what is kept, and frames that are not whole yet


class Peer:
    """As much of a connection as clients are known on."""

    def __init__(self) -> None:
        self.client_ids: set[str] = set()
        self.half_groups: set[str] = set()
        self.peer = "127.0.0.1", 1
        self.key: Key | None = None
        self.is_open = True


def said(
    client: str,
    producers: int = 0,
    consumers: int = 0,
    topics: int = 1,
    text: str = "*",
    *,
    legal: bool = True,
    model: str = "BROADCASTING",
) -> dict[str, Any]:
    """A heartbeat with so many groups, and topics in each of them. Serve takes only `legal` names of groups."""
    rows = [{"topic": f"t{number}", "subString": text} for number in range(topics)]
    groups = [f"{client.replace('@', '-' if legal else '@')}-g{number}" for number in range(consumers)]
    return {
        "clientID": client,
        "producerDataSet": [{"groupName": f"p{number}"} for number in range(producers)],
        "consumerDataSet": [
            {"groupName": group, "messageModel": model, "subscriptionDataSet": rows} for group in groups
        ],
    }


def beat(client: str, **more: Any) -> Heartbeat:
    return read_heartbeat(said(client, **more))


@pytest.fixture
def counts(tmp_path: Path) -> RemotingCounts:
    return RemotingCounts(Positions.create(tmp_path / "positions", 1))


def connection(key: str = "") -> Connection:
    found: Any = Peer()
    found.key = Key(key, ("producer",), "") if key else None
    return found


def test_a_heartbeat_beyond_the_bytes_that_are_kept_is_refused_and_leaves_nothing(counts: RemotingCounts) -> None:
    clients, peers = Clients(counts), [connection() for _ in range(2_000)]
    known, large = 0, {"consumers": 2, "topics": 100, "text": "x" * 1_000}
    while counts.total(Total.KEPT) + cost_of(beat("c1000", **large)) <= KEPT_MAX:
        clients.heartbeat(peers[known], BEAT, beat(f"c{known}", **large))
        known += 1
    assert known > 100
    with pytest.raises(RequestRefused, match=f"{KEPT_MAX} are kept") as refused:
        clients.heartbeat(peers[known], BEAT, beat("c1000", **large))
    assert refused.value.code == ResponseCode.SYSTEM_BUSY
    kept = counts.total(Total.KEPT)
    assert KEPT_MAX - MIB < kept <= KEPT_MAX
    assert (counts.total(Total.CLIENTS), len(clients), len(peers[known].client_ids)) == (known, known, 0)
    clients.heartbeat(peers[0], BEAT, beat("c0", consumers=2, topics=100, text="y" * 1_000))  # no more than before
    with pytest.raises(RequestRefused):
        clients.heartbeat(peers[0], BEAT, beat("c0", consumers=2, topics=150, text="y" * 9_000))
    assert counts.total(Total.KEPT) == kept
    for peer in peers:
        clients.ended(peer)
    assert (counts.total(Total.KEPT), counts.total(Total.CLIENTS)) == (0, 0)
    clients.heartbeat(peers[0], BEAT, beat("another", consumers=2))


def test_a_heartbeat_beyond_the_members_that_are_taken_is_refused(counts: RemotingCounts) -> None:
    clients, peer = Clients(counts), connection()
    for number in range(MEMBERS_MAX // 1_000):
        clients.heartbeat(peer, BEAT, beat(f"c{number}", consumers=1_000))
    with pytest.raises(RequestRefused, match=f"{MEMBERS_MAX} are taken") as refused:
        clients.heartbeat(peer, BEAT, beat("late", consumers=1))
    assert refused.value.code == ResponseCode.SYSTEM_BUSY
    clients.heartbeat(peer, BEAT, beat("producer", producers=5))
    clients.unregister(peer, UnregisterClient(client_id="c3", consumer_group="c3-g7"))
    clients.heartbeat(peer, BEAT, beat("late", consumers=1))


def test_a_client_that_is_refused_for_its_connection_stays_where_it_was(counts: RemotingCounts) -> None:
    clients, first, full = Clients(counts), connection(), connection()
    clients.heartbeat(first, BEAT, beat("moving", producers=1))
    for number in range(CLIENTS_MAX):
        clients.heartbeat(full, BEAT, beat(f"c{number}"))
    with pytest.raises(RequestRefused, match="on this connection already"):
        clients.heartbeat(full, BEAT, beat("moving", producers=1))
    assert clients.connection_of("moving") is first


def test_who_has_another_key_cannot_speak_for_a_client_that_is_there(counts: RemotingCounts) -> None:
    """He would get its replies, and take it out of its groups."""
    clients, his, other = Clients(counts), connection("his"), connection("other")
    leaves = UnregisterClient(client_id="c1", producer_group="p0")
    clients.heartbeat(his, BEAT, beat("c1", producers=1))
    for speak in (lambda: clients.heartbeat(other, BEAT, beat("c1")), lambda: clients.unregister(other, leaves)):
        with pytest.raises(RequestRefused, match="'c1' is connected with another key than 'other'") as refused:
            speak()
        assert refused.value.code == ResponseCode.NO_PERMISSION
    assert clients.connection_of("c1") is his
    assert clients.producer_groups == ["p0"]
    again = connection("his")
    clients.heartbeat(again, BEAT, beat("c1", producers=1))
    assert clients.connection_of("c1") is again, "its own key may, from wherever it comes"
    again.is_open = False
    clients.heartbeat(other, BEAT, beat("c1", producers=1))
    assert clients.connection_of("c1") is other, "nobody is there any more"
    clients.unregister(other, leaves)
    assert clients.find("c1") is None


def test_whatever_clients_do_what_is_kept_is_that_of_those_who_are_there(counts: RemotingCounts) -> None:
    chance = random.Random(18)
    clients, peers = Clients(counts), [connection() for _ in range(4)]
    for _ in range(3_000):
        peer, name = chance.choice(peers), f"c{chance.randrange(6)}"
        match chance.randrange(5):
            case 0:
                clients.ended(peer)
            case 1:
                group = f"{name}-g{chance.randrange(4)}"
                clients.unregister(peer, UnregisterClient(client_id=name, producer_group="p0", consumer_group=group))
            case 2:
                clients.sent_half(peer, f"half{chance.randrange(5)}")
            case _:
                what = {"producers": chance.randrange(3), "consumers": chance.randrange(4)}
                clients.heartbeat(peer, BEAT, beat(name, **what, topics=chance.randrange(1, 4)))
        assert counts.total(Total.CLIENTS) == len(clients) == sum(len(each.client_ids) for each in peers)
        assert counts.total(Total.KEPT) > 0 or not len(clients)
    for peer in peers:
        clients.ended(peer)
    assert (counts.total(Total.KEPT), len(clients), clients.producer_groups) == (0, 0, [])
    assert clients._members == 0


def test_no_more_topics_are_made_for_groups_than_may_be() -> None:
    there = {f"%RETRY%g{number}" for number in range(RETRY_TOPICS_MAX - 5)} | {"t0"}
    topics: Any = SimpleNamespace(
        changes=1,
        has=there.__contains__,
        is_being_made=lambda name: False,
        count_of=lambda prefix: sum(name.startswith(prefix) for name in there),
        refresh=lambda: False,
    )
    questions: Any = SimpleNamespace(ask=lambda *_, **__: True, link=object())
    nobody: Any = None
    consumers = Consumers(questions, topics, nobody, "broker-a", nobody)
    peer = connection()

    def join(client: str, groups: int) -> None:
        heartbeat = beat(client, consumers=groups, model="CLUSTERING")
        consumers.check(heartbeat)
        consumers.heard(client, peer, heartbeat.consumers.values(), lambda: None)

    join("early", 5)
    with pytest.raises(RequestRefused, match=f"{RETRY_TOPICS_MAX} may: delete groups") as refused:
        join("late", 1)
    assert refused.value.code == ResponseCode.SYSTEM_BUSY
    join("early", 5)  # as before
    topics.changes += 1
    there -= {"%RETRY%g1", "%RETRY%g2"}
    join("late", 2)
    with pytest.raises(RequestRefused, match="may"):
        join("latest", 1)


def test_a_group_has_so_many_members_here_as_can_be_told_of_each_other() -> None:
    topics: Any = SimpleNamespace(changes=1, has=lambda name: True, count_of=lambda prefix: 0, refresh=lambda: False)
    questions: Any = SimpleNamespace(ask=lambda *_, **__: True, link=object())
    nobody: Any = None
    consumers = Consumers(questions, topics, nobody, "broker-a", nobody)
    peer, rows = connection(), said("c", consumers=1)["consumerDataSet"]
    for joined in range(LISTED_MAX // 64 + 1):
        heartbeat = read_heartbeat({"clientID": f"{joined:064}", "consumerDataSet": rows})
        if joined == LISTED_MAX // 64:
            with pytest.raises(RequestRefused, match=f"{joined} members of the group 'c-g0' are here"):
                consumers.check(heartbeat)
            return
        consumers.check(heartbeat)
        consumers.heard(heartbeat.client_id, peer, heartbeat.consumers.values(), lambda: None)


# --- at a node


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RemotingNode]:
    """One of its own: floods leave many topics."""
    made = remoting_node(tmp_path_factory.mktemp("heartbeats") / "store")
    with ending(made):
        made.start()
        yield made
        assert made.stop()
        check_nothing_is_left(made)


def answer_of(client: RawClient) -> Command:
    """The next answer; between them it is told of changes of its groups."""
    while not (found := client.read()).is_answer:
        pass
    return found


@pytest.mark.alone
@pytest.mark.parametrize(
    "shape",
    [
        pytest.param({"consumers": 1_000}, id="groups", marks=pytest.mark.slow),
        pytest.param({"consumers": 1_000, "model": "CLUSTERING"}, id="groups with topics of their own"),
        pytest.param({"consumers": 1_000, "legal": False}, id="groups that serve refuses"),
        pytest.param({"consumers": 20, "topics": 500}, id="topics"),
        pytest.param({"consumers": 10, "text": "x" * 60_000}, id="expressions", marks=pytest.mark.slow),
        pytest.param({"producers": 1_000}, id="producers"),
    ],
)
def test_a_flood_of_heartbeats_is_refused_in_the_end_and_costs_others_nothing(
    node: RemotingNode, shape: dict[str, Any]
) -> None:
    pids, busy = node.pids(), node.refused(ResponseCode.SYSTEM_BUSY)
    with RawClient(node.port) as honest, RawClient(node.port) as member:
        for number in range(20):
            assert honest.put(f"t{number}", b"x").code == 0
        assert member.join("member@1", "members", {"t0": "*"}).code == 0
        alone, before = p99(honest, "t0"), {name: anonymous(pids[name]) for name in ("remoting", "serve")}
        flooding, codes = [], set()
        try:
            for number in range(40):
                flooding.append(RawClient(node.port, Form.ROCKETMQ))
                for client in range(CLIENTS_MAX):
                    body = json.dumps(said(f"f{number}-{client}@1", **shape), separators=(",", ":")).encode()
                    flooding[-1].send(RequestCode.HEART_BEAT, {}, body)
                codes |= {answer_of(flooding[-1]).code for _ in range(CLIENTS_MAX)}
                if ResponseCode.SYSTEM_BUSY in codes:
                    break
            beside = p99(honest, "t0")
            grown = {name: anonymous(pids[name]) - size for name, size in before.items()}
            kept = node.counts.total(Total.KEPT)
            assert member.join("member@1", "members", {"t0": "*"}).code == 0, "who was there before stays"
            assert member.members("members") == ["member@1"]
        finally:
            for each in flooding:
                each.close()
    print(grown, kept >> 20)
    assert codes == {0, ResponseCode.SYSTEM_BUSY}
    assert node.refused(ResponseCode.SYSTEM_BUSY) > busy
    assert kept <= KEPT_MAX
    assert max(grown.values()) < GROWTH_MAX, grown
    check_unharmed(alone, beside)
    await_(lambda: node.counts.total(Total.KEPT) == 0, 30.0, "nothing is kept of who has gone")
    assert node.pids() == pids
    assert "is cut off" not in node.store.node_log.read_text(), "the links behind the port are everybody's"
