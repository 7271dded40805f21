"""The duty cycle of serve: answers pulls and questions, and holds pulls until reput's doorbell announces messages."""

import gc
import time
from collections import deque
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Final

import numpy as np

from towline.clock import boot_id
from towline.errors import LinkRefused, MalformedFrame, QueueDamaged, TowlineError
from towline.format.wire.frames import (
    ANSWER,
    ASK,
    PULL_ANSWER,
    READ_FROM_SLAVE,
    RECORDS_IN_FILE,
    Kind,
    Pull,
    decode_pull,
    expect,
    json_part,
    kind_of,
    read_json,
)
from towline.format.wire.refusals import error_facts
from towline.format.wire.status import GetStatus
from towline.limits import MIB, QUEUES_MAX, REST_MAX_MS
from towline.link.context import close_context, new_context
from towline.link.handshake import encode_refusal
from towline.link.poller import Poller
from towline.link.server import Request, Sent, Server
from towline.log.commitlog.commit_log import CommitLogReader
from towline.log.queues.consume_queue import ConsumeQueueFiles
from towline.log.queues.consume_queue_ext import ConsumeQueueExtFiles
from towline.log.queues.index_service import IndexService
from towline.log.state.epoch_file import EpochFile
from towline.node.peers.handshake import own_facts, welcome
from towline.node.process.context import Node
from towline.node.process.endpoints import local_endpoint
from towline.node.process.secret import guarded, read_secret
from towline.node.store.confirmed import written_of
from towline.node.store.pull_rules import PullRules, pull_rules, pull_size_max
from towline.runtime.doorbell import Doorbell
from towline.runtime.failpoints import ARMED, reach
from towline.runtime.idle_sleep import IdleSleep
from towline.runtime.positions import Counter, Duty, Position
from towline.runtime.settings import Settings
from towline.runtime.settings_model import BrokerRole
from towline.runtime.stage_times import Stage, StageTimes
from towline.runtime.store_stats import StoreStats, Total
from towline.serve.groups.wiring import check_asker, groups_of, is_group_question, refusal_facts

from .backlog import Backlog
from .catch_up import CatchUp
from .filtering import ExtensionUnits, Filters
from .long_poll import HeldPull, HeldPulls
from .lookup import DamageCounter, Lookup, LookupRules
from .node_questions import NodeQuestions, is_node_question
from .outbound_buffer import PEER_MAX, OutboundBuffer
from .pull import Puller, PullResult
from .selection import may_wait
from .tail import tail_facts
from .topics import TopicsView

REQUESTS_PER_TURN: Final = 256
BYTES_PER_TURN: Final = 32 * MIB
QUEUE_FILES_OPEN_MAX: Final = 512
SUSPEND_MAX_MS: Final = 60_000
HIGH_WATER: Final = 64  # answers queued for one peer; `OutboundBuffer` bounds what those cost that are copies
PAUSE_MS: Final = 5  # before a peer whose queue is full is tried again
PAUSED_MAX: Final = QUEUES_MAX
RELEASE_EVERY_MS: Final = 1_000
PAUSED_MAX_MS: Final = 10_000  # a peer that takes no answer for so long has to greet again
FOLLOWED_MAX: Final = 1 << 40  # bytes that a reader may say to have read by itself between two questions
DAMAGED: Final = "DAMAGED"  # code of the refusal that ends the link of a reader of a damaged queue


@dataclass(slots=True)
class PausedPull:
    """A pull whose answer its peer could not take. The answer is built again, so that no memory is kept for it
    meanwhile."""

    peer: bytes
    pull: Pull
    until_ms: int


