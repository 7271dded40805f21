"""Answers to peers, in either role: a node's state, and its promise to follow a master's epoch.

SEND answers on a master, FOLLOW on a slave; both listen on the node's ha endpoint.
"""

from typing import Any, Final

from towline.errors import MalformedFrame
from towline.format.files.epochs import node_of
from towline.log.state.epoch_file import EpochFile
from towline.log.state.identity import IdentityFile
from towline.log.state.in_sync_file import FLOOR_UNKNOWN, InSyncFile
from towline.log.state.role_file import MASTER, SLAVE
from towline.node.process.context import Node
from towline.node.process.endpoints import reachable
from towline.node.roles.promise import Promise, is_granted, is_of_another, kept, load_promise, save_promise
from towline.node.roles.role_commands import AGREE, submit_command
from towline.node.store.confirmed import may_confirm
from towline.runtime.positions import Position
from towline.runtime.settings import Settings
from towline.runtime.settings_model import BrokerRole

PEER: Final = "peer"  # the role in the greeting of whoever asks
NOT_MASTER: Final = "NOT_MASTER"
SEGMENT_SIZE: Final = "SEGMENT_SIZE"  # of a slave that can never hold this log as it is
STATE: Final = "state"
PROMISE: Final = "promise"
EPOCH_MAX: Final = 1 << 48  # more terms than there will be: a forged number must not use all of them up


def state_of(node: Node) -> dict[str, Any]:
    """What a node says of itself; `report_of` of `towline.node.roles.agreement` reads it. Raises MalformedFile."""
    positions, promise = node.positions, load_promise(node.store)
    record = InSyncFile(node.store).load()
    identity = IdentityFile(node.store.root).load()
    is_slave = node.settings.broker_role is BrokerRole.SLAVE
    return {
        "node": node.settings.broker_id,
        "role": SLAVE if is_slave else MASTER,
        "epoch": positions.get(Position.EPOCH),
        "epochs": [list(epoch) for epoch in EpochFile(node.store).load()],
        "end": positions.get(Position.APPENDED),
        "flushed": positions.get(Position.FLUSHED),
        "confirmed": may_confirm(node.settings, positions),
        "promised": promise.epoch,
        "promised_node": promise.node,
        "promised_floor": promise.floor,
        "doubted": node.store.doubt.exists(),
        "in_sync": [] if record is None else record.ids,
        "in_sync_epoch": 0 if record is None else record.epoch,
        "in_sync_version": 0 if record is None else record.version,
        "in_sync_master": -1 if record is None else record.master,
        "in_sync_floor": FLOOR_UNKNOWN if record is None else record.floor,
        "floor": node.settings.min_in_sync_replicas,
        "store": identity.store_id if identity is not None else "",
    } | reachable(node.settings, node.runtime, SLAVE if is_slave else MASTER)


def question_before_promotion() -> dict[str, Any]:
    """What a node asks its peers that is ordered to become master, while it still serves; the answer is a state."""
    return {"op": STATE, "promotes": True}


def is_before_promotion(question: dict[str, Any]) -> bool:
    return question.get("op") == STATE and question.get("promotes") is True


def promise_question(epoch: int, settings: Settings) -> dict[str, Any]:
    """What a node asks its peers that opens an epoch, or has opened it; the answer is a state with `granted`."""
    return {"op": PROMISE, "epoch": epoch, "node": settings.broker_id, "floor": settings.min_in_sync_replicas}


class PeerServer:
    """Belongs to the process that writes PROMISED: one of `Position.PROMISED`'s writers."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._promised = node.writer(Position.PROMISED)

    def answers(self, question: dict[str, Any]) -> bool:
        """Whether this server answers the question."""
        return question.get("op") in (STATE, PROMISE)

    def answer(self, question: dict[str, Any]) -> dict[str, Any]:
        """Raises MalformedFrame; StoreNotWritable, SyncFailed, DiskFull where a promise cannot be kept."""
        if question.get("op") == STATE:
            return state_of(self._node)
        epoch, whose = question.get("epoch"), question.get("node")
        if type(epoch) is not int or type(whose) is not int or not 0 < epoch <= EPOCH_MAX or node_of(epoch) != whose:
            raise MalformedFrame(f"{epoch!r} is no epoch that node {whose!r} can be master of")
        floor = question.get("floor", FLOOR_UNKNOWN)  # an older version does not say
        if type(floor) is not int or floor < 1:
            raise MalformedFrame(f"{floor!r} nodes are no min_in_sync_replicas")
        granted = self._grant(Promise(epoch, whose, floor))
        return {"granted": granted} | state_of(self._node)

    def _grant(self, asked: Promise) -> bool:
        """What was promised is on the disk before anybody hears of it. A master that promised is one no more."""
        given, epoch = load_promise(self._node.store), self._node.positions.get(Position.EPOCH)
        granted = is_granted(asked, given, epoch, self._node.settings.broker_id)
        promise = kept(asked, given, InSyncFile(self._node.store).load())
        if granted and promise != given:
            self._keep(promise)
        return granted

    def observe_epoch(self, epoch: int) -> bool:
        """Records a higher epoch of another master, which a peer named. Like a promise to it, that fences this node.

        False for an own or a known epoch. Raises like `answer`.
        """
        whose = Promise(epoch, node_of(epoch))
        known = max(self._promised.get(), self._node.positions.get(Position.EPOCH))
        settings = self._node.settings
        if is_of_another(whose, known, settings.broker_id, settings.peers) and epoch <= EPOCH_MAX:
            self._keep(whose)  # its floor was not said
            return True
        return False

    def _keep(self, promise: Promise) -> None:
        node = self._node
        save_promise(node.store, promise)
        self._promised.advance(promise.epoch)
        said = promise.epoch, promise.node
        node.log.warning("promised epoch %d to node %d: no master of a lower one is followed", *said)
        if node.settings.broker_role is not BrokerRole.SLAVE:
            submit_command(node.store.root, {"order": AGREE, "why": f"node {promise.node} opens epoch {promise.epoch}"})
