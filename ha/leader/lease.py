"""The lease process, where etcd decides the leader: holds the lease on a master, stands for election on a slave.

The lease decides who may try; the recorded in-sync set keeps acknowledged bytes safe (H14, H19).
"""

import math
from typing import Any, ClassVar, Final, Protocol

from towline.clock import boottime_ns
from towline.errors import EtcdUnavailable, MalformedKey
from towline.format.files.epochs import node_of, term_of
from towline.limits import SLEEP_MAX_MS
from towline.log.state.in_sync_file import ids_of
from towline.node.process.context import Node
from towline.node.roles.role_commands import AGREE, submit_command
from towline.route.etcd import Access, Etcd
from towline.runtime.doorbell import Doorbell
from towline.runtime.idle_sleep import IdleSleep
from towline.runtime.positions import Counter, Duty, Position
from towline.runtime.settings import Settings
from towline.runtime.settings_model import BrokerRole

from .election import Candidate
from .leadership import GroupView, Leader, Leadership, RecordedSet, facts_of, may_stand

NS_PER_MS: Final = 1_000_000
RENEWALS: Final = 3  # in a lease
MARGIN_SHARE: Final = 10  # of the lease: so much earlier than etcd this master takes it for over
RETRY_MS: Final = 100


class LeaseRole(Protocol):
    """The work of a lease process in its node's role."""

    def cycle(self, now_ms: int) -> int:
        """Does what is due; returns whether anything was done. Raises EtcdUnavailable, MalformedKey."""
        ...

    def due_ms(self, now_ms: int) -> int: ...

    def hand_over(self) -> None: ...


class LeaseAgent:
    """The duty cycle of the lease process."""

    duty: ClassVar[Duty] = Duty.LEASE

    def __init__(self, node: Node) -> None:
        self._node = node
        self._retry_at = 0
        self._logged = ""

    def on_start(self, bell: Doorbell) -> None:
        node = self._node
        self._bell = bell
        self._etcd = Etcd(node.settings.etcd_urls, max(0.2, node.settings.lease_ms / 6000), _access(node.settings))
        leadership = Leadership(self._etcd, node.settings.broker_cluster_name, node.settings.broker_name)
        follows = node.settings.broker_role is BrokerRole.SLAVE
        self._lease_role: LeaseRole = (
            Candidate(node, self._etcd, leadership) if follows else LeaseKeeper(node, self._etcd, leadership)
        )

    def do_work(self) -> int:
        now = self._node.clock.monotonic_ms()
        if now < self._retry_at:
            return 0
        try:
            done = self._lease_role.cycle(now)
        except (EtcdUnavailable, MalformedKey) as error:
            self._retry_at = self._node.clock.monotonic_ms() + RETRY_MS
            self._node.line.count(Counter.REFUSED)
            self._log_once(type(error).__name__, str(error))
            return 0
        if done:
            self._logged = ""
        return done

    def sleep_ms(self) -> int:
        now = self._node.clock.monotonic_ms()
        return max(1, min(SLEEP_MAX_MS, max(self._retry_at - now, self._lease_role.due_ms(now))))

    def wait(self, timeout_ms: int, rest: IdleSleep | None) -> bool:
        return self._bell.wait(timeout_ms, rest)

    def drain(self) -> bool:
        """Releases the leadership once put has stopped, so that another node may have it at once."""
        try:
            self._lease_role.hand_over()
        except (EtcdUnavailable, MalformedKey) as error:
            self._node.log.warning("the lease ends by itself: %s", error)
        return True

    def on_close(self) -> None:
        if hasattr(self, "_etcd"):
            self._etcd.close()

    def _log_once(self, kind: str, sentence: str) -> None:
        """Logs a trouble once, until it is over."""
        if kind != self._logged:
            self._node.log.error("%s", sentence)
        self._logged = kind


