"""The schedule process of a master: what was put to be seen later is delivered when its time has come.

owns     schedule: SYNC_WANTED, the line of what waits; config/delayOffset.json, config/timerOffset.json,
         config/transactionOffset.json
reads    the queues of SCHEDULE_TOPIC_XXXX and rmq_sys_wheel_timer below their published ends, the log, topics.json;
         APPENDED, DISPATCHED, FLUSHED, LOG_MIN
asks     put to store deliveries, as a process of the node; flush to sync what the offsets cover; serve to keep
         those of transactions where RocketMQ looks for them
answers  producers: ends of transactions, and what is to be said about open ones (`transactions.service`)
dies     safely at any point: what was delivered since the offsets were written is delivered again, with the same
         unique key; nothing is left out
"""

import gc
from typing import Any, ClassVar, Final

from towline.limits import LOOK_MS
from towline.link.context import close_context, new_context
from towline.link.poller import Poller
from towline.log.commitlog.commit_log import CommitLogReader, store_time
from towline.log.files.config_file import ConfigFile
from towline.log.queues.consume_queue import ConsumeQueueFiles
from towline.log.queues.release_files import FileReleaser
from towline.log.state.floors import levels_of
from towline.master.schedule.transactions.service import TransactionService
from towline.node.peers.handshake import own_facts
from towline.node.peers.local_links import LocalLink, Outbox
from towline.node.process.context import Node
from towline.node.process.endpoints import local_endpoint
from towline.node.process.secret import SCHEDULE_ROLE, SECRET_FACT, read_secret
from towline.runtime.doorbell import Doorbell
from towline.runtime.idle_sleep import IdleSleep
from towline.runtime.positions import Counter, Duty, Position

from .delay_levels import FAR_MS, DelayLevel
from .delay_offsets import DelayOffsets, DeliveryState
from .delivery import DeliveryLane, DeliverySource
from .restoring import MissingTopics, RealQueues, Restorer
from .timers import Timers

QUEUE_FILES_OPEN_MAX: Final = 64
SOON_MS: Final = 2  # while something is about to be seen that reput has not dispatched yet
ANSWERS_MS: Final = 20  # the link wakes it; this is for an answer that never comes
STATUS_EVERY_MS: Final = 100
HELD_MS: Final = 20  # while deliveries wait for the disk: the thread that writes rings, flush does not
DRAIN_MS: Final = 2000


