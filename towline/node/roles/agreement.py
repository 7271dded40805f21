"""The rules by which nodes of one name agree on the master (H14, H16, H18, H19). Pure.

What they keep to: an epoch has one master; with min_in_sync_replicas of 2 or more no node becomes master that lacks an
acknowledged byte, unless an operator accepts the loss.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from towline.errors import AloneRefused, DoubtRefused, MalformedFile, MalformedFrame, PromotionRefused
from towline.format.files.epochs import IMPLIED, Epochs, checked, node_of, number_of, term_of
from towline.log.state.in_sync_file import FLOOR_UNKNOWN, InSyncRecord, ids_of, record_of
from towline.log.state.role_file import MASTER, SLAVE

# A promotion jumps further than a plain restart, so an old master that was started again alone never outbids it.
RESTART_TERMS: Final = 1
PROMOTION_TERMS: Final = 2


@dataclass(frozen=True)
class Report:
    """What a node says of itself. `following`: the epoch of the master that it is or follows.

    `floor`: its min_in_sync_replicas; `promised_floor`: that of those it has promised to, as a promise says. `doubted`:
    it may have lost what it acknowledged from memory, and was level with no master since.
    """

    node: int
    role: str
    following: int
    epochs: Epochs
    end: int
    confirmed: int
    promised: int
    promised_node: int
    in_sync: InSyncRecord | None
    doubted: bool = False
    floor: int = FLOOR_UNKNOWN
    promised_floor: int = FLOOR_UNKNOWN

    @property
    def written(self) -> int:
        """The epoch of its newest byte."""
        return max((epoch.number for epoch in self.epochs if epoch.start < self.end), default=0)

    @property
    def reach(self) -> tuple[int, int]:
        """Of two logs the one with the greater reach has what the other lacks."""
        return self.written, self.end

    @property
    def is_fresh(self) -> bool:
        """Nothing was ever written to it."""
        return self.end == 0 and not self.written and self.in_sync is None


@dataclass(frozen=True)
class RoleDecision:
    """The role of a node, and why. `master`: the known master, or -1."""

    role: str
    why: str
    master: int


def report_of(facts: Mapping[str, Any]) -> Report:
    """Raises MalformedFrame."""
    try:
        record = facts["in_sync"]
        return Report(
            node=int(facts["node"]),
            role=str(facts["role"]),
            following=int(facts["epoch"]),
            epochs=checked(facts["epochs"]) or IMPLIED,
            end=int(facts["end"]),
            confirmed=int(facts["confirmed"]),
            promised=int(facts["promised"]),
            promised_node=int(facts["promised_node"]),
            in_sync=None
            if not record
            else record_of(
                {"epoch": facts["in_sync_epoch"], "version": facts["in_sync_version"], "members": record}
                | {"master": facts["in_sync_master"], "floor": facts.get("in_sync_floor", FLOOR_UNKNOWN)},
                "a peer's report",
            ),
            doubted=bool(facts.get("doubted", True)),
            floor=int(facts.get("floor", FLOOR_UNKNOWN)),
            promised_floor=int(facts.get("promised_floor", FLOOR_UNKNOWN)),
        )
    except (KeyError, TypeError, ValueError, OverflowError, MalformedFile) as error:
        raise MalformedFrame(f"a node's report of itself lacks a fact or has a wrong one: {error!r}") from None


def on_start(
    own: Report, answers: Collection[Report], silent: Collection[str], *, floor: int, alone: bool
) -> RoleDecision:
    """What a node becomes that is to be master again. `silent`: the peers that do not answer, as people know them.

    Raises AloneRefused where only the operator can know, or the silent ones.
    """
    newer = _newer(own, answers, all_answer=not silent)
    if newer is not None:
        return newer
    ahead = max(answers, key=lambda peer: peer.reach, default=own)
    # Of a master that has lost nothing: what others have beyond its log is the tail of the one before it.
    keeps_all = not own.doubted and own.in_sync is not None and own.in_sync.master == own.node
    if ahead.reach > own.reach and not keeps_all:
        why = f"node {ahead.node} holds the log to {ahead.end} and this one to {own.end}: `towline promote` that node"
        return RoleDecision(SLAVE, why, -1)
    heard = {peer.node: peer for peer in answers}
    known = {own.node, *heard, *(int(name) for name in silent if name.isdecimal())}
    if not alone and (lost := may_lack(own, heard, own.in_sync, known)):
        raise DoubtRefused(own.node, lost)
    if answers or not silent:
        return RoleDecision(MASTER, "no peer knows of another master", own.node)
    if own.is_fresh:
        return RoleDecision(MASTER, "the first start of an empty store", own.node)
    if alone:
        return RoleDecision(MASTER, "no peer answers, and the operator said --alone", own.node)
    if floor >= 2:
        why = f"no peer answers; nothing is acknowledged before {floor} nodes are in sync"
        return RoleDecision(MASTER, why, own.node)
    raise AloneRefused(own.node, ", ".join(sorted(silent)))


class RecordedSet(Protocol):
    """An in-sync set as a file or etcd has it."""

    @property
    def members(self) -> int: ...


def may_lack(own: Report, answers: Mapping[int, Report], record: RecordedSet | None, known: Collection[int]) -> str:
    """Why a node in doubt may lack what was acknowledged; empty where it cannot. `record`: the newest set; `known`:
    every node of the name.

    Nothing is missing from a member that has lost nothing. Where none of them answers, each node that is silent may be
    the only one that still has it: it may have been a member when it was acknowledged, and be none any more.
    """
    if not own.doubted or own.is_fresh:
        return ""
    ahead = max(answers.values(), key=lambda peer: peer.reach, default=own)
    if ahead.reach > own.reach:
        return f"it may have lost what it acknowledged, and node {ahead.node} holds the log to {ahead.end}"
    members = set() if record is None else set(ids_of(record.members))
    silent = sorted((set(known) | members) - {own.node, *answers})
    if not silent or any(peer.node in members and not peer.doubted for peer in answers.values()):
        return ""
    who = ", ".join("the master" if node < 0 else f"node {node}" for node in silent)
    return f"it may have lost what it acknowledged, and {who} may hold it, and is silent"


def awaited(own: Report, silent: Collection[str]) -> bool:
    """Whether the node that ours was promised to is silent: it may be about to say that it is master, or is not."""
    return own.promised > own.written and own.promised_node != own.node and str(own.promised_node) in silent


def _is_void(epoch: int, whose: int, answers: Iterable[Report]) -> bool:
    """Whether the node that asked for this promise says itself that its promotion came to nothing.

    It promises an epoch to itself before it asks anybody, and takes that back only if it never was master of it.
    """
    for peer in answers:
        if peer.node == whose and peer.role == SLAVE:
            recorded = peer.in_sync.epoch if peer.in_sync is not None else 0
            return max(peer.promised, peer.following, peer.written, recorded) < epoch
    return False


def _newer(own: Report, answers: Collection[Report], *, all_answer: bool) -> RoleDecision | None:
    """Where another master than we is known, or may be by now."""
    void = all_answer and _is_void(own.promised, own.promised_node, answers)
    if own.promised > own.written and own.promised_node not in (own.node, -1) and not void:
        return RoleDecision(
            SLAVE, f"it has promised epoch {own.promised} to node {own.promised_node}", own.promised_node
        )
    for peer in answers:
        if peer.written > own.written:
            master = peer.node if peer.role == MASTER else -1
            return RoleDecision(
                SLAVE, f"node {peer.node} holds bytes of epoch {peer.written}, we of {own.written}", master
            )
        for epoch, whose in ((peer.following, node_of(peer.following)), (peer.promised, peer.promised_node)):
            if epoch > own.written and whose != own.node and not (all_answer and _is_void(epoch, whose, answers)):
                return RoleDecision(SLAVE, f"node {peer.node} knows epoch {epoch} of node {whose}", whose)
    return None


def may_promote(
    own: Report,
    answers: Mapping[int, Report],
    granted: Collection[int],
    known: Collection[int],
    *,
    floor: int,
    elected: bool = False,
    sets_in_etcd: bool = False,
) -> None:
    """Whether `own` may become master. `known`: every node of the name; `granted`: those that promised, or will.

    `floor`: its own, or what else is known; the least of that, of the newest record's, of those of who answered and of
    promises that are newer than the record is what a master may have gone on with. `elected`: etcd knows the in-sync
    set and has made it leader, so the silent do not matter. `sets_in_etcd`: the newest set may stand there, and in no
    report. Raises PromotionRefused saying why not and who could.
    """
    records = [one.in_sync for one in (own, *answers.values()) if one.in_sync is not None]
    newest = max(records, key=lambda record: record.order, default=None)
    # Where nobody who answers has a record, its master may have gone on with any number: as where one does not say.
    recorded = FLOOR_UNKNOWN if newest is None else newest.floor
    since = 0 if newest is None else newest.epoch
    unheard = [one.promised_floor for one in (own, *answers.values()) if one.promised > since]
    least = min([floor, recorded, *unheard, *(one.floor for one in answers.values())])
    # Of a member nobody needs more than is confirmed: it acknowledged all that was promised. That holds while it has
    # lost none of it, and where no master can have gone on alone (floor).
    holds_all = least > 1 and newest is not None and own.node in newest and (elected or not sets_in_etcd)
    for peer in answers.values():
        enough = not own.doubted and (holds_all or peer.role == MASTER)
        theirs = (peer.written, peer.confirmed if enough else peer.end)
        if theirs > own.reach:
            far, near = f"{theirs[1]} of epoch {theirs[0]}", f"{own.end} of epoch {own.written}"
            raise PromotionRefused(own.node, f"node {peer.node} holds the log to {far}, this one to {near}")
    if elected:
        return
    lost = may_lack(own, answers, newest, known)
    if lost:
        raise PromotionRefused(own.node, lost)
    if newest is not None and own.node not in newest:
        who = ", ".join(map(str, newest.ids))
        raise PromotionRefused(own.node, f"it is not in the in-sync set of epoch {newest.epoch}, which is {who}")
    # A set that left us behind is known to each of its members, and has at least `floor` of them.
    members = set(known) | (set(newest.ids) if newest is not None else set())
    left = sorted(members - {own.node} - set(granted))
    if len(left) >= least:
        who = ", ".join("the master" if node < 0 else f"node {node}" for node in left)
        elsewhere = "may be less there" if newest is None else f"was {least} elsewhere"
        lower = f": min_in_sync_replicas is {floor} here, and {elsewhere}" if len(left) < floor else ""
        raise PromotionRefused(own.node, f"without a promise of {who}, these could have gone on without it{lower}")


def next_epoch(own: Report, answers: Iterable[Report], *, promotion: bool) -> int:
    """The epoch that `own` opens, above everything known.

    What it promised to itself, and never wrote in, a plain restart takes up again: nobody can hold bytes of it. A node
    in doubt may have written in it, and lost that.
    """
    anew = promotion or own.doubted
    foreign = own.promised if own.promised_node != own.node or anew else 0
    greatest = max([own.written, foreign, *(max(p.following, p.written, p.promised) for p in answers)])
    terms = PROMOTION_TERMS if promotion else RESTART_TERMS
    epoch = number_of(term_of(greatest) + terms, own.node)
    again = own.promised if own.promised_node == own.node and own.promised > own.written else 0
    return epoch if anew else max(epoch, again)
