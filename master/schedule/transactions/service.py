"""Transactions of a master within the schedule process, which calls `cycle` and sleeps no longer than `due_ms`.

Its own socket serves producers: they end their transactions there, and wait there for checks of open ones.

    transaction_end    {first, group, key, outcome: commit | rollback} -> {outcome, status of the put}
    transaction_watch  {group, wait_ms} -> {checks: [{first, checks}]} and the halves; held while there are none
    transaction_list   {group, empty for all} -> {transactions: the oldest LISTED_MAX that are open}
    transaction_status {} -> {open, ...}, see `_status`

Of the first three, remoting says in `holder` what a client may do whose key is limited to topics: it ends, is asked
about and sees the transactions of these alone.

Where more wait than there is room for, a watch is refused (TOO_MANY); its producer asks again a little later.

After a start no transaction ends before the log of that moment was dispatched and read: only then everything that the
previous process had stored is known.
"""

import socket
from collections.abc import Mapping
from typing import Any, Final

from towline.errors import MalformedFrame
from towline.format.record.forms import HALF_TOPIC, OP_TOPIC
from towline.format.record.record import Host
from towline.format.record.transactions import HALF, OP, TRANSACTION_GROUP, Half, read_half, read_op
from towline.format.wire.frames import ANSWER, ASK, Kind, expect, json_part, kind_of, read_json
from towline.limits import KIB
from towline.link.context import Context
from towline.link.endpoints import ipc_endpoint
from towline.link.permissions import HOLDER_MAX, Act
from towline.link.poller import Poller
from towline.link.server import Request, Sent, Server
from towline.node.peers.handshake import own_facts, welcome
from towline.node.peers.local_links import DEADLINE_MS, RETRY_MS, GroupOffsetsReporter, LocalLink, Outbox
from towline.node.process.context import Node
from towline.node.process.endpoints import local_endpoint
from towline.node.process.secret import SCHEDULE_ROLE, SECRET_FACT, read_secret
from towline.runtime.positions import Counter, Duty, Position

from .checks import HOLD_MAX_MS, PEER_WATCHES_MAX, WATCHES_MAX, Checks, ProducerWatch, ProducerWatches, sizes_of
from .endings import HELD_MS, WAITING_MAX, Ending, Endings, LostPuts, RecordOptions, permit_in, read_ending
from .ledger import CheckRules, EndRefusal, Ledger
from .offsets_file import TransactionOffsets, TransactionOffsetsFile
from .topic_reader import TopicReader

RECORDS_PER_TURN: Final = 512
REQUESTS_PER_TURN: Final = 256
OPS_READ_AGAIN: Final = 1_000  # so that after a start, too, it is known how the newest transactions ended
SOON_MS: Final = 2  # while somebody waits for what reput has not dispatched
WAITING_POLL_MS: Final = 20  # while an answer is due, which wakes the process by itself
POLL_MS: Final = 1_000
ANSWER_MS: Final = 1_000  # put answers so much later than it promises at most
SERVICE: Final = "schedule"
LISTED_MAX: Final = 256
QUESTION_MAX: Final = KIB + HOLDER_MAX  # remoting keeps what clients say below KIB


