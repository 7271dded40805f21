"""Nodes that crash, part, restart, are promoted and change their in-sync set: no acknowledged byte is ever missing.

The log is a list of tokens; what was acknowledged must be the beginning of whatever is acknowledged later, and what was
once visible on any node the beginning of whatever is visible later, and of each promoted log. The rules of joining and
leaving are those of ha/sender/in_sync.py: a larger set is recorded on who joins, a smaller one on all that remain, and
acknowledgements wait for everybody who is in the old or the new one meanwhile.
"""

from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from towline.errors import AloneRefused, PromotionRefused
from towline.format.files.epochs import IMPLIED, Epochs, common_point, cut, node_of, opened, taken_over
from towline.ha.sender.in_sync import InSyncRules, began_with
from towline.log.state.in_sync_file import InSyncRecord, mask_of
from towline.log.state.role_file import MASTER, SLAVE
from towline.node.roles.agreement import Report, may_promote, next_epoch, on_start
from towline.node.roles.promise import NOTHING, Promise, kept

NODES = 3
FLOOR = 2
numbers = st.integers(0, NODES - 1)
reachable = st.sampled_from([{0, 1, 2}, {0, 1}, {0, 2}, {1, 2}, {0}, {1}, {2}, set()])


@dataclass
class Node:
    number: int
    log: list[int] = field(default_factory=list)
    epochs: Epochs = IMPLIED
    promise: Promise = NOTHING
    record: InSyncRecord | None = None
    role: str = SLAVE
    alive: bool = True
    epoch: int = 0  # of the master that it is or follows
    confirmed: int = 0
    # of a master, in memory
    counted: set[int] = field(default_factory=set)  # who is waited for
    held: dict[int, int] = field(default_factory=dict)  # what linked slaves acknowledged

    @property
    def fenced(self) -> bool:
        return self.promise.epoch > self.epoch

    @property
    def rules(self) -> InSyncRules:
        """What of them says when a master may show what it began with."""
        times = {"catch_up_ms": 0, "late_ms": 0}
        return InSyncRules(own=self.number, floor=FLOOR, least=FLOOR, enough=FLOOR, gap_max=1000, near=0, **times)

    @property
    def visible(self) -> list[int]:
        return self.log[: self.confirmed]

    def report(self) -> Report:
        return Report(
            node=self.number,
            role=self.role,
            following=self.epoch,
            epochs=self.epochs,
            end=len(self.log),
            confirmed=self.confirmed,
            promised=self.promise.epoch,
            promised_node=self.promise.node,
            promised_floor=self.promise.floor,
            in_sync=self.record,
            floor=FLOOR,
        )


