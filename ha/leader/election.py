"""A slave's part in its group's election: it watches the leader, and stands when there is none (H16, H19).

A master whose host reports that nobody listens on its port has died, and its lease need not be waited for. That is no
proof, so it counts only where an error costs a change of the master and no message: where the master has stated in etcd
that it is a SYNC_MASTER, and this node is in the recorded set. Then nothing is acknowledged that this node does not
hold, and only the leader can record a set without it, which that master is no more (docs/decisions/0026).
"""

import contextlib
import math
import socket
from collections.abc import Collection
from dataclasses import replace
from typing import Any, Final

from towline.clock import boottime_ns
from towline.errors import MalformedFrame
from towline.format.files.epochs import number_of, term_of
from towline.log.state.role_file import MASTER
from towline.node.peers.peer_client import addresses_of, ask_peers
from towline.node.peers.peer_server import STATE, state_of
from towline.node.process.context import Node
from towline.node.roles.agreement import Report, may_lack, report_of
from towline.node.roles.role_commands import PROMOTE, read_json_file, submit_command
from towline.route.etcd import Etcd
from towline.runtime.positions import Counter

from .leadership import GroupView, Leader, Leadership, NodeProgress, better_candidate, facts_of, may_stand, next_epoch

WATCH_MS: Final = 100
ASK_MS: Final = 300
GIVE_WAY_MS: Final = 1000  # so long a node that holds more goes first
DEAD_MS: Final = 1000  # a sender that is just started again listens sooner
PROBE_S: Final = 0.1
NS_PER_MS: Final = 1_000_000
BACK_OFF_MS: Final = 5000  # after a promotion that failed others go first


class LeaderProbe:
    """Whether the leader's process has died: its port was open, and has refused connections for DEAD_MS."""

    def __init__(self) -> None:
        self._leadership = 0  # the one that was seen alive
        self._refused_since: int | None = None

    def is_dead(self, leader: Leader, *, listens: bool, now_ms: int) -> bool:
        if listens:
            self._leadership = leader.created
        if listens or self._leadership != leader.created:
            self._refused_since = None
            return False
        if self._refused_since is None:
            self._refused_since = now_ms
        return now_ms - self._refused_since >= DEAD_MS


