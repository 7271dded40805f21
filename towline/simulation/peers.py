"""What a simulated node says to its peers, and promises them, as `towline.node.peers.peer_server` does."""

from typing import Any

from towline.format.files.epochs import IMPLIED, Epochs, node_of
from towline.log.state.in_sync_file import InSyncRecord
from towline.log.state.role_file import MASTER
from towline.node.peers.peer_server import PROMISE, STATE
from towline.node.roles.agreement import Report
from towline.node.roles.promise import NOTHING, Promise, is_granted, is_of_another, kept
from towline.node.roles.role_commands import AGREE
from towline.node.store.confirmed import may_confirm
from towline.runtime.positions import Duty, Position

from .disk import DOUBT, EPOCHS, PROMISED, SET
from .machine import Machine


def promise_of(machine: Machine) -> Promise:
    promise: Promise = machine.disk.files.get(PROMISED, (NOTHING, None))[0]
    return promise


def epochs_of(machine: Machine) -> Epochs:
    epochs: Epochs = machine.disk.files.get(EPOCHS) or IMPLIED
    return epochs


def set_of(machine: Machine) -> InSyncRecord | None:
    return machine.disk.files.get(SET)


def report(machine: Machine, role: str) -> Report:
    """What the node says of itself."""
    get, promise = machine.positions.get, promise_of(machine)
    view = machine.view(Duty.SUPERVISE, role)
    return Report(
        node=machine.number,
        role=role,
        following=get(Position.EPOCH),
        epochs=epochs_of(machine),
        end=get(Position.APPENDED),
        confirmed=may_confirm(view.settings, machine.positions),
        promised=promise.epoch,
        promised_node=promise.node,
        in_sync=set_of(machine),
        doubted=DOUBT in machine.disk.files,
        floor=machine.settings.min_in_sync_replicas,
        promised_floor=promise.floor,
    )


class Promises:
    """Of the process that answers peers: SEND on a master, FOLLOW on a slave."""

    def __init__(self, machine: Machine, role: str) -> None:
        self._machine, self._role = machine, role
        duty = Duty.SEND if role == MASTER else Duty.FOLLOW
        self._promised = machine.view(duty, role).writer(Position.PROMISED)

    def answer(self, question: dict[str, Any]) -> dict[str, Any] | None:
        if question["op"] == STATE:
            return {"report": report(self._machine, self._role)}
        assert question["op"] == PROMISE
        asked = Promise(question["epoch"], question["node"], question["floor"])
        given = promise_of(self._machine)
        granted = is_granted(asked, given, self._machine.positions.get(Position.EPOCH), self._machine.number)
        promise = kept(asked, given, set_of(self._machine))
        if granted and promise != given:
            self._keep(promise)
        return {"granted": granted, "report": report(self._machine, self._role)}

    def observe_epoch(self, epoch: int) -> bool:
        """Whether a peer named a later epoch of another master, which then fences this node."""
        machine, heard = self._machine, Promise(epoch, node_of(epoch))
        known = max(self._promised.get(), machine.positions.get(Position.EPOCH))
        if not is_of_another(heard, known, machine.number, machine.settings.peers):
            return False
        self._keep(heard)
        return True

    def _keep(self, promise: Promise) -> None:
        machine = self._machine
        machine.disk.files[PROMISED] = promise, None
        self._promised.advance(promise.epoch)
        if machine.world.traced:
            machine.world.say(machine.name, f"promises epoch {promise.epoch} to node {promise.node}")
        if self._role == MASTER:
            machine.order({"order": AGREE})