class TransactionService:
    """Transactions within the schedule process. `poller`: what the process sleeps on; sockets are added and removed."""

    def __init__(self, node: Node, context: Context, poller: Poller) -> None:
        settings = node.settings
        self._node, self._poller = node, poller
        self._get = node.positions.get
        self._reader = TopicReader(node)
        own = own_facts(node, SCHEDULE_ROLE)
        secret = node.runtime.secret

        def shown() -> Mapping[str, Any]:
            return {**own, SECRET_FACT: read_secret(secret)}

        root = node.runtime.root
        self._put = LocalLink(context, ipc_endpoint(root, "put"), shown, poller, node.log)
        self._serve = LocalLink(context, ipc_endpoint(root, "serve"), shown, poller, node.log, urgent=False)
        answer_ms = max(settings.sync_flush_timeout, settings.slave_timeout) + ANSWER_MS
        self._outbox = Outbox(self._put, node.clock.now_ms, answer_ms)
        pause_ms = settings.flush_consumer_offset_interval
        self._offsets = GroupOffsetsReporter(self._serve, TRANSACTION_GROUP, (HALF_TOPIC, OP_TOPIC), pause_ms, node.log)
        self._file = TransactionOffsetsFile(node, node.ringer(Duty.SCHEDULE).ring)
        self._server = Server(
            context,
            [local_endpoint(node.runtime, SERVICE)],
            own=own,
            greet=welcome(node),
            counted=lambda: node.line.count(Counter.REFUSED),
        )
        poller.add(self._server)
        self._topics_created = self._topics_asked = False
        self._topics_at = 0
        self._draining = False
        self._read_to = 0
        self._halves_to = 0  # the newest half that was read stands there in the log
        self._lost = 0
        self._offsets_checked = False
        self._start_end = self._get(Position.APPENDED)
        self._quiet_until = self._now() + DEADLINE_MS
        self._before_start: list[Ending] = []
        found = self._file.load(self._start_end)
        self._covered_end = 0 if found is None else found.end
        self._ledger = self._begin(*((0, 0) if found is None else found.offsets))

    def cycle(self) -> int:
        """Does what there is to do and returns how much; 0 means nothing before `due_ms`."""
        now = self._now()
        self._rescue_from_cleaning(now)
        self._reader.cycle(now)
        done = self._outbox.cycle(now)
        done += self._file.cycle(now, self._floors, at_once=self._draining)
        if self._topics_created and self._file.written is not None:
            self._offsets.cycle(now, self._file.written.offsets)
        done += self._read() + self._receive_requests(now)
        self._lost_puts.cycle(now)
        if not self._offsets_checked and self._read_to >= self._start_end:
            self._check_offsets()
        if self._is_ready(now) and not self._draining:
            for ending in self._before_start:
                self._endings.add(ending)
            self._before_start = []
            done += self._endings.cycle(now) + self._checks.cycle(now)
        return done + self._refuse_expired(now) + self._watches.cycle(now)

    def due_ms(self) -> int:
        if self._file.awaits_flush:
            return SOON_MS
        if self._before_start or self._draining:
            return WAITING_POLL_MS
        now = self._now()
        due = max(0, min(self._checks.due_ms(now), self._watches.due_ms(now, POLL_MS), POLL_MS))
        if len(self._endings):
            return min(due, SOON_MS)
        return min(due, WAITING_POLL_MS) if len(self._outbox) else due

    def drain(self) -> bool:
        """Ends no more transactions; True when every put was answered and the offsets are written.

        Producers that still wait ask again.
        """
        if not self._draining:
            self._watches.release_all()
        self._draining = True
        if len(self._outbox) or not self._file.is_written(self._floors()):
            return False
        if self._topics_created and self._file.written is not None:
            self._offsets.save(self._now(), self._file.written.offsets)
        return True

    def close(self) -> None:
        for link in (self._put, self._serve):
            link.close()
        self._poller.remove(self._server)
        self._server.close()
        self._reader.close()
        self._file.close()

    # --- the queues

    def _begin(self, half_floor: int, op_floor: int) -> Ledger:
        settings, node = self._node.settings, self._node
        rules = CheckRules(settings.transaction_time_out, settings.transaction_check_max)
        ledger = Ledger(rules, half_floor, max(0, op_floor - OPS_READ_AGAIN))
        family = socket.AF_INET6 if ":" in settings.broker_ip1 else socket.AF_INET
        host = Host(socket.inet_pton(family, settings.broker_ip1), settings.store_port)
        record_options = RecordOptions(host, node.clock.now_ms, settings.enabled_append_prop_crc)

        def read_to() -> int:
            return self._read_to

        self._lost_puts = LostPuts(ledger, lambda: self._get(Position.APPENDED), read_to)
        self._endings = Endings(
            ledger, self._reader, self._outbox, self._lost_puts, record_options, read_to, self._answer, self._refuse
        )
        self._watches = ProducerWatches(ledger, self._reader, self._answer_watch)
        self._checks = Checks(
            ledger,
            self._reader,
            self._outbox,
            self._lost_puts,
            record_options,
            self._watches,
            settings.transaction_check_interval,
            self._now(),
            node.log,
        )
        return ledger

    def _floors(self) -> TransactionOffsets:
        return TransactionOffsets(*self._ledger.floors, self._covered_end)

    def _rescue_from_cleaning(self, now_ms: int) -> None:
        """Rescues halves that are being cleaned away, before the reader closes their segments."""
        log_min = self._get(Position.LOG_MIN)
        if not self._is_ready(now_ms) or self._draining:
            return
        if self._ledger.before(log_min):
            self._checks.rescue(log_min, now_ms)
        lost = self._checks.lost + self._endings.lost
        self._node.line.lose(lost - self._lost)
        self._lost = lost

    def _check_offsets(self) -> None:
        """Checks the stored offsets once the log of the start is dispatched; offsets that do not fit it are dropped
        (H15)."""
        self._offsets_checked = True
        known = self._file.written
        for topic, offset in zip((HALF, OP), (0, 0) if known is None else known.offsets, strict=True):
            low, end = self._reader.bounds(topic)
            if offset > end:
                message = "%s: %d counted as through that the log does not hold; it is read from the beginning"
                self._node.log.warning(message, topic.decode(), offset - end)
                self._node.line.count(Counter.FALLBACKS, offset - end)
                self._ledger.restart()
                self._read_to = 0
            elif topic == HALF and offset < low:
                message = "%d half messages have left the log: those of them that were open are lost"
                self._node.log.warning(message, low - offset)

    def _refuse_expired(self, now_ms: int) -> int:
        """Refuses requests that have waited too long for the start, or are too many; returns how many."""
        waiting, self._before_start = self._before_start, []
        done = 0
        for ending in waiting:
            if ending.until_ms > now_ms and len(self._before_start) < WAITING_MAX:
                self._before_start.append(ending)
            else:
                self._refuse(ending, EndRefusal.NOT_READABLE_YET.name, EndRefusal.NOT_READABLE_YET.value)
                done += 1
        return done

    def _is_ready(self, now_ms: int) -> bool:
        return self._read_to >= self._start_end and now_ms >= self._quiet_until

    def _read(self) -> int:
        """Reads what was dispatched, in the order of the log; of halves, only open ones are kept in memory."""
        ledger = self._ledger
        dispatched = self._get(Position.DISPATCHED)
        op_end = self._reader.bounds(OP)[1]
        half_end = self._reader.bounds(HALF)[1]
        if half_end and not self._topics_created:
            self._create_topics()
        done = 0
        if ledger.half_next < half_end and not self._must_read_ops_first(op_end):
            done += self._read_halves()
        if ledger.op_next < op_end:
            done += self._read_ops(op_end, all_halves=ledger.half_next >= half_end)
        if ledger.half_next >= half_end and ledger.op_next >= op_end:
            self._read_to = dispatched
        return done

    def _must_read_ops_first(self, op_end: int) -> bool:
        """Whether unread op records stand before halves that were read."""
        next_op = self._reader.record(OP, self._ledger.op_next) if self._ledger.op_next < op_end else None
        return next_op is not None and next_op.physical_offset < self._halves_to

    def _read_halves(self) -> int:
        run = self._reader.records(HALF, self._ledger.half_next, RECORDS_PER_TURN)
        for record in run.records:
            self._ledger.add_half(self._verified_copy(read_half(record)))
            self._halves_to = record.physical_offset
        self._covered_end = max(self._covered_end, run.end)
        self._ledger.half_next = max(self._ledger.half_next, run.following)
        return max(1, len(run.records))

    def _read_ops(self, op_end: int, *, all_halves: bool) -> int:
        """Reads op records whose halves were read."""
        ledger = self._ledger
        run = self._reader.records(OP, ledger.op_next, min(RECORDS_PER_TURN, op_end - ledger.op_next))
        known = [record for record in run.records if all_halves or record.physical_offset < self._halves_to]
        for record in known:
            ledger.add_op(record.queue_offset, read_op(record))
        if len(known) == len(run.records):
            ledger.op_next = max(ledger.op_next, run.following)
        self._covered_end = max(self._covered_end, run.end)
        return len(known) or int(not run.records)

    def _create_topics(self) -> None:
        """Has put create the topics: serve keeps no offsets of a topic that is not in topics.json."""
        if not self._topics_asked and self._now() >= self._topics_at:
            self._topics_at = self._now() + RETRY_MS
            self._topics_asked = self._outbox.ask("transaction_topics", self._on_topics_created)

    def _on_topics_created(self, done: bool) -> None:
        self._topics_created, self._topics_asked = done, False

    def _verified_copy(self, half: Half) -> Half:
        """The half, on its own if it claims to be a copy of a half that, as far as it still exists, is another's."""
        if half.first == half.offset:
            return half
        record = self._reader.record(HALF, half.first) if half.first < half.offset else None
        known = None if record is None else read_half(record)
        if known is None and half.first < self._reader.bounds(HALF)[0]:
            return half
        if known is not None and (known.first, known.group, known.unique_key) == (
            half.first,
            half.group,
            half.unique_key,
        ):
            return half
        return half.on_its_own()

    # --- questions

    def _receive_requests(self, now_ms: int) -> int:
        done = 0
        while done < REQUESTS_PER_TURN:
            request = self._server.receive()
            if request is None:
                break
            done += 1
            try:
                self._take(request, now_ms)
            except MalformedFrame as error:
                self._node.line.count(Counter.REFUSED)
                self._node.log.warning("a request was not understood, its connection is cut: %s", error)
                self._server.drop(request)
        return done

    def _take(self, request: Request, now_ms: int) -> None:
        if kind_of(request.parts[0]) != Kind.ASK or len(request.parts) != 2 or len(request.parts[1]) > QUESTION_MAX:
            raise MalformedFrame("the schedule process answers short questions only")
        _, request_id = expect(ASK, request.parts[0])
        question = read_json(request.parts[1])
        match question:
            case {"op": "transaction_end"}:
                until, end = now_ms + HELD_MS, self._get(Position.APPENDED)
                self._before_start.append(read_ending(request.peer, request_id, question, until, end))
            case {"op": "transaction_watch", "group": str(group), "wait_ms": int(wait_ms)}:
                until = now_ms + max(0, min(wait_ms, HOLD_MAX_MS))
                self._watch(group, ProducerWatch(request.peer, request_id, until, permit_in(question)))
            case {"op": "transaction_status"}:
                self._send(request.peer, request_id, self._status())
            case {"op": "transaction_list", "group": str(group)}:
                permit, found = permit_in(question), self._ledger.open_of(group, LISTED_MAX)
                shown = [half for half in found if permit is None or permit.may(Act.PRODUCE, half.topic)]
                self._send(request.peer, request_id, {"transactions": [_facts_of(half) for half in shown]})
            case _:
                raise MalformedFrame(f"the schedule process does not answer {question.get('op')!r}")

    def _watch(self, group: str, watch: ProducerWatch) -> None:
        if self._draining:
            return  # an answer now would only make it ask again
        if self._watches.has_room(watch.peer):
            self._watches.add(group, watch)
            return
        self._node.line.count(Counter.REFUSED)
        message = f"{PEER_WATCHES_MAX} of one producer, or {WATCHES_MAX} of all, wait for checks already"
        self._send(watch.peer, watch.request_id, {"error": "TOO_MANY", "sentence": message}, status=1)

    def _status(self) -> dict[str, int]:
        """Counters for `transaction_status`; `checked`, `put_aside` and `lost` since the process started."""
        half_floor, op_floor = self._ledger.floors
        return {
            "open": len(self._ledger),
            "checked": self._checks.checked,
            "put_aside": self._checks.put_aside,
            "lost": self._lost,
            "watching": len(self._watches),
            "half_next": self._ledger.half_next,
            "op_next": self._ledger.op_next,
            "half_floor": half_floor,
            "op_floor": op_floor,
        }

    # --- answers

    def _answer(self, ending: Ending, facts: dict[str, Any]) -> None:
        self._send(ending.peer, ending.request_id, facts)

    def _refuse(self, ending: Ending, error: str, sentence: str) -> None:
        self._node.line.count(Counter.REFUSED)
        self._send(ending.peer, ending.request_id, {"error": error, "sentence": sentence}, status=1)

    def _answer_watch(self, watch: ProducerWatch, facts: dict[str, Any], records: list[bytes]) -> bool:
        return self._send(watch.peer, watch.request_id, facts, records=records)

    def _send(
        self,
        peer: bytes,
        request_id: int,
        facts: dict[str, Any],
        *,
        status: int = 0,
        records: list[bytes] | None = None,
    ) -> bool:
        """Sends an answer; a peer that does not read its answers is cut off (H20)."""
        records = records or []
        parts = [ANSWER.pack(Kind.ANSWER, status, request_id, len(records)), json_part(facts)]
        if records:
            parts += [sizes_of(records), b"".join(records)]
        sent = self._server.send(peer, parts)
        if sent is Sent.PAUSED:
            self._server.cut_unread(peer)
        return sent is Sent.SENT

    def _now(self) -> int:
        return self._node.clock.monotonic_ms()


def _facts_of(half: Half) -> dict[str, Any]:
    return {
        "first": half.first,
        "key": half.unique_key,
        "group": half.group,
        "topic": half.topic,
        "queue": half.queue_id,
        "checks": half.checks,
        "stored_ms": half.stored_ms,
    }