class Candidate:
    """The lease process's role on a slave."""

    def __init__(self, node: Node, etcd: Etcd, leadership: Leadership) -> None:
        self._node, self._etcd, self._leadership = node, etcd, leadership
        self._own = node.settings.broker_id
        self._says = facts_of(node.settings, node.runtime)
        self._next_at = 0
        self._vacant_since: int | None = None
        self._lease = 0  # won, and the promotion ordered: it is kept until this process is stopped, or the order void
        self._until_ns = 0  # CLOCK_BOOTTIME: then the order is void
        self._logged = ""
        self._probe = LeaderProbe()

    def cycle(self, now_ms: int) -> int:
        if now_ms < self._next_at:
            return 0
        self._next_at = now_ms + WATCH_MS
        if self._lease:
            self._renew_for_promotion()
            return 1
        view = self._leadership.read()
        if view.leader is not None:
            self._vacant_since = None
            if view.leader.node == self._own:
                self._resume_promotion(view, view.leader)
            elif not may_stand(replace(view, leader=None), self._own, founder=False):
                self._probe_leader(view.leader, now_ms)
            return 1
        why = may_stand(view, self._own, founder=self._is_founder())
        if why:
            self._log_once(why)
        else:
            self._stand(view, now_ms)
        return 1

    def due_ms(self, now_ms: int) -> int:
        return max(0, self._next_at - now_ms)

    def hand_over(self) -> None:
        """Leaves a won lease to the master that this node is about to become."""

    def _probe_leader(self, leader: Leader, now_ms: int) -> None:
        """Ends the lease of a master that has died. Who should be elected then is decided elsewhere."""
        address = self._node.settings.peers.get(leader.node)
        if address is None or not leader.waits:  # only a master that runs says that it does: its promotion is done
            return
        if self._probe.is_dead(leader, listens=self._listens(address), now_ms=now_ms):
            self._node.log.warning("nobody listens at %s any more: the lease of node %d is ended", address, leader.node)
            self._etcd.revoke(leader.lease)
            self._next_at = now_ms

    def _stand(self, view: GroupView, now_ms: int) -> None:
        if self._vacant_since is None:
            self._vacant_since = now_ms
        first, known, lost = self._compare(view, standing=True)
        patient = view.in_sync is None or now_ms - self._vacant_since < GIVE_WAY_MS
        if first is not None and patient:
            self._log_once(f"node {first.node} goes first, it holds the log to {first.end}")
            return
        if lost:
            self._log_once(lost)
            return
        began_ns = self._boottime_ns()
        lease, _ = self._etcd.grant(math.ceil(self._node.settings.lease_ms / 1000))
        epoch = next_epoch(view, self._own, known)
        if self._leadership.claim(view, epoch, lease, self._says):
            self._promote(epoch, lease, epoch, began_ns, self._floor_of(view))
        else:
            self._etcd.revoke(lease)

    def _resume_promotion(self, view: GroupView, leader: Leader) -> None:
        """Resumes the promotion of a slave that holds the key: it was restarted within the lease, or missed the answer.

        It is judged by the log that it holds now, not by what it held then.
        """
        first, known, lost = self._compare(view)
        said = self._last_outcome()
        failed = said.get("elected") == leader.epoch and "error" in said  # of this leadership, not of one before
        began_ns = self._boottime_ns()
        if failed:
            self._node.log.error("gives the leadership back, the promotion failed: %s", said["error"])
            self._next_at += BACK_OFF_MS
        if lost:
            self._log_once(lost)
        if failed or lost or first is not None or not self._etcd.keep_alive(leader.lease):
            self._etcd.revoke(leader.lease)
            return
        epoch = max(leader.epoch, number_of(term_of(known) + 1, self._own))
        self._promote(epoch, leader.lease, leader.epoch, began_ns, self._floor_of(view))

    def _floor_of(self, view: GroupView) -> int:
        """The floor under which the set was recorded that makes this node stand; its own where there is none."""
        return self._node.settings.min_in_sync_replicas if view.in_sync is None else view.in_sync.floor

    def _promote(self, epoch: int, lease: int, elected: int, began_ns: int, floor: int) -> None:
        """Orders the promotion. `elected`: the epoch of this leadership in etcd; `began_ns`: before its lease was
        granted."""
        self._lease, self._until_ns = lease, began_ns + self._node.settings.lease_ms * NS_PER_MS
        self._node.line.count(Counter.BATCHES)
        self._node.log.warning("elected: this node becomes master in epoch %d", epoch)
        order = {"order": PROMOTE, "epoch": epoch, "elected": elected, "floor": floor, "until_ns": self._until_ns}
        self._order(order)

    def _renew_for_promotion(self) -> None:
        """Renews the lease for one lease time after the promotion was ordered: nobody else can stand meanwhile."""
        if self._boottime_ns() < self._until_ns:
            self._lease = self._lease if self._etcd.keep_alive(self._lease) else 0
            return
        self._node.log.error("gives the leadership back: its promotion did not begin within a lease")
        self._etcd.revoke(self._lease)
        self._lease = 0
        self._next_at += BACK_OFF_MS

    def _compare(self, view: GroupView, *, standing: bool = False) -> tuple[NodeProgress | None, int, str]:
        """(who should go before this node, the greatest epoch among reachable peers, why this node may lack
        records). `standing`: this node has no leadership yet."""
        own, reports = self._reports()
        known = max(max(one.following, one.written, one.promised) for one in (own, *reports))
        promoted = [one for one in reports if one.role == MASTER and term_of(one.following) > view.term]  # by hand
        first = better_candidate(view, _progress_of(own), map(_progress_of, promoted or reports), first=bool(promoted))
        if standing and first is None:
            first = _promised_and_silent(view, own, {one.node for one in reports})
        lost = may_lack(own, {one.node: one for one in reports}, view.in_sync, self._node.settings.peers)
        return first, known, lost

    # --- what it learns from outside, and orders

    def _reports(self) -> tuple[Report, list[Report]]:
        """The node's own report, and those of the peers that answer."""
        own = report_of(state_of(self._node))
        answers, _ = ask_peers(self._node, addresses_of(self._node.settings), {"op": STATE}, ASK_MS)
        reports = []
        for name, facts in answers.items():
            try:
                reports.append(report_of(facts))
            except MalformedFrame as error:
                self._node.log.warning("node %s: %s", name, error)
        return own, reports

    def _order(self, order: dict[str, Any]) -> None:
        submit_command(self._node.store.root, order)

    def _last_outcome(self) -> dict[str, Any]:
        """What became of the last order."""
        return read_json_file(self._node.store.order_result) or {}

    def _listens(self, address: str) -> bool:
        return listens(address)

    def _boottime_ns(self) -> int:
        return boottime_ns()

    def _is_founder(self) -> bool:
        """Whether the command that started this node called it a master."""
        facts = read_json_file(self._node.store.node)
        return facts is not None and facts.get("asked") == MASTER

    def _log_once(self, why: str) -> None:
        if why != self._logged:
            self._node.log.info("does not stand for the leadership: %s", why)
        self._logged = why


def _promised_and_silent(view: GroupView, own: Report, heard: Collection[int]) -> NodeProgress | None:
    """A member that was promoted by hand and does not answer: its processes are being started, and the master before it
    has given the lease back. None where there is none."""
    if view.in_sync is None or term_of(own.promised) <= max(view.term, term_of(view.in_sync.epoch)):
        return None  # nothing was promised, or it is known
    if own.promised_node in {own.node, *heard} or own.promised_node not in view.in_sync:
        return None
    return NodeProgress(own.promised_node, own.promised, own.end)


def listens(address: str) -> bool:
    """False only where the host itself reports that nobody listens; a silent host may be alive."""
    host, _, port = address.rpartition(":")
    try:
        with contextlib.suppress(TimeoutError):
            socket.create_connection((host.strip("[]"), int(port)), timeout=PROBE_S).close()
    except ConnectionRefusedError:
        return False
    except OSError:  # no way there: the same as silence
        return True
    return True


def _progress_of(report: Report) -> NodeProgress:
    return NodeProgress(report.node, report.written, report.end)