class LeaseKeeper:
    """The role on a master: renews the lease, publishes its end, and records the in-sync sets of the sender in etcd."""

    def __init__(self, node: Node, etcd: Etcd, leadership: Leadership) -> None:
        self._node, self._etcd, self._leadership = node, etcd, leadership
        self._own = node.settings.broker_id
        self._epoch = node.positions.get(Position.EPOCH)
        self._until = node.writer(Position.LEASE_UNTIL)
        self._kept = node.writer(Position.IN_SYNC_KEPT)
        self._ringer = node.ringer(Duty.SEND, Duty.PUT)
        self._says = facts_of(node.settings, node.runtime)
        self._every_ms = node.settings.lease_ms // RENEWALS
        self._leader: Leader | None = None
        self._renew_at = 0
        self._patient_until = node.clock.monotonic_ms() + node.settings.lease_ms
        self._over = False

    def cycle(self, now_ms: int) -> int:
        if self._over:
            return 0
        done = 0
        if self._leader is None and now_ms >= self._renew_at:
            self._renew_at = now_ms + RETRY_MS
            self._acquire(now_ms)
        if self._leader is not None and now_ms >= self._renew_at:
            if self._renew(self._leader):
                self._renew_at = now_ms + self._every_ms
            done = 1
        wanted = self._node.positions.get(Position.IN_SYNC_WANTED)
        if self._leader is not None and wanted and wanted != self._kept.get():
            self._record(wanted)
            done = 1
        return done

    def due_ms(self, now_ms: int) -> int:
        return SLEEP_MAX_MS if self._over else max(0, self._renew_at - now_ms)

    def hand_over(self) -> None:
        if self._leader is not None and not self._over:
            self._until.replace(0)
            self._etcd.revoke(self._leader.lease)

    def _acquire(self, now_ms: int) -> None:
        """Acquires the lease that this node won as a slave or held in an earlier process, or a vacant one."""
        view = self._leadership.read()
        if view.leader is None:
            self._claim(view)
            return
        if view.leader.epoch < self._epoch and view.leader.node != self._own and now_ms < self._patient_until:
            return  # promoted by hand: the one before us has promised to follow, and gives it back
        leader = self._leading(view)
        if leader is None or not self._renew(leader):
            return
        members, known = 1 << self._own, view.in_sync
        if known is not None and node_of(known.epoch) == self._own:  # it was master before: its set stands
            members = known.members
        begins = self._set_of(members)
        stands = leader.epoch == self._epoch and leader.role == self._says["broker_role"]
        stands = stands and known is not None and (known.epoch, known.floor) == (begins.epoch, begins.floor)
        if not stands and not self._leadership.begin_term(view, begins, self._says):
            return  # the next turn sees why
        self._leader, self._renew_at = leader, now_ms + self._every_ms
        self._publish_members(members)  # from here on puts are acknowledged

    def _claim(self, view: GroupView) -> None:
        """Claims a leadership nobody has held since: for a master promoted by hand, or one that renewed too late."""
        why = may_stand(view, self._own, founder=False)
        if why or view.term > term_of(self._epoch):
            self._step_down(why or f"a master of term {view.term} has been")
            return
        lease, _ = self._etcd.grant(math.ceil(self._node.settings.lease_ms / 1000))
        if not self._leadership.claim(view, self._epoch, lease, self._says):
            self._etcd.revoke(lease)
        self._renew_at = 0  # the next turn sees who has it

    def _leading(self, view: GroupView) -> Leader | None:
        """This node's own leadership; without one it is master no more."""
        leader = view.leader
        known = self._leader
        if leader is None or leader.node != self._own or (known is not None and leader.created != known.created):
            who = "nobody" if leader is None else f"node {leader.node} in epoch {leader.epoch}"
            self._step_down(f"the leadership is not ours any more: it has {who}")
            return None
        return leader

    def _renew(self, leader: Leader) -> bool:
        """Renews the lease; returns whether it lasts. Puts are accepted while it does."""
        lease_ms = self._node.settings.lease_ms
        began_ns = self._boottime_ns()  # before: etcd counts from when it hears of it (H19)
        ttl_s = self._etcd.keep_alive(leader.lease)
        if ttl_s <= 0:
            self._node.log.warning("the lease was over before it was renewed")
            self._until.replace(0)
            self._leader, self._renew_at = None, 0
            return False
        lasts_ms = min(lease_ms, 1000 * ttl_s) - lease_ms // MARGIN_SHARE
        self._until.replace(began_ns + lasts_ms * NS_PER_MS)
        self._node.line.count(Counter.BATCHES)
        return True

    def _record(self, wanted: int) -> None:
        """Tries to record a set; the next read of etcd shows whether it stands."""
        view = self._leadership.read()
        if self._leading(view) is None:
            return
        if view.in_sync is None or view.in_sync.members != wanted:
            self._leadership.record(view, self._set_of(wanted))
            view = self._leadership.read()
        if view.in_sync is not None and view.in_sync.members == wanted and self._leading(view) is not None:
            self._publish_members(wanted)

    def _set_of(self, members: int) -> RecordedSet:
        return RecordedSet(self._epoch, members, floor=self._node.settings.min_in_sync_replicas)

    def _publish_members(self, members: int) -> None:
        self._kept.replace(members)
        self._ringer.ring()
        self._node.log.info("etcd has recorded the in-sync set %s in epoch %d", ids_of(members), self._epoch)

    def _step_down(self, why: str) -> None:
        self._over, self._leader = True, None
        self._until.replace(0)
        self._node.log.warning("steps down: %s", why)
        self._order({"order": AGREE, "why": why})

    def _order(self, order: dict[str, Any]) -> None:
        submit_command(self._node.store.root, order)

    def _boottime_ns(self) -> int:
        return boottime_ns()


def build(node: Node) -> LeaseAgent:
    return LeaseAgent(node)


def _access(settings: Settings) -> Access:
    return Access(
        settings.etcd_ca_file,
        settings.etcd_cert_file,
        settings.etcd_key_file,
        settings.etcd_user,
        settings.etcd_password_file,
    )
