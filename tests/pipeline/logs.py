"""Logs of every kind of record, as a store's put writes them, and the tasks of a job without Spark."""

import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from tests.log.stores import NOON, SEGMENT, StoreMaker
from towline.format.record import blank, record, skipped
from towline.format.record.record import TRANSACTION_COMMIT, TRANSACTION_PREPARED, TRANSACTION_ROLLBACK, Record
from towline.format.record.skipped import Lost
from towline.limits import KIB

DELAYS = "2s 3m 1h"
DELAYS_MS = (2_000, 180_000, 3_600_000)
HALF_TOPIC = b"RMQ_SYS_TRANS_HALF_TOPIC"
DELAY_TOPIC = b"SCHEDULE_TOPIC_XXXX"


@dataclass(frozen=True)
class Sent:
    """What becomes one record. `kind`: plain, commit, rollback, half, delayed, lost (a hole with `count` numbers)."""

    kind: str
    queue: int
    size: int
    keys: tuple[str, ...] = ()
    tag: str = ""
    count: int = 1


SENT = st.builds(
    Sent,
    kind=st.sampled_from(["plain"] * 6 + ["commit", "rollback", "half", "delayed", "lost"]),
    queue=st.integers(0, 5),
    size=st.sampled_from([0, 1, 50, 300, 3000, 20 * KIB]),
    keys=st.lists(st.sampled_from(["a", "b", "key", "an order"]), max_size=3).map(tuple),
    tag=st.sampled_from(["", "red", "blue"]),
    count=st.integers(1, 30),
)
LOGS = st.lists(SENT, min_size=1, max_size=60)


@dataclass
class Writer:
    """Appends to a StoreMaker's log; numbers of queues go up from `first`."""

    maker: StoreMaker
    first: int = 0
    numbers: dict[tuple[bytes, int], int] = field(default_factory=dict)
    places: list[int] = field(default_factory=list)  # where each record stands

    def send(self, *all_sent: Sent) -> None:
        for sent in all_sent:
            self._append(sent, NOON + 400 * len(self.places))

    def _append(self, sent: Sent, time: int) -> None:
        topic, queue_id, flags = b"Topic%d" % (sent.queue % 3), sent.queue % 2, 0
        properties = f"KEYS\x01{' '.join(sent.keys)}\x02" if sent.keys else ""
        properties += f"TAGS\x01{sent.tag}\x02" if sent.tag else ""
        if sent.kind == "half":
            topic, flags = HALF_TOPIC, 0
        elif sent.kind == "delayed":
            topic, queue_id = DELAY_TOPIC, sent.queue % 3
            properties += f"DELAY\x01{queue_id + 1}\x02"
        elif sent.kind in ("commit", "rollback"):
            flags = TRANSACTION_COMMIT if sent.kind == "commit" else TRANSACTION_ROLLBACK
        if sent.kind == "half" and sent.queue % 2:
            flags = TRANSACTION_PREPARED
        entered = flags in (0, TRANSACTION_COMMIT)
        key = topic, queue_id
        offset = self.numbers.setdefault(key, self.first) if entered or sent.kind == "lost" else 0
        size = record.record_size(sent.size, len(topic), len(properties))
        self._roll(max(size, 1000))
        if sent.kind == "lost":
            lost = Lost(topic, queue_id, offset, sent.count)
            data = skipped.encode(1000, self.maker.end, lost, time, with_crc=False)
            self.numbers[key] += sent.count
        else:
            made = Record(
                topic=topic,
                body=bytes([sent.queue + 1]) * sent.size,
                properties=properties.encode(),
                queue_id=queue_id,
                queue_offset=offset,
                physical_offset=self.maker.end,
                sys_flag=flags,
                born_timestamp=time,
                store_timestamp=time,
            )
            data = record.encode(made)
            self.numbers[key] = offset + 1 if entered else self.numbers.get(key, self.first)
        self.places.append(self.maker.end)
        self.maker.write(self.maker.end, data)
        self.maker.end += len(data)

    def _roll(self, size: int) -> None:
        room = SEGMENT - self.maker.end % SEGMENT
        if not blank.fits(size, room):
            self.maker.write(self.maker.end, blank.encode(room))
            self.maker.end += room


class PlainTasks:
    """Tasks in one process, whose parts and results go through pickle as with Spark.

    `doubled`: each runs twice. `before` is called with the number of each task that begins.
    """

    def __init__(
        self, parallel: int = 2, *, doubled: bool = False, before: Callable[[int], None] = lambda _: None
    ) -> None:
        self.parallel, self._doubled, self._before = parallel, doubled, before

    def run(self, what: str, work: Callable[[Any], Any], parts: Sequence[Any]) -> list[Any]:
        done: list[Any] = []
        for number in reversed(range(len(parts))):  # the end first: no task may lean on the one before
            for _ in range(1 + self._doubled):
                self._before(number)
                made = pickle.loads(pickle.dumps(work))(pickle.loads(pickle.dumps(parts[number])))
            done.insert(0, pickle.loads(pickle.dumps(made)))
        return done