class ServeAgent:
    """The duty cycle of serve."""

    duty: ClassVar[Duty] = Duty.SERVE

    def __init__(self, node: Node) -> None:
        self._node = node
        self._line = node.line
        self._times = StageTimes(node.positions, Stage.SERVE)
        self._paused: deque[PausedPull] = deque()
        self._paused_until = 0

    def on_start(self, bell: Doorbell) -> None:
        node, settings = self._node, self._node.settings
        self._bell = bell
        rules = self._rules()
        self._log = CommitLogReader(
            node.store.commitlog, settings.mapped_file_size_commit_log, in_memory_bytes=rules.in_memory_bytes
        )
        self._log.load()
        self._log_min = node.positions.get(Position.LOG_MIN)
        ends = node.queue_ends()
        topics = TopicsView(node.store.config / "topics.json")
        queues = ConsumeQueueFiles(
            node.store.consumequeue, settings.mapped_file_size_consume_queue, QUEUE_FILES_OPEN_MAX
        )
        index = None
        if settings.message_index_enable:
            index = IndexService(node.store.index, settings.max_hash_slot_num, settings.max_index_num)
            index.load()
        self._queues, self._index, self._released_ms = queues, index, self._now()
        self._topics = topics
        get = node.positions.get
        self._catch_up = CatchUp(get, node.clock)
        self._settled = self._catch_up.settled()
        self._damaged_last: tuple[object, ...] = ()
        self._puller = Puller(queues, self._log, ends, topics, get, rules, self._catch_up.settled, _extension(node))
        epochs, rules_of_lookup = EpochFile(node.store), lookup_rules(settings)
        damage = DamageCounter(node.writer(Position.DAMAGED), node.writer(Position.DAMAGED_NEWEST), node.log)
        self._lookup = Lookup(
            topics, ends, queues, self._log, index, get, rules_of_lookup, epochs, self._catch_up, damage.count
        )
        self._groups = groups_of(node, topics, ends, self._lookup, self._send)
        self._of_node = NodeQuestions(node.store.root, node.ringer(Duty.SERVE).ring)
        self._filters = Filters(settings.enable_property_filter, _extension(node), self._groups.subscription)
        self._slave_read = settings.slave_read_enable and settings.broker_role is not BrokerRole.SLAVE
        self._held_pulls = HeldPulls(ends)
        self._outbound = OutboundBuffer(self._now)
        self._backlog = Backlog(lambda peer, parts: self._server.send(peer, parts, copy=False), self._now)
        self._stats = StoreStats.own(node.runtime.get_stats, node.generation, node.clock.now_ms())
        self._context = new_context()
        self._server = self._bind()
        self._poller = Poller(self._server, bell.fileno())
        gc.freeze()

    def _rules(self) -> PullRules:
        return replace(pull_rules(self._node.settings), written=written_of(self._node))

    def adjust(self) -> None:
        self._puller.rules = self._rules()
        self._groups.adjust(self._node.settings)

    def _bind(self) -> Server:
        """Binds the sockets; the welcome says what a reader on this machine may read by itself."""
        node, settings = self._node, self._node.settings
        return Server(
            self._context,
            [local_endpoint(node.runtime, "serve")],
            own=own_facts(node, "serve"),
            greet=guarded(
                welcome(
                    node,
                    pull_bytes_max=pull_size_max(settings),
                    commitlog=str(node.store.commitlog.resolve()),
                    boot=boot_id(),
                    tail=tail_facts(node),
                ),
                partial(read_secret, node.runtime.secret),
            ),
            counted=lambda: self._line.count(Counter.REFUSED),
            frame_size_max=MIB,
            high_water=HIGH_WATER,
        )

    @property
    def endpoints(self) -> list[str]:
        """The endpoints on which it listens."""
        return self._server.endpoints

    def do_work(self) -> int:
        positions = self._node.positions
        log_min = positions.get(Position.LOG_MIN)
        if log_min != self._log_min:
            self._log_min = log_min
            self._log.release_below(log_min)
            self._log.refresh()
        self._release_files()
        self._topics.check(self._now())
        woken = self._held_pulls.woken(positions.get(Position.DISPATCHED))
        overdue = self._held_pulls.overdue(self._now()) if self._settled else self._settle()
        began_ns = time.monotonic_ns()
        for held in woken:
            if ARMED:
                reach("serve.woken")
            self._resume(held, over=False)
        for held in overdue:
            self._resume(held, over=True)
        done = len(woken) + len(overdue) + self._try_paused() + self._send_kept()
        if not self._poller.was_silent():
            done += self._take_requests()
        if done:
            self._times.add(time.monotonic_ns() - began_ns)
        if self._now() >= self._groups.due_ms:
            done += self._groups.cycle(self._now())
        done += self._answer_of_node() if len(self._of_node) else 0
        return done + self._log.release_idle(self._now())

    def _settle(self) -> list[HeldPull]:
        """Pulls that have timed out; all held pulls once queue ends are known to be ends."""
        self._settled = self._catch_up.settled()
        return self._held_pulls.take_all() if self._settled else self._held_pulls.overdue(self._now())

    def _release_files(self) -> None:
        """Closes deleted files so that their disk blocks are freed."""
        if self._now() - self._released_ms < RELEASE_EVERY_MS:
            return
        self._released_ms = self._now()
        self._log.queue.sweep()
        self._queues.close_removed()
        if self._index is not None:
            self._index.refresh()

    def sleep_ms(self) -> int:
        now = self._now()
        longest = PAUSE_MS if self._paused or len(self._backlog) or len(self._of_node) else REST_MAX_MS
        return min(longest, self._held_pulls.due_ms(now), max(0, self._groups.due_ms - now))

    def wait(self, timeout_ms: int, rest: IdleSleep | None) -> bool:
        """Sleeps; without held pulls reput's doorbell stays off, which would ring for every batch."""
        if not len(self._held_pulls):
            self._bell.disarm()
        return self._poller.poll(timeout_ms, rest) and self._poller.ready(self._bell.fileno())

    def drain(self) -> bool:
        """Answers every held pull, so that no client waits for a process that has ended."""
        for held in self._held_pulls.take_all():
            self._resume(held, over=True)
        self._groups.close()
        self._send_kept()
        return True

    def on_close(self) -> None:
        if hasattr(self, "_server"):
            self._server.close()
            close_context(self._context)

    def _now(self) -> int:
        return self._node.clock.monotonic_ms()

    # --- requests

    def _take_requests(self) -> int:
        done = 0
        before = self._line.counter(Counter.BYTES)
        while done < REQUESTS_PER_TURN and self._line.counter(Counter.BYTES) - before < BYTES_PER_TURN:
            request = self._server.receive()
            if request is None:
                break
            done += 1
            try:
                self._handle(request)
            except MalformedFrame as error:
                self._line.count(Counter.REFUSED)
                self._node.log.warning("a peer is dropped: %s", error)
                self._held_pulls.drop(request.peer)
                self._server.drop(request)
        return done

    def _handle(self, request: Request) -> None:
        kind = kind_of(request.parts[0])
        if kind == Kind.PULL:
            pull = decode_pull(request.parts)
            self._answer_or_hold(HeldPull(request.peer, pull, pull.offset, self._now() + self._suspend(pull)))
        elif kind == Kind.ASK and len(request.parts) == 2:
            _, request_id = expect(ASK, request.parts[0])
            self._handle_question(request, int(request_id), read_json(request.parts[1]))
        else:
            raise MalformedFrame(f"kind {kind} in {len(request.parts)} parts is no request to serve")

    def _suspend(self, pull: Pull) -> int:
        settings = self._node.settings
        longest = SUSPEND_MAX_MS if settings.long_polling_enable else settings.short_polling_time_mills
        return min(max(pull.suspend, 0), longest)

    # --- pulls

    def _answer_or_hold(self, held: HeldPull) -> None:
        if self._outbound.is_full(held.peer):
            self._pause(held.peer, held.pull)
            return
        result = self._pull(held.peer, held.pull)
        if result is None:
            return
        wait = held.pull.suspend > 0 and may_wait(result.status, held.pull.offset, result.next_offset)
        if not (wait and self._held_pulls.add(held)):
            self._answer(held.peer, held.pull, result)

    def _resume(self, held: HeldPull, *, over: bool) -> None:
        """Resumes a held pull that was woken or has timed out (`over`). Filtered records are not checked again."""
        if self._outbound.is_full(held.peer):
            self._pause(held.peer, held.pull)
            return
        result = self._pull(held.peer, replace(held.pull, offset=held.wanted))
        if result is None:
            return
        passed_over = result.status is GetStatus.NO_MATCHED_MESSAGE
        if not over and passed_over and result.next_offset == result.max_offset:
            held.wanted = result.next_offset
            if self._held_pulls.add(held):
                return
        if result.status is GetStatus.OFFSET_OVERFLOW_ONE and held.wanted != held.pull.offset:
            result = replace(result, status=GetStatus.NO_MATCHED_MESSAGE)
        self._answer(held.peer, held.pull, result)

    def _pull(self, peer: bytes, pull: Pull) -> PullResult | None:
        """The result of a pull; None when the queue is unreadable: then the peer got the reason, and its link ends."""
        try:
            record_filter = self._filters.get(pull) if pull.expression else None
        except TowlineError as error:
            self._line.count(Counter.REFUSED)
            return PullResult(GetStatus.REFUSED, pull.offset, 0, 0, why=(json_part(error_facts(error)),))
        try:
            return self._puller.run(pull, record_filter)
        except QueueDamaged as error:  # the rest of the queue, and the others of the peer, can be read
            if self._damaged_last != error.args:  # a reader asks again and again
                self._damaged_last = error.args
                self._node.log.error("%s", error)
            self._line.count(Counter.REFUSED)
            return PullResult(GetStatus.REFUSED, pull.offset, 0, 0, why=(json_part(error_facts(error)),))
        except TowlineError as error:
            self._node.log.error("a pull cannot be answered: %s", error)
            self._line.count(Counter.REFUSED)
            self._server.send(peer, encode_refusal(LinkRefused(DAMAGED, str(error))))
            self._drop_peer(peer)
            return None

    def _answer(self, peer: bytes, pull: Pull, result: PullResult, until_ms: int | None = None) -> Sent:
        """Sends an answer. One that the peer cannot take now is built again until `until_ms`, by default for
        PAUSED_MAX_MS."""
        head = PULL_ANSWER.pack(
            Kind.PULL_ANSWER,
            result.status,
            pull.queue_id,
            pull.request_id,
            result.count,
            result.next_offset,
            result.min_offset,
            result.max_offset,
            (READ_FROM_SLAVE if result.behind and self._slave_read else 0) | (RECORDS_IN_FILE if result.stretch else 0),
        )
        records = result.stretch or result.records
        if result.copied:
            records = self._outbound.hold(peer, records)
        parts = [head, result.sizes, records] if result.count else [head, *result.why]
        sent = self._server.send(peer, parts, copy=False)
        if sent is Sent.SENT:
            self._count(pull, result)
            if ARMED:
                reach("serve.answered")
            self._line.count(Counter.BATCHES)
            self._line.count(Counter.MESSAGES, result.count)
            self._line.count(Counter.BYTES, len(result.records))
        elif sent is Sent.GONE:
            self._drop_peer(peer)
            self._groups.gone(peer)
        else:
            self._pause(peer, pull, until_ms)
        return sent

    def _pause(self, peer: bytes, pull: Pull, until_ms: int | None = None) -> None:
        if len(self._paused) < PAUSED_MAX:
            self._paused.append(PausedPull(peer, pull, until_ms or self._now() + PAUSED_MAX_MS))
        else:
            self._disconnect(peer)

    def _count(self, pull: Pull, result: PullResult) -> None:
        if result.count:
            self._stats.add(pull.topic, pull.queue_id, result.count, len(result.records))
        else:
            self._stats.count(Total.EMPTY)

    def _count_followed(self, topic: str, read: object, queues: list[dict[str, int]]) -> None:
        """Counts what a reader says that it has read of these queues by itself since it asked last."""
        known = {row["queue"] for row in queues}
        for row in read if isinstance(read, list) else ():
            match row:
                case [int(queue), int(messages), int(size)] if 0 <= messages <= size <= FOLLOWED_MAX:
                    if queue in known:
                        self._stats.add(topic.encode(), queue, messages, size)
                case _:
                    raise MalformedFrame(f"a reader says to have read {row!r}")

    def _try_paused(self) -> int:
        """Tries peers whose queue was full. One that is still full delays its other pulls; one that stays so is cut
        off."""
        now = self._now()
        if not self._paused or now < self._paused_until:
            return 0
        self._paused_until = now + PAUSE_MS
        slowest_full = self._outbound.slowest_full()
        if slowest_full is not None:
            held = self._outbound.of(slowest_full)
            self._node.log.warning("a peer that reads nothing is cut off: %d bytes are kept for it", held)
            self._disconnect(slowest_full)
        full: set[bytes] = set()
        done = 0
        paused, self._paused = self._paused, deque()
        for entry in paused:
            if entry.peer in full and now < entry.until_ms:
                self._paused.append(entry)
            elif entry.peer in self._server.sessions:
                done += self._try_again(entry, now, full)
        return done

    def _try_again(self, entry: PausedPull, now: int, full: set[bytes]) -> int:
        if now >= entry.until_ms:
            self._node.log.warning("a peer that takes no answers is cut off")
            self._disconnect(entry.peer)
            return 1
        if self._outbound.is_full(entry.peer):
            self._paused.append(entry)
            full.add(entry.peer)
            return 0
        result = self._pull(entry.peer, entry.pull)
        if result is not None and self._answer(entry.peer, entry.pull, result, entry.until_ms) is Sent.PAUSED:
            full.add(entry.peer)
            return 0
        return 1

    def _drop_peer(self, peer: bytes) -> None:
        """Drops a peer, which has to greet again."""
        self._held_pulls.drop(peer)
        self._backlog.drop(peer)
        self._server.evict(peer)

    def _disconnect(self, peer: bytes) -> None:
        """Drops a peer with its connection, and with that the answers that it has not read."""
        self._held_pulls.drop(peer)
        self._server.cut_unread(peer)
        self._outbound.drop(peer)
        self._backlog.drop(peer)

    # --- questions

    def _handle_question(self, request: Request, request_id: int, question: dict[str, Any]) -> None:
        peer, of_group, of_node = request.peer, is_group_question(question), is_node_question(question)
        try:
            if of_node:
                self._of_node.ask(peer, request_id, question)
            elif of_group:
                check_asker(question, request.session.facts.get("role"))
            else:
                found = self._lookup.answer(question)
        except TowlineError as error:
            self._refuse_question(peer, request_id, error)
            return
        if of_node:
            return
        if of_group:
            self._groups.ask(peer, request_id, question)
            return
        if question["op"] == "follow":
            self._count_followed(question["topic"], question.get("read"), found.facts["queues"])
        count = len(found.records)
        parts: list[Any] = [ANSWER.pack(Kind.ANSWER, 0, request_id, count), json_part(found.facts)]
        if count:
            sizes = np.fromiter(map(len, found.records), dtype=">u4", count=count)
            parts += [sizes.tobytes(), self._outbound.hold(peer, b"".join(found.records))]
        self._send(peer, parts)

    def _refuse_question(self, peer: bytes, request_id: int, error: TowlineError) -> None:
        self._line.count(Counter.REFUSED)
        self._send(peer, [ANSWER.pack(Kind.ANSWER, 1, request_id, 0), json_part(refusal_facts(error))])

    def _answer_of_node(self) -> int:
        answers = self._of_node.cycle()
        for each in answers:
            if isinstance(each.outcome, TowlineError):
                self._refuse_question(each.peer, each.request_id, each.outcome)
            else:
                self._send(each.peer, [ANSWER.pack(Kind.ANSWER, 0, each.request_id, 0), json_part(each.outcome)])
        return len(answers)

    def _send(self, peer: bytes, parts: list[Any]) -> Sent:
        """Sends an answer now or soon, or ends the link: the peer asks again on a new one."""
        sent = Sent.PAUSED if self._outbound.of(peer) > PEER_MAX else self._backlog.send(peer, parts)
        if sent is not Sent.SENT:
            self._disconnect(peer)
        return sent

    def _send_kept(self) -> int:
        if not len(self._backlog):
            return 0
        done, lost = self._backlog.cycle()
        for peer in lost:
            self._disconnect(peer)
            self._groups.gone(peer)
        return done


def _extension(node: Node) -> ExtensionUnits | None:
    """The reader of extension units; None where no queue ever had any."""
    settings, root = node.settings, node.store.consumequeue_ext
    if not settings.enable_consume_queue_ext and not root.is_dir():
        return None
    return ExtensionUnits(ConsumeQueueExtFiles(root, settings.mapped_file_size_consume_queue_ext, QUEUE_FILES_OPEN_MAX))


def lookup_rules(settings: Settings) -> LookupRules:
    return LookupRules(
        settings.max_msgs_num_batch,
        settings.default_query_max_num,
        pull_size_max(settings),
        settings.force_verify_prop_crc,
    )


def build(node: Node) -> ServeAgent:
    return ServeAgent(node)
