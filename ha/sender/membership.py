"""The in-sync set of a master as the sender keeps it: decided in `in_sync`, recorded here, told to the slaves."""

from collections.abc import Callable, Iterable
from dataclasses import astuple
from typing import Any, Final

from towline.errors import DiskFull, MalformedFrame, StoreNotWritable, SyncFailed
from towline.format.wire.frames import HA_SET, Kind, expect_set
from towline.log.state.in_sync_file import InSyncFile, InSyncRecord, Outside, ids_of
from towline.node.process.context import Node
from towline.runtime.positions import Duty, Position
from towline.runtime.settings import Settings
from towline.runtime.settings_model import BrokerRole

from .in_sync import InSync, Rules, began_with, first_record
from .peers import Peer

NEAR_SHARE: Final = 8  # of the window: a slave as near as that is waited for when it joins
LATE_SHARE: Final = 2  # of slave_timeout: a late slave goes before puts are answered FLUSH_SLAVE_TIMEOUT
LATE_MS_MIN: Final = 500  # less is no slow slave, but a busy machine

Say = Callable[[Peer, bytes], Any]


def rules_of(settings: Settings) -> Rules:
    """What the settings say about the set; see docs/decisions/0026."""
    catch_up_ms = settings.ha_max_time_slave_not_catchup
    waits_for_all = settings.all_ack_in_sync_state_set or settings.broker_role is not BrokerRole.SYNC_MASTER
    return Rules(
        own=settings.broker_id,
        floor=settings.in_sync_floor,
        least=settings.min_in_sync_replicas,
        enough=settings.in_sync_replicas,
        gap_max=settings.ha_max_gap_not_in_sync,
        near=min(settings.ha_window_bytes // NEAR_SHARE, settings.ha_max_gap_not_in_sync),
        catch_up_ms=catch_up_ms,
        late_ms=catch_up_ms
        if waits_for_all
        else min(catch_up_ms, max(LATE_MS_MIN, settings.slave_timeout // LATE_SHARE)),
        in_etcd=bool(settings.etcd_endpoints),
    )


class Membership:
    """`say` sends one frame to a slave. Slaves are told of a set by name: those that are its members or were."""

    def __init__(self, node: Node, say: Say, *, epoch: int, epoch_start: int) -> None:
        """Raises what the file of the set raises: a master that cannot record its set does not start."""
        self._node = node
        self._say = say
        self._epoch_start = epoch_start
        self._rules = rules_of(node.settings)
        self._file = InSyncFile(node.store)
        self._published = node.writer(Position.IN_SYNC)
        self._wanted = node.writer(Position.IN_SYNC_WANTED)
        self._lease = node.ringer(Duty.LEASE)
        self._by_node: dict[int, Peer] = {}
        self._told = ""
        self._decided_ms = 0
        self._first = first_record(self._rules, epoch, self._file.load())
        in_etcd = self._rules.in_etcd
        if not in_etcd:
            self._file.save(self._first)
            self._published.replace(self._first.members)
        self._set = InSync(self._rules, None if in_etcd else self._first, node.clock.monotonic_ms())

    def join(self, peer: Peer, end: int, now_ms: int) -> None:
        """It greeted and said where its log ends; it learns which set there is."""
        self._by_node[peer.node] = peer
        peer.begin(end, now_ms)
        record = self._set.asked or self._set.record
        if record is not None:
            self._tell(peer, record)

    def part(self, peer: Peer) -> None:
        if self._by_node.get(peer.node) is peer:
            del self._by_node[peer.node]

    def acknowledged(self, peer: Peer, head: Any) -> None:
        """Its answer to a set it was told of. Raises MalformedFrame for one that we never recorded."""
        _, epoch, version, master, members, _ = expect_set(head)
        record = self._set.asked or self._set.record
        if record is None or (epoch, master) != (record.epoch, record.master) or version > record.version:
            raise MalformedFrame(f"it has recorded set {version} of epoch {epoch}, which is not ours")
        if version == record.version and members != record.members:
            raise MalformedFrame(f"it has recorded the nodes {ids_of(members)} and was told {record.ids}")
        self._set.acknowledged(peer.node, (epoch, version))

    def turn(self, peers: Iterable[Peer], replicated: int, end: int, now_ms: int) -> None:
        """Who joins and who leaves by now, where the log is replicated up to `replicated`."""
        stood = self._set.stood_ms(now_ms)
        for peer in peers:
            peer.measure(end, now_ms, stood)
        if self._rules.in_etcd:
            self._hear_of_etcd()
        if now_ms != self._decided_ms:  # a busy sender has many turns in a millisecond
            self._decided_ms = now_ms
            asked = self._set.turn(
                self._by_node, replicated=replicated, end=end, epoch_start=self._epoch_start, now_ms=now_ms
            )
            if asked is not None:
                self._record(asked)
        if self._set.complete:
            self._settle()

    def replicated(self, end: int) -> int:
        """Up to where a log that ends there is replicated; 0 while that cannot be said."""
        began = began_with(self._rules, self._set.record, self._epoch_start)
        return max(self._set.replicated(self._by_node, end), began)

    def outside(self, peer: Peer, end: int) -> Outside:
        """Why it is no member, if it is none."""
        return self._set.outside(peer.node, peer, end)

    def _record(self, asked: InSyncRecord) -> None:
        if self._rules.in_etcd:
            self._wanted.replace(asked.members)
            self._lease.ring()
            return
        for node in asked.ids:
            if node in self._by_node:
                self._tell(self._by_node[node], asked)

    def _hear_of_etcd(self) -> None:
        kept = self._node.positions.get(Position.IN_SYNC_KEPT)
        if not kept:
            return
        known = self._set.record is not None
        self._set.kept(kept, self._first, self._wanted.get())
        if not known and self._set.record is not None:
            self._keep(self._set.record)
            self._publish(self._set.record)

    def _settle(self) -> None:
        """The own file is the last: a crash before it leaves this master with a set that asks for more.

        With etcd it decides nothing, and a disk that is full keeps nobody out.
        """
        asked = self._set.asked
        assert asked is not None
        if self._keep(asked) or self._rules.in_etcd:
            self._publish(self._set.settle())

    def _keep(self, record: InSyncRecord) -> bool:
        try:
            self._file.save(record)
        except (StoreNotWritable, SyncFailed, DiskFull) as error:
            self._complain(f"the in-sync set {record.ids} is not kept: {error}")
            return False
        self._told = ""
        return True

    def _publish(self, record: InSyncRecord) -> None:
        self._published.replace(record.members)
        size, wanted = record.members.bit_count(), self._node.settings.in_sync_replicas
        level = self._node.log.warning if size < wanted else self._node.log.info
        level("in sync are now the nodes %s%s", record.ids, ": degraded" if size < wanted else "")
        for peer in list(self._by_node.values()):
            self._tell(peer, record)

    def _tell(self, peer: Peer, record: InSyncRecord) -> None:
        head = HA_SET.pack(Kind.HA_SET, *astuple(record))
        self._say(peer, head)

    def _complain(self, sentence: str) -> None:
        if sentence != self._told:
            self._told = sentence
            self._node.log.error("%s", sentence)
