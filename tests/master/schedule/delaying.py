"""A store with records in a form, the sources that deliver them, and a put that only a test answers for."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.serve.building import HOST, NOON, Built
from towline.format.record.forms import SCHEDULE_TOPIC, StoredForm
from towline.format.record.properties import DELAY, UNIQ_KEY, decode, encode
from towline.format.record.record import Record
from towline.format.record.record import decode as decode_record
from towline.format.record.record import encode as encode_record
from towline.format.wire.frames import PutAnswer
from towline.format.wire.status import PutStatus
from towline.log.files.config_file import ConfigFile
from towline.master.schedule.delay_levels import DelayLevel
from towline.master.schedule.delivery import DeliveryLane
from towline.master.schedule.restoring import MissingTopics, RealQueues, Restorer
from towline.master.schedule.timers import ROWS_MAX, Timers, TimerState

DELAYS_MS = (1000, 3_600_000)


class Delaying(Built):
    """Times of records are ms after NOON."""

    def put(self, form: StoredForm, key: str, at_ms: int = 0, **fields: object) -> bytes:
        """Appends a record in a form; its bytes."""
        queue = (form.topic, form.queue_id)
        record = Record(
            topic=form.topic.encode(),
            queue_id=form.queue_id,
            body=b"body of " + key.encode(),
            properties=encode([(UNIQ_KEY, key), *form.pairs]),
            queue_offset=self._next.get(queue, 0),
            physical_offset=self.end,
            born_timestamp=NOON - 3,
            born_host=HOST,
            store_timestamp=NOON + at_ms,
            store_host=HOST,
            **fields,  # type: ignore[arg-type]
        )
        data = encode_record(record)
        assert self.segment - self.end % self.segment > len(data) + 8, "a test's records fit in a segment"
        self._write(self.end, data)
        self.records[self.end] = data
        level = dict(form.pairs).get(DELAY)
        code = NOON + at_ms + DELAYS_MS[int(level) - 1] if form.topic == SCHEDULE_TOPIC and level else 0
        self._waiting.append((*queue, record.queue_offset, self.end, 0))
        self._codes[self.end] = code
        self.end += len(data)
        self._next[queue] = record.queue_offset + 1
        return data

    def __post_init__(self) -> None:
        super().__post_init__()
        self._codes: dict[int, int] = {}
        self.monotonic = 5_000_000

    def dispatch(self, *, ring: bool = True) -> None:
        self._waiting = [(*each[:4], self._codes.get(each[3], 0)) for each in self._waiting]
        super().dispatch(ring=ring)

    def restorer(self, *, with_crc: bool = False) -> Restorer:
        queues = RealQueues(ConfigFile(self.store.config / "topics.json"))
        return Restorer(self.log, queues, with_crc=with_crc)

    def level(self, number: int, store_time: int = -1) -> DelayLevel:
        delay_ms = DELAYS_MS[number - 1]
        return DelayLevel(number, delay_ms, self.queues, self.ends, lambda offset: store_time, lambda: self.monotonic)

    def timers(self, through: TimerState | None = None, rows_max: int = ROWS_MAX) -> Timers:
        return Timers(self.queues, self.ends, self.restorer(), through or TimerState(), rows_max)


@dataclass
class Sent:
    groups: list[tuple[bytes, int, int]]
    keys: list[str]
    records: list[Record]


class FakePut:
    """In the place of an Outbox. `asked`: questions that were not answered yet."""

    has_room = True

    def __init__(self) -> None:
        self.sent: list[Sent] = []
        self.asked: list[tuple[str, dict[str, object], Callable[[bool], None]]] = []
        self._done = None

    def send_joined(self, groups, records, now_ms, done) -> bool:
        data, found, at = bytes(records), [], 0
        for group in groups:
            assert sum(each.size for each in groups) == len(data)
            for _ in range(group.count):
                found.append(decode_record(data[at:], check_crc=False))  # put fills property CRCs in
                at += int.from_bytes(data[at : at + 4], "big")
                assert (found[-1].topic, found[-1].queue_id) == (group.topic, group.queue_id)
        assert at == len(data)
        shapes = [(group.topic, group.queue_id, group.count) for group in groups]
        self.sent.append(Sent(shapes, [decode(each.properties)[UNIQ_KEY] for each in found], found))
        self._groups, self._done = groups, done
        return True

    def ask(self, op: str, done: Callable[[bool], None], **facts: object) -> bool:
        self.asked.append((op, facts, done))
        return True

    def answer(self, status: PutStatus | None, *, at: int = 0, retry_after: int = 0) -> None:
        done, self._done = self._done, None
        assert done is not None, "nothing was sent"
        if status is None:
            done(None)
            return
        places = [(0, at + number) for number in range(len(self._groups))] if status.stored else []
        done(PutAnswer(1, status, 0, -1, retry_after, places, "a sentence"))

    @property
    def waits(self) -> bool:
        return self._done is not None


def lane_of(source, restorer: Restorer, put: FakePut, *, follows: bool = False) -> DeliveryLane:
    log = logging.getLogger("schedule")
    return DeliveryLane(source, restorer, put, log, MissingTopics(put, 8, log) if follows else None)


def made(tmp_path: Path, **queues: int) -> Delaying:
    built = Delaying(tmp_path / "delaying")
    built.topics(**queues)
    return built
