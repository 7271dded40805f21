"""The one-shot process of a start, after recovery and before other processes: who is master, and in which epoch.

It asks all peers at once, decides by the rules of `towline.node.roles.agreement`, and records the decision in the order
of H16: the promise to itself, the promises of others, the in-sync set of itself alone, the role, the epoch.
"""

import select
import time
from collections.abc import Generator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from towline.clock import boottime_ns
from towline.errors import AloneRefused, PromotionRefused, TowlineError
from towline.format.files.epochs import node_of
from towline.log.recovery.recovery import sync_rest
from towline.log.state.epoch_file import open_epoch
from towline.log.state.in_sync_file import FLOOR_UNKNOWN, InSyncFile, InSyncRecord, mask_of
from towline.log.state.role_file import MASTER, SLAVE, Role, save_role
from towline.node.peers.peer_client import PeerAnswers, ask_all, check_promotion
from towline.node.peers.peer_server import STATE, promise_question, state_of
from towline.node.process.context import Node
from towline.node.process.failure import write_failure
from towline.node.process.own_log import begin_log
from towline.node.roles.agreement import Report, RoleDecision, awaited, next_epoch, on_start, report_of
from towline.node.roles.promise import Promise, kept, promise_before, save_promise
from towline.node.roles.role_commands import PROMOTE, read_json_file
from towline.runtime.failpoints import ARMED, reach
from towline.runtime.positions import Duty, Position
from towline.runtime.process import StopFlag, set_name
from towline.runtime.settings_model import BrokerRole

RETRY_STEP_S: Final = 0.1
SUCCESSOR_WAIT_S: Final = 2.0  # so long a deposed master waits for what became of its successor
PEERS_WAIT_S: Final = 5.0  # so long a master whose peers are all silent waits for them before it refuses to start

# A question to all peers, which is sent what they answer, or seconds to wait; the role in the end. So whoever drives
# the steps decides what asking and waiting are: this process, or the simulation.
Steps = Generator[dict[str, Any] | float, PeerAnswers, Role]


def agree_node(store_root: Path, log_file: Path | None) -> int:
    """Runs the process and returns its exit status; a failure is written where the supervisor reads it."""
    StopFlag()
    set_name("towline:agree")
    log = begin_log(Duty.AGREE.label, store_root, log_file)
    node = Node.of(store_root, Duty.AGREE)
    try:
        node.line.enter(node.generation)
        asked = read_json_file(node.store.asked) or {}
        agreement = Agreement(node)
        role = agreement.promote(asked) if asked.get("order") == PROMOTE else agreement.start(asked)
        log.info("%s in epoch %d: %s", role.role, role.epoch, role.why)
    except TowlineError as error:
        log.error("%s", error)
        write_failure(node.store, Duty.AGREE, error)
        return 1
    return 0


class RoleState:
    """A node's word and its role on the disk: what is saved is durable when the call returns."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def report(self) -> Report:
        return report_of(state_of(self._node))

    def promise_before(self) -> Promise:
        return promise_before(self._node.store)

    def save_promise(self, promise: Promise, before: Promise | None = None) -> None:
        save_promise(self._node.store, promise, before)

    def save_set(self, record: InSyncRecord) -> None:
        InSyncFile(self._node.store).save(record)

    def save_role(self, role: Role) -> None:
        save_role(self._node.store, role)

    def sync_log(self, start: int, end: int) -> None:
        sync_rest(self._node.store, self._node.settings.mapped_file_size_commit_log, start, end)

    def open_epoch(self, epoch: int, end: int) -> None:
        """Ends the doubt first: nobody holds more, or it was given up: its log is the group's."""
        self._node.store.doubt.unlink(missing_ok=True)
        open_epoch(self._node.store, epoch, end)