class Cluster(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.nodes = [Node(number) for number in range(NODES)]
        self.acknowledged: list[int] = []
        self.seen: list[int] = []  # by readers of any node
        self.tokens = 0
        self.masters: dict[int, int] = {}

    @initialize()
    def begin(self) -> None:
        self._be_master(self.nodes[0], next_epoch(self.nodes[0].report(), [], promotion=False), promoted=False)
        self.work({1, 2}, 0, joins=True)
        self.work({1, 2}, 1, joins=True)

    # --- roles

    def _be_master(self, node: Node, epoch: int, *, promoted: bool) -> None:
        assert self.masters.setdefault(epoch, node.number) == node.number, "two masters of one epoch"
        assert epoch > max(entry.number for entry in cut(node.epochs, len(node.log)) or IMPLIED)
        node.epochs = opened(node.epochs, epoch, len(node.log))
        node.role, node.epoch = MASTER, epoch
        recorded = node.record is not None and node.record.master == node.number and not promoted
        members = node.record.members if recorded and node.record is not None else mask_of([node.number])
        node.record = InSyncRecord(epoch, 0, node.number, members, FLOOR)
        node.held, node.counted = {}, set(node.record.ids)

    def _answers(self, node: Node, peers: set[int]) -> list[Node]:
        return [self.nodes[peer] for peer in sorted(peers) if peer != node.number and self.nodes[peer].alive]

    @rule(number=numbers)
    def crash(self, number: int) -> None:
        self.nodes[number].alive = False
        for node in self.nodes:
            node.held.pop(number, None)

    @rule(number=numbers, peers=reachable)
    def restart(self, number: int, peers: set[int]) -> None:
        node = self.nodes[number]
        for other in self.nodes:
            other.held.pop(number, None)
        node.alive, node.held = True, {}
        node.epochs = cut(node.epochs, len(node.log)) or IMPLIED
        node.epoch = node.epochs[-1].number
        if node.role == MASTER:
            self._agree(node, peers)

    @rule(number=numbers, peers=reachable)
    def agree(self, number: int, peers: set[int]) -> None:
        node = self.nodes[number]
        if node.alive and node.role == MASTER and node.fenced:
            node.held = {}
            self._agree(node, peers)

    def _agree(self, node: Node, peers: set[int]) -> None:
        answers = [peer.report() for peer in self._answers(node, peers)]
        silent = [str(peer) for peer in range(NODES - 1 - len(answers))]
        try:
            verdict = on_start(node.report(), answers, silent, floor=FLOOR, alone=False)
        except AloneRefused:
            raise AssertionError("with two nodes needed nobody has to refuse") from None
        if verdict.role == SLAVE:
            node.role, node.held = SLAVE, {}
            return
        epoch = next_epoch(node.report(), answers, promotion=False)
        node.promise = kept(Promise(epoch, node.number, FLOOR), node.promise, node.record)
        self._be_master(node, epoch, promoted=False)

    @rule(number=numbers, first=reachable, second=reachable)
    def promote(self, number: int, first: set[int], second: set[int]) -> None:
        node = self.nodes[number]
        if not node.alive or (node.role == MASTER and not node.fenced):
            return
        for other in self.nodes:
            other.held.pop(number, None)
        answers = {peer.number: peer.report() for peer in self._answers(node, first)}
        known, before = set(range(NODES)), node.promise
        try:
            may_promote(node.report(), answers, answers.keys(), known, floor=FLOOR)
            epoch = next_epoch(node.report(), answers.values(), promotion=True)
            node.promise = kept(Promise(epoch, number, FLOOR), node.promise, node.record)
            promising = self._answers(node, second)
            granted = {peer.number for peer in promising if self._grant(peer, node.promise)}
            answers = {peer.number: peer.report() for peer in promising}
            may_promote(node.report(), answers, granted, known, floor=FLOOR)
        except PromotionRefused:
            node.promise, node.role = before, SLAVE
            return
        assert node.log[: len(self.seen)] == self.seen, "what was visible is not in the promoted log"
        self._be_master(node, epoch, promoted=True)

    @rule(number=numbers, voter=numbers)
    def replace(self, number: int, voter: int) -> None:
        """Whoever is master dies with a tail that one node has, which takes its place, alone for a while: it shows
        what it may.
        """
        self.work({number}, 1, joins=False)
        for node in self.nodes:
            if node.number != number and node.role == MASTER:
                self.crash(node.number)
        for back in (number, voter):
            self.restart(back, {number, voter})
        self.promote(number, {voter}, {voter})
        self.work(set(), 0, joins=False)

    def _grant(self, peer: Node, asked: Promise) -> bool:
        if asked.epoch <= max(peer.promise.epoch, peer.epoch):
            return False
        peer.promise = kept(asked, peer.promise, peer.record)
        return True

    # --- the log

    def _live(self, number: int) -> Node | None:
        node = self.nodes[number]
        return node if node.alive and node.role == MASTER else None

    @rule(peers=reachable, count=st.integers(0, 2), joins=st.booleans())
    def work(self, peers: set[int], count: int, joins: bool) -> None:
        """A while in which some slaves reach every master there is: they follow, join, and it acknowledges."""
        for master in list(self.nodes):
            for peer in sorted(peers):
                if peer not in master.held:
                    self.link(master.number, peer)
            self.append(master.number, count)
            for peer in sorted(peers):
                self.replicate(master.number, peer, 1000)
                if joins:
                    self.join(master.number, peer)
            self.acknowledge(master.number)

    @rule(number=numbers)
    def shed(self, number: int) -> None:
        """A slave is cut off, and its master goes on without it."""
        for master in self.nodes:
            self.cut_off(master.number, number)
            self.leave(master.number, number)

    def append(self, number: int, count: int) -> None:
        master = self._live(number)
        if master is None or master.fenced or len({number, *master.held} & set(master.record.ids)) < FLOOR:
            return
        for _ in range(count):
            self.tokens += 1
            master.log.append(self.tokens)

    def link(self, number: int, slave: int) -> None:
        """The handshake: who knows a higher epoch deposes the master; a tail that is not the master's is cut off."""
        master, peer = self._live(number), self.nodes[slave]
        if master is None or slave == number or not peer.alive or peer.role == MASTER:
            return
        newest = (cut(peer.epochs, len(peer.log)) or IMPLIED)[-1].number
        if max(newest, peer.promise.epoch) > master.epoch:
            if max(newest, peer.promise.epoch) > master.promise.epoch:
                heard = max(newest, peer.promise.epoch)
                master.promise = Promise(heard, node_of(heard))
            return
        for other in self.nodes:
            other.held.pop(slave, None)
        common = common_point(master.epochs, len(master.log), peer.epochs, len(peer.log))
        point = common.point if common is not None else 0
        while peer.log[:point] != master.log[:point]:  # what the tail's check finds
            common = common_point(master.epochs, len(master.log), peer.epochs, len(peer.log), before=common.number)
            point = common.point if common is not None else 0
        if point < len(peer.log) and point < peer.confirmed:
            return
        del peer.log[point:]
        peer.epochs = taken_over(cut(peer.epochs, point), master.epochs, point)
        peer.epoch = master.epoch
        master.held[slave] = point

    def replicate(self, number: int, slave: int, count: int) -> None:
        master, peer = self._live(number), self.nodes[slave]
        if master is None or slave not in master.held or peer.promise.epoch > master.epoch:
            return
        peer.log += master.log[len(peer.log) : len(peer.log) + count]
        peer.epochs = taken_over(peer.epochs, master.epochs, len(peer.log))
        peer.confirmed = max(peer.confirmed, min(master.confirmed, len(peer.log)))
        master.held[slave] = len(peer.log)

    def cut_off(self, number: int, slave: int) -> None:
        self.nodes[number].held.pop(slave, None)

    def acknowledge(self, number: int) -> None:
        master = self._live(number)
        if master is None or master.fenced:
            return
        began = began_with(master.rules, master.record, master.epochs[-1].start)
        master.confirmed = max(master.confirmed, began)
        if len(master.record.ids) < FLOOR:
            return
        others = master.counted - {number}
        if others - master.held.keys():
            return
        end = min([len(master.log), *(master.held[other] for other in others)])
        known = min(len(self.acknowledged), end)
        assert master.log[:known] == self.acknowledged[:known], "it acknowledges another history"
        if end > len(self.acknowledged):
            self.acknowledged = master.log[:end]
        master.confirmed = max(master.confirmed, end)

    # --- the in-sync set

    def _record_on(self, record: InSyncRecord, nodes: set[int], master: Node) -> bool:
        """Whether all of them recorded it; those that are linked do, though others do not."""
        missing = False
        for node in nodes - {master.number}:
            peer = self.nodes[node]
            if node not in master.held or peer.promise.epoch > master.epoch:
                missing = True
            elif peer.record is None or record.order > peer.record.order:
                peer.record = record
        return not missing

    def join(self, number: int, slave: int) -> None:
        master = self._live(number)
        if master is None or slave not in master.held or slave in master.record:
            return
        start = master.epochs[-1].start
        if master.held[slave] < max(master.confirmed, start):
            return
        record = self._next(master, {*master.record.ids, slave})
        master.counted |= {slave}
        if self._record_on(record, {slave}, master):
            master.record, master.counted = record, set(record.ids)

    def leave(self, number: int, slave: int) -> None:
        master = self._live(number)
        if master is None or slave == number or slave not in master.record:
            return
        remaining = set(master.record.ids) - {slave}
        if len(remaining) < FLOOR:
            return
        record = self._next(master, remaining)
        if self._record_on(record, remaining, master):
            master.record, master.counted = record, set(record.ids)

    def _next(self, master: Node, members: set[int]) -> InSyncRecord:
        self.versions = getattr(self, "versions", 0) + 1
        return InSyncRecord(master.epoch, self.versions, master.number, mask_of(members), FLOOR)

    # --- what must hold

    @invariant()
    def what_was_once_visible_never_disappears(self) -> None:
        for node in self.nodes:
            both = min(len(node.visible), len(self.seen))
            assert node.visible[:both] == self.seen[:both], f"node {node.number} shows another history"
            self.seen = max(self.seen, node.visible, key=len)

    @invariant()
    def what_was_acknowledged_stands_in_enough_logs(self) -> None:
        holders = [node for node in self.nodes if node.log[: len(self.acknowledged)] == self.acknowledged]
        assert len(holders) >= FLOOR or not self.acknowledged


TestCluster = Cluster.TestCase
TestCluster.settings = settings(max_examples=300, stateful_step_count=40, deadline=None)


def test_a_tail_that_one_promoted_master_had_for_itself_is_not_shown_before_another_one_is_promoted():
    """The machine does this too, when it comes upon it."""
    cluster = Cluster()
    cluster.begin()
    cluster.replace(1, 2)
    cluster.what_was_once_visible_never_disappears()
    assert cluster.nodes[1].role == MASTER
    assert len(cluster.nodes[1].log) > len(cluster.nodes[1].visible), "it has a tail for itself"
    cluster.replace(2, 0)
    cluster.what_was_once_visible_never_disappears()
    assert cluster.nodes[2].role == MASTER