class ScheduleAgent:
    """The duty cycle of schedule."""

    duty: ClassVar[Duty] = Duty.SCHEDULE

    def __init__(self, node: Node) -> None:
        self._node = node
        self._line = node.line
        self._started_at = 0  # APPENDED then: offsets are compared with the queues once reput has come so far
        self._ready = False
        self._eager_until = 0  # APPENDED when somebody rang: reput will have come so far in a moment
        self._put_fence = (0, 0)  # APPENDED, and the time at which it was read
        self._wall_ms = 0
        self._counted = (0, 0)
        self._through = 0
        self._status_ms = 0
        self._gone: dict[str, int] = {}  # by source, as it was told
        self._saved_after = 0
        self._linked = False
        self._drain_until: int | None = None
        self._levels: list[DelayLevel] = []
        self._sources: list[DeliverySource] = []
        self._lanes: list[DeliveryLane] = []

    def on_start(self, bell: Doorbell) -> None:
        self._bell = bell
        node, settings = self._node, self._node.settings
        self._started_at = node.positions.get(Position.APPENDED)
        self._log = CommitLogReader(node.store.commitlog, settings.mapped_file_size_commit_log)
        self._log.load()
        self._files = ConsumeQueueFiles(
            node.store.consumequeue, settings.mapped_file_size_consume_queue, QUEUE_FILES_OPEN_MAX
        )
        self._releaser = FileReleaser(self._log, self._files)
        self._ends = node.queue_ends()
        self._context = new_context()
        self._poller = Poller(bell.fileno())
        self._link = LocalLink(self._context, local_endpoint(node.runtime, "put"), self._facts, self._poller, node.log)
        answer_ms = max(settings.sync_flush_timeout, settings.slave_timeout)
        self._outbox = Outbox(self._link, node.clock.now_ms, answer_ms)
        queues = RealQueues(ConfigFile(node.store.config / "topics.json"))
        self._restorer = Restorer(self._log, queues, with_crc=settings.enabled_append_prop_crc)
        self._offsets = DelayOffsets(node, self._state, node.ringer(Duty.SCHEDULE).ring)
        self._saved_offsets, through = self._offsets.load()
        self._covered_end = min(self._offsets.covered_end, self._started_at)
        self._timers = Timers(self._files, self._ends, self._restorer, through)
        missing = MissingTopics(self._outbox, settings.default_topic_queue_nums, node.log)
        self._missing = missing if settings.ha_peers else None  # else what is in no file was deleted
        self._add_source(self._timers)
        self._transactions = TransactionService(node, self._context, self._poller)
        gc.freeze()

    def do_work(self) -> int:
        clock, positions = self._node.clock, self._node.positions
        now = clock.monotonic_ms()
        self._releaser.release(positions.get(Position.LOG_MIN), now)
        done = self._transactions.cycle()
        if self._linked or any(source.pending() for source in self._sources):
            self._linked = True  # before it is due; a node that delays nothing has no link to sleep on
            done += self._outbox.cycle(now)
        dispatched = positions.get(Position.DISPATCHED)  # before the queues' ends: they cover it
        if not self._ready and not self._check_offsets(dispatched):
            return done
        done += self._timers.scan()
        self._update_safe_ms(dispatched, clock.now_ms())
        stopping = self._drain_until is not None
        start_new = not stopping and not self._offsets.must_wait(now)
        for lane in self._lanes:
            done += lane.cycle(now, clock.now_ms(), start_new=start_new)
        self._count()
        self._publish_status(now)
        changed = self._through != self._saved_after
        if self._offsets.cycle(now, changed=changed, at_once=stopping):
            done += 1
        return done

    def sleep_ms(self) -> int:
        now, wall = self._node.clock.monotonic_ms(), self._node.clock.now_ms()
        positions = self._node.positions
        if len(self._outbox):
            return ANSWERS_MS
        if self._offsets.must_wait(now):
            return HELD_MS
        lanes = zip(self._sources, self._lanes, strict=True) if self._linked else ()
        due = min((max(source.due_ms(wall), lane.due_ms(now)) for source, lane in lanes), default=FAR_MS)
        behind = positions.get(Position.DISPATCHED) < max(self._eager_until, self._put_fence[0] if due == 0 else 0)
        if behind or due == 0 or self._offsets.awaits_flush:
            return SOON_MS
        return min(LOOK_MS, due, self._transactions.due_ms())

    def wait(self, timeout_ms: int, rest: IdleSleep | None) -> bool:
        rang = bool(self._poller.poll(timeout_ms, rest)) and self._poller.ready(self._bell.fileno())
        if rang:
            self._eager_until = self._node.positions.get(Position.APPENDED)
        return rang

    def drain(self) -> bool:
        """Drains until put has answered the requests under way, and the offset files cover them."""
        now = self._node.clock.monotonic_ms()
        if self._drain_until is None:
            self._drain_until = now + DRAIN_MS
        busy = any(lane.busy for lane in self._lanes) or self._offsets.busy
        saved = self._through == self._saved_after
        return (self._transactions.drain() and not busy and saved) or now >= self._drain_until

    def on_close(self) -> None:
        if hasattr(self, "_offsets"):
            self._offsets.close()
        if hasattr(self, "_link"):
            self._link.close()
            if hasattr(self, "_transactions"):
                self._transactions.close()
            close_context(self._context)

    # --- within a turn

    def _facts(self) -> dict[str, Any]:
        """The facts of a greeting to put. Raises FileNotFoundError while put has not made the secret."""
        return own_facts(self._node, SCHEDULE_ROLE) | {SECRET_FACT: read_secret(self._node.runtime.secret)}

    def _add_source(self, source: DeliverySource) -> None:
        self._sources.append(source)
        self._lanes.append(DeliveryLane(source, self._restorer, self._outbox, self._node.log, self._missing))

    def _add_levels(self) -> None:
        """Adds the levels of the settings, and those that still hold messages though the settings dropped them."""
        clock, delays = self._node.clock, self._node.settings.delay_levels_ms
        for number in range(1, levels_of(self._files, len(delays)) + 1):
            delay_ms = delays[number - 1] if number <= len(delays) else None
            level = DelayLevel(
                number, delay_ms, self._files, self._ends, lambda at: store_time(self._log, at), clock.monotonic_ms
            )
            level.offset = self._saved_offsets.get(number, 0)
            if delay_ms is None and level.pending():
                self._node.log.warning(
                    "%d wait in %s, which is in message_delay_level no more", level.pending(), level.name
                )
            self._levels.append(level)
            self._add_source(level)

    def _check_offsets(self, dispatched: int) -> bool:
        """Checks the offsets against the queues once reput has dispatched the log of the start (H15)."""
        if dispatched < self._started_at:
            return False
        self._add_levels()
        for source in self._sources:
            beyond = source.clamp()
            if beyond:
                self._node.log.warning("%s: %d counted as delivered that the log does not hold", source.name, beyond)
                self._line.count(Counter.FALLBACKS, beyond)
            if source.doubtful:
                message = "%d of %s have left the log: those of them that were not delivered are lost"
                self._node.log.warning(message, source.doubtful, source.name)
        self._ready = True
        return True

    def _update_safe_ms(self, dispatched: int, wall_ms: int) -> None:
        """Raises `safe_ms`: every put accepted before it, cancellations too, was dispatched before the last scan.

        `wall_ms` was read before put's append state, and that before APPENDED: an append that has ended by then is
        covered, one that begins later reads its clock later, and one that is under way may append a cancellation.
        """
        if wall_ms < self._wall_ms:  # set back: what comes from here on may cancel what is due until then
            self._timers.safe_ms, self._put_fence = 0, (0, 0)
        self._wall_ms = wall_ms
        if not self._timers.caught_up:
            return
        end, since = self._put_fence
        busy = self._node.positions.duty(Duty.PUT).turn_began_ns > 0
        appended = self._node.positions.get(Position.APPENDED)
        if dispatched >= end:
            self._timers.safe_ms = max(self._timers.safe_ms, since)
            if not busy:
                self._put_fence = (appended, wall_ms)
                if dispatched >= appended:
                    self._timers.safe_ms = wall_ms

    def _state(self) -> DeliveryState:
        self._saved_after = self._through
        for level in self._levels:
            self._saved_offsets[level.number] = level.offset
        end = max(self._covered_end, *(source.end for source in self._sources))
        return DeliveryState(dict(self._saved_offsets), self._timers.through(), end)

    def _publish_status(self, now: int) -> None:
        """Publishes what waits, for `status`."""
        if now - self._status_ms >= STATUS_EVERY_MS:
            self._status_ms = now
            dues = [due for source in self._sources if (due := source.next_due()) is not None]
            waiting = sum(source.pending() for source in self._sources)
            self._node.positions.delays.set(waiting, min(dues, default=0))

    def _count(self) -> None:
        """Counts deliveries and losses in this duty's line."""
        for source in self._sources:
            gone = source.gone - self._gone.get(source.name, 0)
            if gone:
                self._gone[source.name] = source.gone
                message = (
                    "%d of %s are lost: the log was cleaned before their time (file_reserved_bytes, or a full disk)"
                )
                self._node.log.error(message, gone, source.name)
        delivered = sum(lane.delivered for lane in self._lanes)
        lost = sum(lane.lost for lane in self._lanes) + sum(source.gone for source in self._sources)
        self._line.count(Counter.MESSAGES, delivered - self._counted[0])
        self._line.lose(lost - self._counted[1])
        self._counted = (delivered, lost)
        self._through = sum(lane.through for lane in self._lanes) + sum(source.gone for source in self._sources)


def build(node: Node) -> ScheduleAgent:
    return ScheduleAgent(node)
