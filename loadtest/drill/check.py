"""The judge of a drill: reads its history and the nodes' CommitLogs, and nothing that the runner believes.

    python -m towline.loadtest.drill.check DIRECTORY

Set: every acknowledged message is in every log, at the queue offset that the acknowledgement named, with the body that
was sent; nothing is there that was never sent, and nothing twice; of producers that are not idempotent, nothing more
often than it was sent. Order: in a queue, first copies stand in the order of sending. Bytes: all CommitLogs are the
same over [the greatest minimum, the least end). Works on columns: a million messages are a second.
"""

import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import orjson

from towline.format.record.record import BORN_HOST_IPV6, LAYOUT, STORE_HOST_IPV6
from towline.kernels.base.crc import crc32_each
from towline.kernels.base.directory import QueueDirectory
from towline.log.commitlog.commit_log import CommitLogReader
from towline.log.commitlog.dispatch import DispatchScan
from towline.places import Store

from .history import ACKNOWLEDGED, KEY_SIZE, NUMBER_AT, STORED, STORES, History, read_history

NAMED_MAX: Final = 5
STEP: Final = 4 << 20
IPV6_MORE: Final = 12  # bytes of an IPv6 host beyond those of an IPv4 one
Numbers = npt.NDArray[np.int64]
Keys = npt.NDArray[np.bytes_]


@dataclass(frozen=True, slots=True)
class Found:
    """Columns of the load's records of one log, in its order."""

    keys: Keys
    queues: Numbers
    offsets: Numbers
    crcs: Numbers
    low: int  # of the whole log
    end: int

    def __len__(self) -> int:
        return len(self.keys)


@dataclass
class DrillVerdict:
    """`faults` are sentences about what must not be; none: the drill has passed."""

    sent: int = 0
    acknowledged: int = 0
    stored: int = 0
    unknown: int = 0
    lost: int = 0
    changed: int = 0
    moved: int = 0  # acknowledged, and not at the queue offset that was named
    strangers: int = 0
    doubled: int = 0
    disordered: int = 0
    stored_lost: int = 0  # stored, never promised, and gone with a failover
    without_service_s: float = 0.0
    compared_bytes: int = 0
    identical: bool = True
    faults: list[str] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        return not self.faults


def read_found(store: Store, segment_size: int, topics: Sequence[str]) -> Found:
    """Every record of the load's topics, in the log as its files say; ends where no whole record follows."""
    log = CommitLogReader(store.commitlog, segment_size)
    log.load()
    directory = QueueDirectory()
    scan = DispatchScan(log, directory)
    names = {topic.encode() for topic in topics}
    parts: list[tuple[Keys, Numbers, Numbers, Numbers]] = []
    low = at = log.queue.min_offset
    last = log.queue.bases[-1] + segment_size
    while at < last:
        batch = scan.read(at, last)
        if batch.end == at:
            break
        ours = [directory.topic(number) in names for number in range(len(directory))]
        rows = batch.rows[np.array(ours, dtype=bool)[batch.rows["queue_index"]]] if len(batch.rows) else batch.rows
        if len(rows):
            queue_ids = np.array([directory.queue_id(number) for number in range(len(directory))])
            parts.append(_columns(batch.log, batch.base, rows, batch.keys, queue_ids))
        at = batch.end
    log.close()
    keys = np.concatenate([part[0] for part in parts]) if parts else np.empty(0, dtype=f"S{KEY_SIZE}")
    queues, offsets, crcs = (
        np.concatenate([part[place] for part in parts]) if parts else np.empty(0, dtype=np.int64) for place in (1, 2, 3)
    )
    return Found(keys, queues, offsets, crcs, low, at)


