"""The plan of `towline store repair`, made from the findings of `verify`. Nothing is written here.

A repair deletes nothing: damaged stretches, cut tails and replaced files are kept in `diverged/`. It never guesses: a
durable stretch is stepped over only where the operator names it.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from towline.format.files import durable_slots
from towline.format.record import property_crc, record, skipped
from towline.format.record.blank import MAGIC as BLANK_MAGIC
from towline.format.record.blank import SIZE as BLANK_SIZE
from towline.format.record.skipped import Lost
from towline.log.commitlog.commit_log import CommitLogReader
from towline.log.errors import RepairRefused
from towline.log.queues.consume_queue import ConsumeQueueFiles
from towline.log.recovery.recovery import RecoverySettings
from towline.places import Store

from .verify import Verified, verify
from .verify_log import Damage
from .verify_queues import Gap
from .verify_report import PUT_ONE, Finding, Weight

_REFUSED: Final = ("MISSING", "SEGMENT_SIZE", "SYNC_FAILED")
_WRONG_NUMBER: Final = ("QUEUE_TWICE", "QUEUE_GAP")  # refused where they are damage, unless the record is stepped over
_LOST_MAX: Final = 100_000  # messages of one stretch that are named; no stretch of real records holds more of a queue


@dataclass(frozen=True, slots=True)
class Stretch:
    """A damaged stretch to be stepped over, and what was lost with it. `spans` are (size, what it says) from `start`.

    Behind the spans a blank ends the segment (`blank`), or zeros end the log.
    """

    damage: Damage
    spans: list[tuple[int, Lost]]
    blank: int
    with_crc: bool

    @property
    def lost(self) -> int:
        return sum(lost.count for _, lost in self.spans)


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that would be done, or was. `kept` is where what stood there before is found, once it was done."""

    action: str
    path: str
    at: int
    end: int
    sentence: str
    kept: str = ""

    def row(self) -> dict[str, Any]:
        return {"action": self.action, "file": self.path, "byte": self.at, "end": self.end, "sentence": self.sentence}


@dataclass
class RepairPlan:
    """The steps of a repair. `refused` names what it would have to guess: then nothing is done at all."""

    verified: Verified
    steps: list[Step] = field(default_factory=list)
    refused: list[RepairRefused] = field(default_factory=list)
    stretches: list[Stretch] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    queues: bool = False  # whether they are derived anew
    index: bool = False

    @property
    def end(self) -> int:
        """The log's end when the stretches have been stepped over."""
        last = self.stretches[-1] if self.stretches else None
        if last is not None and last.damage.follows == "end":
            return last.damage.start + sum(size for size, _ in last.spans)
        return self.verified.log.end


def make_plan(
    store: Store,
    settings: RecoverySettings,
    skip: Collection[int],
    *,
    delays_ms: tuple[int, ...] = (),
    progress: Callable[[int], None] = lambda _: None,
) -> RepairPlan:
    """Verifies the store and decides. `skip` are log offsets at which damaged stretches begin.

    Or of records whose QUEUEOFFSET is not the next of their queue: then the store is verified once more without them.
    """
    verified = verify(store, settings, delays_ms=delays_ms, progress=progress)
    named = frozenset(skip) & {gap.at for gap in verified.gaps if not gap.filled}
    if named:
        verified = verify(store, settings, delays_ms=delays_ms, named=named)
    plan = RepairPlan(verified)
    planner = _Planner(store, settings, plan)
    planner.refuse()
    planner.skip(set(skip))
    planner.files()
    planner.derived()
    return plan