class Agreement:
    """One decision about this node's role and epoch."""

    def __init__(self, node: Node, state: RoleState | None = None) -> None:
        self._node = node
        self._state = RoleState(node) if state is None else state
        self._own = self._state.report()
        self._logged: set[str] = set()

    def start(self, asked: dict[str, Any]) -> Role:
        """Decides the role of a node that was master. Raises AloneRefused."""
        return self._drive(self.start_steps(asked))

    def promote(self, asked: dict[str, Any]) -> Role:
        """Promotes the node in the order of H16. Raises PromotionRefused; before any promise nothing has changed
        then."""
        return self._drive(self.promote_steps(asked))

    def start_steps(self, asked: dict[str, Any]) -> Steps:
        deadline = self._now_s() + PEERS_WAIT_S
        patience = self._now_s() + (SUCCESSOR_WAIT_S if asked.get("running") else 0)
        floor, alone = self._node.settings.min_in_sync_replicas, bool(asked.get("alone"))
        bound = self._state.promise_before()  # a promotion of its own that was cut short unbinds it from nobody
        own = replace(self._own, promised=bound.epoch, promised_node=bound.node)
        while True:
            heard = yield {"op": STATE}
            if awaited(own, heard.silent) and self._now_s() < patience:
                yield RETRY_STEP_S
                continue
            try:
                verdict = on_start(own, heard.answers.values(), heard.silent, floor=floor, alone=alone)
            except AloneRefused as error:
                if self._now_s() < deadline:
                    yield RETRY_STEP_S
                    continue
                if not asked.get("running"):
                    raise
                verdict = RoleDecision(SLAVE, f"it was told of another master, and {error.describe()}", -1)
            break
        if verdict.role == SLAVE:
            return self._become(Role(SLAVE, 0, verdict.why, verdict.master))
        epoch = next_epoch(self._own, heard.answers.values(), promotion=False)
        self._state.save_promise(self._promise(epoch))
        return self._become(Role(MASTER, epoch, verdict.why, self._own.node))

    def promote_steps(self, asked: dict[str, Any]) -> Steps:
        accept_loss, elected = bool(asked.get("accept_loss")), bool(asked.get("elected"))
        unchecked = accept_loss or elected  # etcd has elected one of the recorded set: the silent do not count
        own = self._own
        if elected:
            check_lease(asked.get("until_ns"), own.node, self._boottime_ns())
            own = replace(own, floor=min(own.floor, floor_of(asked)))
        heard = yield {"op": STATE}
        if not unchecked:
            check_promotion(self._node, own, heard, heard.answers.keys(), elected=elected)
        epoch = next_epoch(self._own, heard.answers.values(), promotion=True)
        epoch = max(epoch, least_epoch(asked.get("epoch"), self._own.node))
        before = self._state.promise_before()
        self._state.save_promise(self._promise(epoch), before)
        if ARMED:
            reach("agree.after_promise")
        heard = yield promise_question(epoch, self._node.settings)
        if ARMED:
            reach("agree.after_promises")
        if not unchecked:
            try:
                check_promotion(self._node, own, heard, heard.granted, elected=elected)
            except PromotionRefused:
                self._state.save_promise(before)  # it was made to itself: it may follow a master again
                raise
        self._sync_log()
        record = InSyncRecord(epoch, 1, self._own.node, mask_of([self._own.node]), self._own.floor)
        self._state.save_set(record)  # no older set has a word in what comes (H16)
        if ARMED:
            reach("agree.after_record")
        why = f"promoted; promised by {sorted(heard.granted) or 'nobody'}"
        why += ", loss was accepted" if accept_loss else ", elected in etcd" if elected else ""
        more = sorted(peer.node for peer in heard.answers.values() if peer.reach > self._own.reach)
        why += f"; what nodes {more} hold beyond its log was promised to nobody" if more and not unchecked else ""
        return self._become(Role(MASTER, epoch, why, self._own.node))

    def _promise(self, epoch: int) -> Promise:
        """The one to itself, with what it has promised to others and never heard the end of."""
        own = self._own
        given = Promise(own.promised, own.promised_node, own.promised_floor)
        return kept(Promise(epoch, own.node, own.floor), given, own.in_sync)

    def _drive(self, steps: Steps) -> Role:
        """Carries the steps out in this process, which waits meanwhile."""
        try:
            step = next(steps)
            while True:
                if isinstance(step, dict):
                    step = steps.send(self._ask(step))
                else:
                    select.select([], [], [], step)
                    step = next(steps)
        except StopIteration as done:
            role: Role = done.value
            return role

    def _now_s(self) -> float:
        return time.monotonic()

    def _boottime_ns(self) -> int:
        return boottime_ns()

    def _ask(self, question: dict[str, Any]) -> PeerAnswers:
        """Asks all peers; logs each trouble once, as a start asks again and again."""
        heard = ask_all(self._node, question)
        for name, trouble in heard.silent.items():
            said = f"node {name} does not answer, {trouble}"
            if said not in self._logged:
                self._logged.add(said)
                self._node.log.warning("%s", said)
        return heard

    def _sync_log(self) -> None:
        """Syncs the log before an entry of the new epoch (H16 4). After a clean stop nothing is left to sync."""
        flushed = self._node.positions.get(Position.FLUSHED)
        if flushed < self._own.end:
            self._state.sync_log(flushed, self._own.end)

    def _become(self, role: Role) -> Role:
        """Saves the role durably, then the epoch: a node killed between the two opens the epoch at its next start."""
        node = self._node
        sole = role.role == MASTER and node.settings.broker_role is BrokerRole.ASYNC_MASTER
        self._state.save_role(role := replace(role, sole=sole))
        if ARMED:
            reach("agree.after_role")
        if role.role == MASTER:
            self._state.open_epoch(role.epoch, self._own.end)
            for position in (Position.EPOCH, Position.PROMISED):
                node.positions.writer(position, Duty.RECOVER).advance(role.epoch)
        return role


def check_lease(until_ns: object, node: int, now_ns: int) -> None:
    """Raises PromotionRefused after `until_ns` (CLOCK_BOOTTIME), when another node may be elected.

    A node that paused since its election would otherwise depose its successor by its promise.
    """
    if type(until_ns) is not int or now_ns >= until_ns:
        raise PromotionRefused(node, "it was elected longer ago than a lease lasts: another node may lead by now")


def floor_of(asked: dict[str, Any]) -> int:
    """The floor of the set in etcd, as the order of an election states it."""
    floor = asked.get("floor")
    return floor if type(floor) is int else FLOOR_UNKNOWN


def least_epoch(epoch: object, node: int) -> int:
    """The epoch that was asked for, if it is one of this node's; else 0."""
    return epoch if type(epoch) is int and node_of(epoch) == node else 0