def _columns(
    log: npt.NDArray[np.uint8], base: int, rows: npt.NDArray[np.void], keys: npt.NDArray[np.void], queue_ids: Numbers
) -> tuple[Keys, Numbers, Numbers, Numbers]:
    starts = rows["phy"] - base
    firsts = keys[rows["key_start"]]
    wide = np.where(firsts["length"] == KEY_SIZE, firsts["start"], 0)[:, None] + np.arange(KEY_SIZE)
    found = np.ascontiguousarray(log[wide]).view(f"S{KEY_SIZE}")[:, 0]
    flags = _word(log, starts + LAYOUT.offset["sys_flag"])
    body_at = starts + LAYOUT.size
    for family in (BORN_HOST_IPV6, STORE_HOST_IPV6):
        body_at = body_at + IPV6_MORE * ((flags & family) != 0)
    crcs = np.zeros(len(rows), dtype=np.int64)
    crc32_each(log, np.ascontiguousarray(body_at), _word(log, body_at - 4), crcs)
    return found, queue_ids[rows["queue_index"]], rows["queue_offset"].astype(np.int64), crcs


def _word(log: npt.NDArray[np.uint8], at: Numbers) -> Numbers:
    """The big-endian 32-bit words at these places."""
    words = np.ascontiguousarray(log[at[:, None] + np.arange(4)]).view(">u4")[:, 0]
    return words.astype(np.int64)


class Judge:
    """Compares logs with a history; whose producers are not `idempotent` may have doubled what they sent again."""

    def __init__(self, history: History, *, idempotent: bool = True) -> None:
        acknowledged, stored = (int(history.has(status).sum()) for status in (ACKNOWLEDGED, STORED))
        self.verdict = DrillVerdict(len(history), acknowledged, stored, len(history) - acknowledged - stored)
        self._order = np.argsort(history.keys, kind="stable")
        self._history, self._idempotent = history, idempotent
        self._keys = history.keys[self._order]
        self._fault("sent under one key twice", self._keys[:-1][self._keys[:-1] == self._keys[1:]])
        self.verdict.without_service_s = self._longest_gap()

    def check(self, name: str, found: Found) -> None:
        """One node's log against the history."""
        known, places = _lookup(self._keys, found.keys)
        verdict = self.verdict
        verdict.strangers = max(verdict.strangers, int((~known).sum()))
        self._fault(f"{name}: never sent", found.keys[~known])
        rows = self._order[places[known]]
        at = np.flatnonzero(known)
        right = found.crcs[at] == self._history.crcs[rows]
        verdict.changed = max(verdict.changed, int((~right).sum()))
        self._fault(f"{name}: another body than was sent", found.keys[at[~right]])
        promised = self._history.has(ACKNOWLEDGED)
        there, in_place = np.zeros(len(promised), dtype=bool), np.zeros(len(promised), dtype=bool)
        there[rows[right]] = True
        named = (found.offsets[at] == self._history.offsets[rows]) & (found.queues[at] == self._history.queues[rows])
        in_place[rows[right & named]] = True
        lost, moved = promised & ~there, promised & there & ~in_place
        verdict.lost = max(verdict.lost, int(lost.sum()))
        verdict.moved = max(verdict.moved, int(moved.sum()))
        verdict.stored_lost = max(verdict.stored_lost, int((self._history.has(STORED) & ~there).sum()))
        self._fault(f"{name}: acknowledged and lost", self._history.keys[lost])
        self._fault(f"{name}: acknowledged and not at its queue offset", self._history.keys[moved])
        self._doubles(name, rows)
        self._queues(name, found)

    def _doubles(self, name: str, rows: Numbers) -> None:
        there, copies = np.unique(rows, return_counts=True)
        self.verdict.doubled = max(self.verdict.doubled, int((copies - 1).sum()))
        if self._idempotent:
            self._fault(f"{name}: there twice", self._history.keys[there[copies > 1]])
        else:
            often = copies > self._history.attempts[there]
            self._fault(f"{name}: there more often than sent", self._history.keys[there[often]])

    def _queues(self, name: str, found: Found) -> None:
        """Offsets of a queue go up by one; first copies of a producer's messages in the order of sending."""
        numbers = found.keys.view("S1").reshape(len(found), KEY_SIZE)[:, NUMBER_AT:].copy().view(f"S{KEY_SIZE - 10}")
        producers = found.keys.view("S1").reshape(len(found), KEY_SIZE)[:, 8:10].copy().view("S2")[:, 0].astype(int)
        sent, queues = numbers[:, 0].astype(np.int64), producers * 1000 + found.queues
        _, firsts = np.unique(found.keys, return_index=True)
        first = np.zeros(len(found), dtype=bool)
        first[firsts] = True
        for queue in np.unique(queues):
            here = queues == queue
            gaps = np.flatnonzero(np.diff(found.offsets[here]) != 1)
            self._fault(f"{name}: queue {queue % 1000} of producer {queue // 1000} has a gap", found.keys[here][gaps])
            steps = np.flatnonzero(np.diff(sent[here & first]) <= 0)
            self.verdict.disordered += len(steps)
            self._fault(f"{name}: out of order", found.keys[here & first][steps])

    def _longest_gap(self) -> float:
        """The longest time without an acknowledgement while messages waited for theirs."""
        ends = np.sort(self._history.t_end[self._history.has(ACKNOWLEDGED)])
        return round(float(np.diff(ends).max()), 3) if len(ends) > 1 else 0.0

    def _fault(self, what: str, keys: Keys) -> None:
        if len(keys):
            some = ", ".join(key.decode() for key in keys[:NAMED_MAX].tolist())
            self.verdict.faults.append(f"{what}: {len(keys)} messages, {some}")