@dataclass
class _Planner:
    store: Store
    settings: RecoverySettings
    plan: RepairPlan

    def refuse(self) -> None:
        for found in self.plan.verified.findings.rows:
            if found.rule in _REFUSED and found.weight is Weight.DAMAGE:
                path = str(self.store.root / found.path)
                self.plan.refused.append(RepairRefused(path, found.at, f"{found.rule}, {found.sentence}"))
            if found.rule in _WRONG_NUMBER and found.weight is Weight.DAMAGE:
                path, offset = str(self.store.root / found.path), int(Path(found.path).name) + found.at
                why = f"{found.rule}, {found.sentence}"
                self.plan.refused.append(RepairRefused(path, found.at, why, str(offset)))

    # --- damaged stretches of the log

    def skip(self, wanted: set[int]) -> None:
        plan, log = self.plan, self.plan.verified.log
        reader = CommitLogReader(self.store.commitlog, self.settings.segment_size)
        reader.queue.adopt([one.base for one in log.segments if one.verdict != "missing"])
        entries = _entries_in(self.store, self.settings, log.damages)
        wanted = self._begin_later(wanted)
        for offset in sorted(wanted - {damage.start for damage in log.damages}):
            plan.notes.append(f"no damage begins at {offset}: there is nothing to step over")
        for number, damage in enumerate(log.damages):
            base = reader.segment_of(damage.start)
            path, at = reader.queue.path_of(base), damage.start - base
            if damage.start not in wanted:
                why = f"{damage.rule.name}, {damage.rule.sentence}"
                plan.refused.append(RepairRefused(str(path), at, why, str(damage.start)))
                continue
            lost = _lost(number, log.damages, entries, plan.verified.gaps)
            with_crc = self.settings.force_property_crc or _next_has_crc(reader, damage)
            stretch = _stretch(damage, lost, with_crc=with_crc)
            if stretch is None:
                plan.refused.append(
                    RepairRefused(str(path), at, "more messages are lost than the stretch has room for")
                )
                continue
            plan.stretches.append(stretch)
            self._note_last_holes(stretch)
            self._step("skip", path, at, damage.end - base, _said(stretch))
        reader.close()

    def _begin_later(self, wanted: set[int]) -> set[int]:
        """Gives up missing segments before the first one, if that is wanted. Returns the other offsets."""
        for found in self.plan.verified.findings.of("START_MISSING"):
            path = self.store.root / found.path
            start = int(path.name)
            if start in wanted:
                said = f"write it anew: the log begins at {self.plan.verified.log.log_min}"
                self._step("state", self.store.durable, 0, durable_slots.SIZE, said)
                wanted = wanted - {start}
            else:
                why = f"{found.rule}, {found.sentence}"
                self.plan.refused.append(RepairRefused(str(path), 0, why, str(start)))
        return wanted

    def _note_last_holes(self, stretch: Stretch) -> None:
        for _, lost in stretch.spans:
            if lost.count and lost.first + lost.count >= self.plan.verified.end_of(lost.topic, lost.queue_id):
                name = f"queue {lost.queue_id} of {lost.topic.decode('utf-8', 'replace')}"
                self.plan.notes.append(f"{name} will end in a hole: {PUT_ONE}")

    # --- files, queues and index

    def files(self) -> None:
        for found in self.plan.verified.findings.rows:
            action = _ACTIONS.get(found.rule)
            if action is not None and found.weight is not Weight.NOTE:
                self._step(action[0], self.store.root / found.path, found.at, found.end, action[1])
            elif found.rule == "EPOCHS" and found.weight is Weight.DAMAGE:
                self.plan.refused.append(RepairRefused(str(self.store.root / found.path), found.at, found.sentence))

    def derived(self) -> None:
        plan = self.plan
        rows = [found for found in plan.verified.findings.rows if found.weight is not Weight.NOTE]
        changed = bool(plan.stretches)
        plan.queues = changed or any(_needs_rebuild(found, "QUEUE_") for found in rows)
        plan.index = self.settings.index_slots is not None and (
            changed or any(_needs_rebuild(found, "INDEX_") for found in rows)
        )
        for wanted, directory in ((plan.queues, self.store.consumequeue), (plan.index, self.store.index)):
            if wanted:
                said = f"derive everything anew from [{plan.verified.log.log_min}, {plan.end}) of the log"
                self._step("rebuild", directory, 0, 0, said)
        if not plan.steps and not plan.refused and rows:
            self._step("recover", self.store.root, 0, 0, "recover the store as a start does")

    def _step(self, action: str, path: Path, at: int, end: int, sentence: str) -> None:
        shown = str(path.relative_to(self.store.root)) if path != self.store.root else "."
        self.plan.steps.append(Step(action, shown, at, end, sentence))


