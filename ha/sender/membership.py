"""The sender's in-sync set: decided in `in_sync`, recorded here, sent to the slaves."""

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

from .in_sync import InSync, InSyncRules, began_with, first_record
from .peers import Peer

NEAR_SHARE: Final = 8  # of the window: a slave as near as that is waited for when it joins
LATE_SHARE: Final = 2  # of slave_timeout: a late slave goes before puts are answered FLUSH_SLAVE_TIMEOUT
LATE_MS_MIN: Final = 500  # less is no slow slave, but a busy machine

SendFrame = Callable[[Peer, bytes], Any]


def rules_of(settings: Settings) -> InSyncRules:
    """The rules of the set from the settings; see docs/decisions/0026."""
    catch_up_ms = settings.ha_max_time_slave_not_catchup
    waits_for_all = settings.all_ack_in_sync_state_set or settings.broker_role is not BrokerRole.SYNC_MASTER
    return InSyncRules(
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
    """Keeps and records the set. `send` sends one frame to a slave; members and former members are sent each set."""

    def __init__(
        self, node: Node, send: SendFrame, *, epoch: int, epoch_start: int, file: InSyncFile | None = None
    ) -> None:
        """Raises what the file of the set raises: a master that cannot record its set does not start."""
        self._node = node
        self._send = send
        self._epoch_start = epoch_start
        self._rules = rules_of(node.settings)
        self._file = InSyncFile(node.store) if file is None else file
        self._published = node.writer(Position.IN_SYNC)
        self._wanted = node.writer(Position.IN_SYNC_WANTED)
        self._lease = node.ringer(Duty.LEASE)
        self._by_node: dict[int, Peer] = {}
        self._logged = ""
        self._decided_ms = 0
        self._first = first_record(self._rules, epoch, self._file.load())
        in_etcd = self._rules.in_etcd
        if not in_etcd:
            self._file.save(self._first)
            self._published.replace(self._first.members)
        self._set = InSync(self._rules, None if in_etcd else self._first, node.clock.monotonic_ms())

    def join(self, peer: Peer, end: int, now_ms: int) -> None:
        """Adds a greeted slave whose log end is known, and sends it the set."""
        self._by_node[peer.node] = peer
        peer.begin(end, now_ms)
        record = self._set.asked or self._set.record
        if record is not None:
            self._send_set(peer, record)

    def leave(self, peer: Peer) -> None:
        if self._by_node.get(peer.node) is peer:
            del self._by_node[peer.node]

    def promoting(self, node: object) -> None:
        """A node has asked what it needs to know before it is promoted. Only a slave that is here is waited for."""
        if type(node) is int and node in self._by_node:
            self._set.promoting(node, self._node.clock.monotonic_ms())

    def acknowledged(self, peer: Peer, head: Any) -> None:
        """Handles a slave's acknowledgement of a set. Raises MalformedFrame for a set that was never recorded here."""
        _, epoch, version, master, members, _ = expect_set(head)
        record = self._set.asked or self._set.record
        if record is None or (epoch, master) != (record.epoch, record.master) or version > record.version:
            raise MalformedFrame(f"it has recorded set {version} of epoch {epoch}, which is not ours")
        if version == record.version and members != record.members:
            raise MalformedFrame(f"it has recorded the nodes {ids_of(members)} and was told {record.ids}")
        self._set.acknowledged(peer.node, (epoch, version))

    def cycle(self, peers: Iterable[Peer], replicated: int, end: int, now_ms: int) -> None:
        """Decides who joins and who leaves, where the log is replicated up to `replicated`."""
        paused_ms = self._set.paused_ms(now_ms)
        for peer in peers:
            peer.measure(end, now_ms, paused_ms)
        if self._rules.in_etcd:
            self._adopt_etcd_set()
        if now_ms != self._decided_ms:  # a busy sender has many turns in a millisecond
            self._decided_ms = now_ms
            asked = self._set.cycle(
                self._by_node, replicated=replicated, end=end, epoch_start=self._epoch_start, now_ms=now_ms
            )
            if asked is not None:
                self._record(asked)
        if self._set.complete:
            self._commit()

    def replicated(self, end: int) -> int:
        """The offset up to which a log that ends at `end` is replicated; 0 while that is unknown."""
        began = began_with(self._rules, self._set.record, self._epoch_start)
        return max(self._set.replicated(self._by_node, end), began)

    def outside(self, peer: Peer, end: int) -> Outside:
        """Why the slave is no member, if it is none."""
        return self._set.outside(peer.node, peer, end)

    def _record(self, asked: InSyncRecord) -> None:
        if self._rules.in_etcd:
            self._wanted.replace(asked.members)
            self._lease.ring()
            return
        for node in asked.ids:
            if node in self._by_node:
                self._send_set(self._by_node[node], asked)

    def _adopt_etcd_set(self) -> None:
        recorded = self._node.positions.get(Position.IN_SYNC_KEPT)
        if not recorded:
            return
        known = self._set.record is not None
        self._set.recorded(recorded, self._first, self._wanted.get())
        if not known and self._set.record is not None:
            self._save(self._set.record)
            self._publish(self._set.record)

    def _commit(self) -> None:
        """Saves the own file last: a crash before leaves this master with a set that requires more.

        With etcd the file decides nothing, and a full disk keeps nobody out.
        """
        asked = self._set.asked
        assert asked is not None
        if self._save(asked) or self._rules.in_etcd:
            self._publish(self._set.commit())

    def _save(self, record: InSyncRecord) -> bool:
        try:
            self._file.save(record)
        except (StoreNotWritable, SyncFailed, DiskFull) as error:
            self._log_once(f"the in-sync set {record.ids} is not kept: {error}")
            return False
        self._logged = ""
        return True

    def _publish(self, record: InSyncRecord) -> None:
        self._published.replace(record.members)
        size, wanted = record.members.bit_count(), self._node.settings.in_sync_replicas
        level = self._node.log.warning if size < wanted else self._node.log.info
        level("in sync are now the nodes %s%s", record.ids, ": degraded" if size < wanted else "")
        for peer in list(self._by_node.values()):
            self._send_set(peer, record)

    def _send_set(self, peer: Peer, record: InSyncRecord) -> None:
        head = HA_SET.pack(Kind.HA_SET, *astuple(record))
        self._send(peer, head)

    def _log_once(self, sentence: str) -> None:
        if sentence != self._logged:
            self._logged = sentence
            self._node.log.error("%s", sentence)