def _lookup(ordered: Keys, wanted: Keys) -> tuple[npt.NDArray[np.bool_], Numbers]:
    """Whether each of `wanted` is in `ordered`, and where."""
    if not len(ordered):
        return np.zeros(len(wanted), dtype=bool), np.zeros(len(wanted), dtype=np.int64)
    places = np.minimum(np.searchsorted(ordered, wanted), len(ordered) - 1)
    return ordered[places] == wanted, places


def compare(verdict: DrillVerdict, stores: dict[str, Path], found: dict[str, Found], segment_size: int) -> None:
    """All CommitLogs byte for byte over what all of them hold."""
    low, end = max(one.low for one in found.values()), min(one.end for one in found.values())
    verdict.compared_bytes = max(0, end - low)
    if not verdict.compared_bytes:
        verdict.faults.append(f"no byte is in all CommitLogs, so none was compared: {', '.join(stores)}")
        verdict.identical = False
    for (one, here), (other, there) in pairwise(stores.items()):
        at = low
        while at < end:
            base = at - at % segment_size
            size = min(STEP, end - at, base + segment_size - at)
            left, right = (
                np.memmap(side / f"{base:020d}", dtype=np.uint8, mode="r")[at - base : at - base + size]
                for side in (here, there)
            )
            if not np.array_equal(left, right):
                place = at + int((left != right).argmax())
                verdict.faults.append(f"the CommitLogs of {one} and {other} differ at {place}")
                verdict.identical = False
                break
            at += size


def check(directory: Path) -> DrillVerdict:
    """A node that was away at the end answers for its bytes alone: what it has not is not lost.

    Raises FileNotFoundError, ValueError for a directory that holds no whole drill.
    """
    said: dict[str, Any] = orjson.loads((directory / STORES).read_bytes())
    judge = Judge(read_history(directory), idempotent=said["idempotent"])
    logs, found = {}, {}
    for name, path in said["stores"].items():
        store = Store(Path(path))
        logs[name] = store.commitlog
        found[name] = read_found(store, said["segment_size"], said["topics"])
        if name not in said["away"]:
            judge.check(name, found[name])
    compare(judge.verdict, logs, found, said["segment_size"])
    ends = {name: one.end for name, one in found.items() if name not in said["away"]}
    if len(set(ends.values())) > 1:
        judge.verdict.faults.append(f"the logs end at different places: {ends}")
    return judge.verdict


def main(arguments: Sequence[str]) -> int:
    verdict = check(Path(arguments[0]))
    sys.stdout.write(orjson.dumps(asdict(verdict)).decode() + "\n")
    return 0 if verdict.passed else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