_ACTIONS: Final = {
    "FOREIGN": ("move", "move it to diverged/"),
    "INDEX_UNFINISHED": ("move", "move it to diverged/"),
    "LEFTOVER": ("move", "move it to diverged/"),
    "EMPTY_FILE": ("remove", "remove the name of a file without bytes"),
    "BLANK_REMAINING": ("blank", "write the blank anew"),
    "TORN_TAIL": ("cut", "copy it to diverged/ and zero it: the log ends here"),
    "BEHIND_THE_END": ("cut", "copy it to diverged/ and zero it: the log ends before"),
    "DURABLE": ("state", "write it anew: the log was read to its end, and all of it is synced"),
    "DURABLE_SLOT": ("state", "write it anew"),
    "DURABLE_STATE": ("state", "write it anew: the log was read to its end, and all of it is synced"),
    "CHECKPOINT": ("checkpoint", "move it to diverged/ and write it anew"),
    "CHECKPOINT_AHEAD": ("checkpoint", "move it to diverged/ and write it anew"),
    "IDENTITY": (
        "move",
        "move it to diverged/; the next start of a master makes a new one, a slave takes its master's",
    ),
    "IDENTITY_CHECK": (
        "move",
        "move it to diverged/; the next start of a master makes a new one, a slave takes its master's",
    ),
    "IDENTITY_FORM": ("identity", "copy it to diverged/ and write it anew"),
    "IN_SYNC_LOST": (
        "in_sync",
        "move both copies to diverged/; the node is in doubt: master only where nobody silent can hold more",
    ),
    "ROLE_LOST": (
        "role",
        "move both generations to diverged/ and write that it is a slave; `towline promote` makes it the master again",
    ),
    "TRUNCATION_LOST": (
        "truncation",
        "move both generations to diverged/; the slave's next handshake finds the point anew",
    ),
    "CONFIG": ("config", "move it to diverged/; the other generation takes its place"),
    "CONFIG_LOST": ("config", "move it to diverged/; topics.json is made anew from the queues, others begin empty"),
    "CONFIG_FORM": ("config", "copy it to diverged/ and write it anew"),
    "CONFIG_MEMBER": ("config", "copy it to diverged/ and write it anew"),
}


def _needs_rebuild(found: Finding, prefix: str) -> bool:
    return found.rule.startswith(prefix) and found.rule not in ("INDEX_UNFINISHED", "QUEUE_TWICE")


# --- what was lost


Entry = tuple[bytes, int, int, int]  # topic, queue id, number in the queue, log offset


def _entries_in(store: Store, settings: RecoverySettings, damages: list[Damage]) -> list[Entry]:
    """Entries of queues as they stand that point into a damaged stretch: they say what was lost there."""
    files = ConsumeQueueFiles(store.consumequeue, settings.queue_file_size, 64)
    found: list[Entry] = []
    sized = [
        (topic, queue_id)
        for topic, queue_id in (files.list_queues() if damages else [])
        if all(
            path.stat().st_size == settings.queue_file_size
            for path in (store.consumequeue / topic / str(queue_id)).iterdir()
        )
    ]
    for topic, queue_id in sized:
        first, end = files.end_of(topic, queue_id, 1 << 62)
        for damage in damages:
            number = files.min_offset_after(topic, queue_id, damage.start, first, end)
            while number < end and number - first < _LOST_MAX:
                entry = files.raw(topic, queue_id, number, 1)[0]
                at, size = int(entry["physical_offset"]), int(entry["record_size"])
                if not damage.start <= at < damage.end or not skipped.SIZE_MIN <= size <= damage.end - at:
                    break
                found.append((topic.encode(), queue_id, number, at))
                number += 1
    files.close()
    return found


