"""Whoever connects to the HA port and lies about what it holds loses its link, and nothing counts as replicated (H14).

The slave is a test on a real socket; the master is a node under SYNC_MASTER that waits for it.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.processes.nodes import TestNode, ended, ending
from tests.processes.stopping import stopped
from tests.processes.waiting import await_
from tests.processes.wire import WireClient, records_of
from towline.errors import LinkRefused
from towline.format.files.epochs import number_of
from towline.format.wire.frames import ASK, HA_ACK, HA_DATA, HA_SET, Kind, expect, json_part, kind_of, read_json
from towline.format.wire.status import PutStatus
from towline.link.context import close_context, new_context
from towline.link.dealer import Link
from towline.link.poller import Poller
from towline.log.state.identity import IdentityFile
from towline.log.state.in_sync_file import InSyncFile
from towline.runtime.positions import Counter, Duty, Position

TOPIC = b"orders"
TIMEOUT_MS = 700
APPEARS_S = 60.0
CREDIT = 1 << 40
TURNS = 20
SETTINGS = {
    "broker_role": "SYNC_MASTER",
    "ha_listen_port": 0,
    "slave_timeout": TIMEOUT_MS,
    "ha_send_heartbeat_interval": 100,  # a link that has gone is noticed when something is sent on it
}


@pytest.fixture(scope="module")
def master(tmp_path_factory) -> Iterator[TestNode]:
    node = TestNode("master", tmp_path_factory.mktemp("lies") / "master", **SETTINGS)
    ending = ended(node)
    next(ending)
    node.start()
    client = WireClient(node.endpoint)
    client.create_topic(TOPIC.decode(), 1)
    client.close()
    yield node
    next(ending, None)


class FakeSlave:
    """Says what it is told to. It takes what it is sent, and keeps where that ended."""

    def __init__(self, master: TestNode, **facts: object) -> None:
        self.master = master
        self.context = new_context()
        identity = IdentityFile(master.store.root).load()
        greeting = {
            "role": "slave",
            "cluster": identity.cluster,
            "store": "",
            "name": "towline-5",
            "node": 5,
            "instance": 1,
            "epochs": [],
            "end": 0,
            "empty": True,
            "segment_size": 4 << 20,
            "promised": 0,
            "before": None,
        }
        self.link = Link(self.context, f"ipc://{master.runtime}/ha.sock", greeting | facts, frame_size_max=32 << 20)
        self.poller = Poller(self.link)
        self.sent = 0
        self.told = ""  # why its link was ended
        self.closed = False

    def join(self) -> "FakeSlave":
        """Holds the whole log, honestly; the master counts on it."""
        welcome = self.link.greet(5000)
        self.epoch, self.sent = welcome["epoch"], welcome["start"]
        self.say(self.sent, self.sent)
        await_(self.follow, APPEARS_S, "the slave has the log")
        await_(self._is_level, APPEARS_S, "all of it counts as replicated")  # or what comes next waits for that
        return self

    def _is_level(self) -> bool:
        self.follow()
        return self.sent == self.master.at(Position.APPENDED) == self.master.at(Position.REPLICATED)

    def say(self, appended: int, flushed: int, **changes: int) -> None:
        assert self.link.send([HA_ACK.pack(Kind.HA_ACK, changes.get("epoch", self.epoch), appended, flushed, CREDIT)])

    def follow(self) -> bool:
        """Acknowledges what comes. True once it is in the in-sync set as the master told it."""
        recorded = False
        for parts in self.received():
            if kind_of(parts[0]) == Kind.HA_SET:
                _, *fields = expect(HA_SET, parts[0])
                self.record = fields
                self.link.send([HA_SET.pack(Kind.HA_SET_ACK, *fields)])
                recorded = bool(fields[3] >> 5 & 1)
        self.say(self.sent, self.sent)
        return recorded

    def received(self) -> list:
        found = []
        self.poller.poll(20)
        while (parts := self._next()) is not None:
            found.append(parts)
            if kind_of(parts[0]) == Kind.HA_DATA:
                _, size, _, offset, _ = expect(HA_DATA, parts[0])
                self.sent = offset + size
        return found

    def _next(self) -> list | None:
        try:
            return self.link.receive()
        except LinkRefused as refused:
            self.told = refused.sentence
            return None

    def take(self, upto: int) -> None:
        """Receives without a word, up to `upto` bytes of the log."""
        await_(lambda: self.received() is not None and self.sent >= upto, APPEARS_S, "the bytes are here")

    def ask(self, question: dict[str, object]) -> dict[str, object]:
        """The answer to a question that the master reads behind all that was said before."""
        assert self.link.send([ASK.pack(Kind.ASK, 0), json_part(question)])

        def answered() -> dict[str, object] | None:
            answers = [parts for parts in self.received() if kind_of(parts[0]) == Kind.ANSWER]
            return read_json(answers[0][1]) if answers else None

        return await_(answered, APPEARS_S, "the master answers")

    def lost(self) -> bool:
        self.received()
        return self.link.lost

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self.link.close()
            close_context(self.context)


@pytest.fixture
def slave(master):
    made = FakeSlave(master).join()
    yield made
    made.close()
    await_(lambda: not connected(master), APPEARS_S, "the master knows that it has gone")


def connected(master):
    return [slave.node for slave in master.positions.slaves() if slave.connected]


def refusals(master):
    return master.positions.duty(Duty.SEND).counter(Counter.REFUSED)


@pytest.fixture
def waiting(master, slave):
    """A put that waits for the slave, which has its bytes and says nothing."""
    client = WireClient(master.endpoint)
    client.send(records_of(TOPIC, 3))
    await_(lambda: master.at(Position.APPENDED) > master.at(Position.REPLICATED), APPEARS_S, "it is stored")
    slave.take(master.at(Position.APPENDED))
    yield client
    client.close()


def test_an_honest_slave_is_believed(master, slave, waiting):
    slave.say(slave.sent, slave.sent)
    assert waiting.answer().status == PutStatus.PUT_OK
    assert master.at(Position.REPLICATED) == master.at(Position.APPENDED)


def test_bytes_in_memory_do_not_count_where_the_disk_was_promised(master, slave, waiting):
    before = master.at(Position.REPLICATED)
    slave.say(slave.sent, before)
    assert waiting.answer().status == PutStatus.FLUSH_SLAVE_TIMEOUT
    assert master.at(Position.REPLICATED) == before


LIES = [
    pytest.param(lambda s: s.say(s.sent + 1, s.sent), "more than was sent", id="more than was sent on this link"),
    pytest.param(lambda s: s.say(1 << 62, 1 << 62), "more than was sent", id="any number at all"),
    pytest.param(lambda s: s.say(s.sent - 1, 0), "takes back", id="less than it had acknowledged"),
    pytest.param(lambda s: s.say(s.sent, s.sent + 1), "more is on disk", id="more on its disk than in its log"),
    pytest.param(lambda s: s.say(s.sent, s.sent, epoch=s.epoch + 256), "follows epoch", id="another epoch"),
    pytest.param(lambda s: s.say(-1, -1), "takes back", id="a number below zero"),
    pytest.param(
        lambda s: s.link.send([HA_SET.pack(Kind.HA_SET_ACK, s.epoch, s.record[1] + 1, 0, *s.record[3:])]),
        "not ours",
        id="an in-sync set that was never recorded",
    ),
    pytest.param(
        lambda s: s.link.send([HA_SET.pack(Kind.HA_SET_ACK, s.epoch, s.record[1], 0, 1 << 5, s.record[4])]),
        "was told",
        id="another in-sync set than it was told",
    ),
    pytest.param(lambda s: s.link.send([HA_ACK.pack(Kind.HA_ACK, 0, 0, 0, 0)[:9]]), "a head of", id="half a frame"),
    pytest.param(lambda s: s.link.send([HA_DATA.pack(Kind.HA_DATA, 0, s.epoch, s.sent, s.sent)]), "no word", id="data"),
]


@pytest.mark.parametrize(("lie", "said"), LIES)
def test_a_lie_costs_the_link_is_counted_and_moves_nothing(master, slave, waiting, lie, said):
    replicated, refused = master.at(Position.REPLICATED), refusals(master)
    slave.say(slave.sent, replicated)  # all of it in its memory, the rest of it not on its disk yet
    lie(slave)
    await_(slave.lost, APPEARS_S, "the link is cut")
    assert waiting.answer().status in (PutStatus.FLUSH_SLAVE_TIMEOUT, PutStatus.SLAVE_NOT_AVAILABLE)
    assert master.at(Position.REPLICATED) == replicated
    assert refusals(master) > refused
    assert said in slave.told
    assert f"is cut: {slave.told}" in master.store.node_log.read_text()


@contextlib.contextmanager
def promised_to_another(directory: Path, **settings: object) -> Iterator[tuple[TestNode, "FakeSlave", WireClient]]:
    """A master that promises another node to follow it, while a put waits for its slave, which has the bytes.

    Its supervisor stands still, or it had another role at once.
    """
    node = TestNode("master", directory / "master", **SETTINGS | settings)
    with contextlib.ExitStack() as stack:
        stack.enter_context(ending(node))
        node.start()
        client = WireClient(node.endpoint)
        stack.callback(client.close)
        client.create_topic(TOPIC.decode(), 1)
        slave = FakeSlave(node).join()
        stack.callback(slave.close)
        client.send(records_of(TOPIC, 3))
        await_(lambda: node.at(Position.APPENDED) > node.at(Position.REPLICATED), APPEARS_S, "it is stored")
        slave.take(node.at(Position.APPENDED))
        stack.enter_context(stopped(node.pids()["supervisor"]))
        candidate = WireClient(f"ipc://{node.runtime}/ha.sock")
        stack.callback(candidate.close)
        assert candidate.ask({"op": "promise", "epoch": number_of(1000, 1), "node": 1})["granted"] is True
        yield node, slave, candidate


def test_an_acknowledgement_that_comes_behind_a_promise_confirms_nothing(tmp_path):
    """Another one may be master by then, without these bytes; so no reader is to see them."""
    with promised_to_another(tmp_path) as (node, slave, _):
        before = node.at(Position.REPLICATED)
        slave.say(slave.sent, slave.sent)
        assert slave.ask({"op": "state"})["confirmed"] == before  # asked behind it on the same link
        assert node.at(Position.REPLICATED) == before < node.at(Position.APPENDED)


def test_a_slave_that_leaves_behind_a_promise_stays_in_the_recorded_set(tmp_path):
    """Whoever was promised to goes by the set that it was told of: nobody changes it behind its back."""
    floor = {"total_replicas": 2, "in_sync_replicas": 2, "min_in_sync_replicas": 1}
    with promised_to_another(tmp_path, enable_auto_in_sync_replicas=True, **floor) as (node, slave, candidate):
        before = InSyncFile(node.store).load()
        slave.close()
        await_(lambda: not connected(node), APPEARS_S, "the master knows that it has gone")
        for _ in range(TURNS):
            said = candidate.ask({"op": "state"})  # each in a turn of its own
        assert InSyncFile(node.store).load() == before
        assert (said["in_sync"], node.at(Position.IN_SYNC)) == ([0, 5], 0b100001)


@pytest.mark.parametrize(
    ("facts", "code"),
    [
        pytest.param({"cluster": "another"}, "CLUSTER", id="another cluster"),
        pytest.param({"store": "0" * 32}, "STORE", id="another store"),
        pytest.param({"node": 0}, "NODE_TAKEN", id="the master's own number"),
        pytest.param({"node": 63}, "FACTS", id="a number that no node can have"),
        pytest.param({"promised": 1 << 40}, "EPOCH", id="a promise to a later master"),
    ],
)
def test_a_stranger_is_refused_before_it_can_say_anything(master, facts, code):
    replicated, refused = master.at(Position.REPLICATED), refusals(master)
    stranger = FakeSlave(master, **facts)
    with pytest.raises(LinkRefused) as caught:
        stranger.link.greet(5000)
    stranger.close()
    assert caught.value.code == code
    assert refusals(master) == refused + 1
    assert f"is refused ({code}): {caught.value.sentence}" in master.store.node_log.read_text()
    assert master.at(Position.REPLICATED) == replicated
    assert not connected(master)


def test_a_learner_is_sent_everything_and_counts_for_nothing(master):
    learner = FakeSlave(master, node=6, name="towline-6", learner=True)
    welcome = learner.link.greet(5000)
    learner.epoch, learner.sent = welcome["epoch"], welcome["start"]
    learner.say(learner.sent, learner.sent)
    client = WireClient(master.endpoint)
    client.send(records_of(TOPIC, 3))
    before = master.at(Position.REPLICATED)

    def follows() -> bool:
        learner.follow()
        return learner.sent >= master.at(Position.APPENDED) > before

    await_(follows, APPEARS_S, "it has the bytes")
    silent_by_now = PutStatus.SLAVE_NOT_AVAILABLE
    assert client.answer().status in (PutStatus.FLUSH_SLAVE_TIMEOUT, silent_by_now)
    assert master.at(Position.REPLICATED) == before
    client.close()
    learner.close()
    await_(lambda: not connected(master), APPEARS_S, "the master knows that it has gone")
