"""Defects, most of which the product once had, put into the decisions that the simulation shares with it."""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import Final

import pytest

from towline.client.send.futures import Batch
from towline.client.send.sequencing import SequencedAccumulator
from towline.errors import TowlineError
from towline.format.wire.status import PutStatus
from towline.ha.sender.in_sync import InSync, InSyncRules
from towline.log.state.in_sync_file import InSyncRecord
from towline.master.put.acks import AckPolicy, ack_policy
from towline.master.put.sequences import Claim, Repeat, Sequences, Verdict
from towline.node.roles.agreement import RecordedSet, Report, may_lack, may_promote
from towline.node.store.confirmed import confirmed_parts
from towline.runtime.positions import Positions
from towline.runtime.settings import Settings

Mutant = Callable[[pytest.MonkeyPatch], None]


def shown_tail(patch: pytest.MonkeyPatch) -> None:
    """A promoted master that is its in-sync set alone shows the whole log that it began with (mended in 1111d232)."""

    def began_with(rules: InSyncRules, record: InSyncRecord | None, epoch_start: int) -> int:
        return epoch_start if record is not None and record.members == 1 << rules.own else 0

    patch.setattr("towline.ha.sender.membership.began_with", began_with)


def own_floor(patch: pytest.MonkeyPatch) -> None:
    """A promotion goes by the candidate's own min_in_sync_replicas alone (mended in b081d907)."""

    def by_own_floor(
        own: Report, answers: Mapping[int, Report], granted: Collection[int], known: Collection[int],
        *, floor: int, **more: bool,
    ) -> None:  # fmt: skip
        def with_floor(one: Report) -> Report:
            record = None if one.in_sync is None else replace(one.in_sync, floor=floor)
            return replace(one, floor=floor, in_sync=record)

        others = {node: with_floor(one) for node, one in answers.items()}
        may_promote(with_floor(own), others, granted, known, floor=floor, **more)

    patch.setattr("towline.node.peers.peer_client.may_promote", by_own_floor)


def kept_member(patch: pytest.MonkeyPatch) -> None:
    """A member that comes back with less than it had acknowledged stays in the in-sync set (mended in 3a937ac9)."""
    patch.setattr(InSync, "_lost_members", lambda *_: 0)


def forgotten(patch: pytest.MonkeyPatch) -> None:
    """A start takes the queues' mark alone for what was confirmed (mended in 6e506989, decision 0050)."""

    def by_the_first_mark(end: int, *marks: int) -> int:
        return min(marks[0], end)

    patch.setattr("towline.simulation.starting.confirmed_within", by_the_first_mark)


def unsynced(patch: pytest.MonkeyPatch) -> None:
    """Put acknowledges under SYNC_FLUSH what is not on its disk yet: it never did."""

    def without_sync(settings: Settings) -> AckPolicy:
        return replace(ack_policy(settings), flushed=False)

    patch.setattr("towline.simulation.put.ack_policy", without_sync)


def promised_floor(patch: pytest.MonkeyPatch) -> None:
    """A promotion does not look at the floors of those that were promised an epoch, and told nobody who answers."""

    def without_promises(
        own: Report, answers: Mapping[int, Report], granted: Collection[int], known: Collection[int],
        *, floor: int, **more: bool,
    ) -> None:  # fmt: skip
        others = {node: replace(one, promised_floor=floor) for node, one in answers.items()}
        own = replace(own, promised_floor=floor)
        may_promote(own, others, granted, known, floor=floor, **more)

    patch.setattr("towline.node.peers.peer_client.may_promote", without_promises)


def members_alone(patch: pytest.MonkeyPatch) -> None:
    """A node in doubt waits for the members of the newest set alone, not for those who were some before."""

    def without_others(
        own: Report, answers: Mapping[int, Report], record: RecordedSet | None, _: Collection[int]
    ) -> str:
        return may_lack(own, answers, record, [])

    patch.setattr("towline.node.roles.agreement.may_lack", without_others)
    patch.setattr("towline.ha.leader.election.may_lack", without_others)


def shown_later(patch: pytest.MonkeyPatch) -> None:
    """An ASYNC_MASTER reports what its disk has as confirmed, and shows more behind its promise."""

    def on_its_disk(settings: Settings, positions: Positions) -> int:
        return min(positions.get(part) for part in confirmed_parts(settings, positions))

    patch.setattr("towline.simulation.peers.may_confirm", on_its_disk)


def unrecovered(patch: pytest.MonkeyPatch) -> None:
    """A put that starts, as after a promotion, takes nothing of idempotent producers from its log: it always did."""
    patch.setattr("towline.master.put.producers.recover", lambda *_: True)


def stored_again(patch: pytest.MonkeyPatch) -> None:
    """Put stores a repeat as it stores what is new: it never did."""
    judged_otherwise(patch, lambda verdict: isinstance(verdict, Repeat))


def any_number(patch: pytest.MonkeyPatch) -> None:
    """Put stores a batch whose number is not the next one: it never did."""
    judged_otherwise(patch, lambda verdict: verdict is Verdict.OUT_OF_ORDER)


def judged_otherwise(patch: pytest.MonkeyPatch, passes: Callable[[Repeat | Verdict], bool]) -> None:
    judge = Sequences.judge

    def lenient(self: Sequences, claim: Claim, now_ms: int, stored_ms: int) -> Repeat | Verdict:
        verdict = judge(self, claim, now_ms, stored_ms)
        return Verdict.NEW if passes(verdict) else verdict

    patch.setattr(Sequences, "judge", lenient)


def whole(patch: pytest.MonkeyPatch) -> None:
    """Put takes a producer that it has forgotten for one that has stored nothing: it never did."""
    patch.setattr(Sequences, "_is_whole", lambda *_: True)


def undoubted(patch: pytest.MonkeyPatch) -> None:
    """A producer goes on in its epoch after a batch of which nobody knows what became: it never did."""
    finish = SequencedAccumulator.finish

    def certain(
        self: SequencedAccumulator, batches: Iterable[Batch], status: PutStatus, error: TowlineError | None = None
    ) -> None:
        doubted = self._in_doubt
        finish(self, batches, status, error)
        self._in_doubt = doubted

    patch.setattr(SequencedAccumulator, "finish", certain)


def renumbered(patch: pytest.MonkeyPatch) -> None:
    """A producer that its node has forgotten sends in a new epoch also what may be stored: it never did."""
    may_pass = SequencedAccumulator.may_pass

    def anyhow(self: SequencedAccumulator, batches: Iterable[Batch], status: PutStatus, retry_after_ms: int) -> bool:
        sent = list(batches)
        if status is PutStatus.UNKNOWN_PRODUCER:
            for batch in sent:
                batch.unknown = False
        return may_pass(self, sent, status, retry_after_ms)

    patch.setattr(SequencedAccumulator, "may_pass", anyhow)


FINDINGS: Final[Mapping[str, Mutant]] = {"shown_tail": shown_tail, "own_floor": own_floor, "kept_member": kept_member}
MORE: Final[Mapping[str, Mutant]] = {
    "forgotten": forgotten,
    "unsynced": unsynced,
    "promised_floor": promised_floor,
    "members_alone": members_alone,
    "shown_later": shown_later,
}
SEQUENCES: Final[Mapping[str, Mutant]] = {
    "unrecovered": unrecovered,
    "stored_again": stored_again,
    "any_number": any_number,
    "whole": whole,
    "undoubted": undoubted,
    "renumbered": renumbered,
}