def _lost(number: int, damages: list[Damage], entries: list[Entry], gaps: list[Gap]) -> list[Lost]:
    """What was lost with one of the stretches: by the queues' entries, and by numbers that later records leave out."""
    damage = damages[number]
    numbers: dict[tuple[bytes, int], set[int]] = {}
    for topic, queue_id, offset, at in entries:
        if damage.start <= at < damage.end:
            numbers.setdefault((topic, queue_id), set()).add(offset)
    for gap in gaps:
        before = [place for place, other in enumerate(damages) if other.start < gap.at]
        if gap.twice or not before or before[-1] != number or gap.offset - gap.due > _LOST_MAX:
            continue
        key = (gap.topic, gap.queue_id)
        elsewhere = {
            offset
            for topic, queue_id, offset, at in entries
            if (topic, queue_id) == key and not damage.start <= at < damage.end
        }
        missing = set(range(gap.due, gap.offset)) - elsewhere
        if missing:
            numbers.setdefault(key, set()).update(missing)
    return [
        Lost(topic, queue_id, min(found), max(found) - min(found) + 1)
        for (topic, queue_id), found in sorted(numbers.items())
    ]


def _stretch(damage: Damage, lost: list[Lost], *, with_crc: bool) -> Stretch | None:
    """How a stretch is filled. None if what was lost with it cannot all be named in it."""
    room = damage.end - damage.start
    for crc in (with_crc, False):
        spans = [(max(skipped.size_of(one, with_crc=crc), skipped.SIZE_MIN), one) for one in lost]
        spare = room - sum(size for size, _ in spans)
        if damage.follows == "end":
            if spare >= 0:
                return Stretch(damage, spans, 0, crc)
        elif damage.follows == "segment":
            if spare >= BLANK_SIZE:
                return Stretch(damage, spans, spare, crc)
        elif spare == 0 or (spare > 0 and spans) or spare >= skipped.SIZE_MIN:
            return Stretch(damage, _filled(spans, spare), 0, crc)
    return None


def _filled(spans: list[tuple[int, Lost]], spare: int) -> list[tuple[int, Lost]]:
    """The spans with `spare` more bytes: the last one grows, and what is beyond the largest takes more."""
    if spans:
        size, lost = spans.pop()
        grown = min(spare, skipped.SIZE_MAX)
        grown -= max(0, skipped.SIZE_MIN - (spare - grown)) if 0 < spare - grown < skipped.SIZE_MIN else 0
        spans.append((size + grown, lost))
        spare -= grown
    while spare > skipped.SIZE_MAX:
        size = skipped.SIZE_MAX if spare - skipped.SIZE_MAX >= skipped.SIZE_MIN else spare - skipped.SIZE_MIN
        spans.append((size, Lost()))
        spare -= size
    if spare:
        spans.append((spare, Lost()))
    return spans


def _next_has_crc(reader: CommitLogReader, damage: Damage) -> bool:
    """Whether the record behind a stretch ends with a property CRC: then those that stand for it should as well."""
    if damage.follows != "record":
        return False
    head = reader.slice(damage.end, damage.end + BLANK_SIZE)
    if int.from_bytes(head[BLANK_SIZE // 2 :], "big") == BLANK_MAGIC:
        return False
    data = bytes(reader.record(damage.end, reader.segment_of(damage.end) + reader.segment_size))
    return property_crc.ends_with(record.decode(data, check_crc=False).properties)


def _said(stretch: Stretch) -> str:
    damage = stretch.damage
    size = damage.end - damage.start
    if stretch.lost:
        queues = ", ".join(
            f"{lost.topic.decode('utf-8', 'replace')}/{lost.queue_id} from {lost.first}, {lost.count}"
            for _, lost in stretch.spans
            if lost.count
        )
        known = f"{stretch.lost} messages are lost (queue from number, count: {queues})"
    else:
        known = "which messages are lost is not known"
    after = {"record": "records that readers walk over", "segment": "a blank", "end": "zeros: the log ends there"}
    return f"copy these {size} bytes to diverged/ and put {after[damage.follows]} in their place; {known}"
