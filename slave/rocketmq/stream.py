"""The link of receive to a RocketMQ master: HAService's frames in, slices as a Towline master sends them out.

What stands behind it stays one path: the receiver appends a slice at its own end, publishes it, and acknowledges. The
epoch of such a master is 0, that of a log of which nobody knows its masters (decision 0024): the protocol names none.
Confirmed is what the master has, as on a slave of RocketMQ: readers see what of it has come.
"""

import os
import secrets
import socket
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from towline.client.rocketmq.talk import Request
from towline.errors import LinkRefused, MalformedFrame, NotInLog
from towline.format.files.epochs import IMPLIED, cut, node_of
from towline.format.record import blank
from towline.format.remoting.codes import RequestCode
from towline.format.wire.frames import HA_ACK, HA_DATA, Buffer, Kind, expect, kind_of
from towline.link.endpoints import parse
from towline.log.commitlog.commit_log import CommitLogReader
from towline.log.state.epoch_file import EpochFile
from towline.log.state.identity import STORE_ID_BYTES, IdentityFile
from towline.node.process.context import Node
from towline.runtime.doorbell import Doorbell
from towline.runtime.positions import Position
from towline.runtime.settings_model import FlushDiskType

from .broker import LogEnds, MasterBroker, check_master, ends_of, find_ends, message_at
from .frames import HEAD, READ_MAX, Frames, last_message
from .link import RetriedLink
from .rules import Rule, refused

CONNECT_S: Final = 0.5
EPOCH: Final = IMPLIED[0].number
FLUSH_MS: Final = 20
ASK_EVERY_MS: Final = 2_000
_WORD: Final = 8  # bytes of a report
FROM_LAST: Final = "last"


class RocketmqStream(RetriedLink):
    """`connect` when `due`; then `send` and `receive` until `disconnect`."""

    def __init__(self, node: Node, bell: Doorbell, log: CommitLogReader) -> None:
        assert node.settings.rocketmq_master_address is not None
        super().__init__(node, bell, node.settings.rocketmq_master_address)
        self._log = log
        self._on_disk = node.settings.flush_disk_type is FlushDiskType.SYNC_FLUSH
        self._sock: socket.socket | None = None
        self._frames: Frames | None = None
        self._came = memoryview(bytearray(READ_MAX))
        self._broker: MasterBroker | None = None
        self._asks, self._ask_at = False, 0
        self.masters_end, self._masters_port = 0, ""  # the first: of its log, as its broker said last
        self._broken: LinkRefused | None = None  # why the link is of no use any more
        self._reported = 0
        self._nothing_to = -1  # an empty log that begins there reports 0, as one of RocketMQ does: it holds nothing
        self._unsent = b""  # the rest of a report
        self._heard_ms = self._grew_ms = 0
        self._grew_to = 0
        self._last: tuple[int, int, bytes] | None = None  # end of the log -> its last message, as it was read here

    def connect(self, facts: Mapping[str, Any], agree: Callable[[dict[str, Any]], None]) -> bool:
        """Compares what can be compared, and reports where the log ends; a failure is logged.

        `facts` are those of a greeting: `end` of the log, and whether it is `empty`.
        """
        end, is_empty = int(facts["end"]), bool(facts["empty"])
        flushed = self._node.positions.get(Position.FLUSHED)
        if self._on_disk and not is_empty and flushed < end:
            self._retry_at = self._node.clock.monotonic_ms() + FLUSH_MS  # the first report is of what is on disk, too
            self.trouble = (
                f"{self.address} is not followed before the log, which ends at {end}, is synced: {flushed} is"
            )
            return False
        assert self._node.settings.rocketmq_master_broker is not None
        broker, sock = MasterBroker(self._node.settings.rocketmq_master_broker), None
        try:
            start, first = self._compare(broker, end, is_empty)
            frames = self._frames_from(start, first)
            self._nothing_to = start if is_empty and start and self._from_last else -1
            sock = self._open()
            agree(self._welcome(start, end))
        except (LinkRefused, MalformedFrame) as error:
            broker.close()
            if sock is not None:
                sock.close()
            self._not_made(error if isinstance(error, LinkRefused) else refused(Rule.OFFSET, error.describe()))
            return False
        self._broker = broker
        self._begin(sock, frames)
        self._made()
        return True

    def disconnect(self, why: str) -> None:
        """Closes the link; it is made again a little later."""
        if self._sock is None:
            return
        self._poller.remove(self._sock.fileno())
        self.close()
        self._frames, broken, self._broken = None, self._broken, None
        if broken is None:
            self._ended(why)
        else:
            self._not_made(broken)

    def close(self) -> None:
        if self._sock is not None:
            self._sock.close()
            self._sock = None
        self._forget_broker()

    def send(self, parts: list[bytes]) -> bool:
        """Reports what an acknowledgement says: the end on disk under SYNC_FLUSH, else in memory. Never less than it
        did before."""
        if self._sock is None or kind_of(parts[0]) != Kind.HA_ACK:
            return False
        _, _, appended, flushed, _ = expect(HA_ACK, parts[0])
        held = flushed if self._on_disk else appended
        return self._report(max(self._reported, held if held > self._nothing_to else 0))

    def receive(self) -> list[Buffer] | None:
        """The next slice; without bytes where only a heartbeat, or a part of a message, has come. Raises LinkRefused,
        and `disconnect` comes next."""
        if self._frames is None:
            return None
        try:
            return self._next_slice(self._frames)
        except LinkRefused as error:
            self._broken = error
            raise

    def _next_slice(self, frames: Frames) -> list[Buffer] | None:
        came = 0 if self._poller.was_silent() else self._read(frames)
        offset, found = frames.whole()
        now = self._node.clock.monotonic_ms()
        if came or found:
            self._heard_ms = now
        if frames.end > self._grew_to:
            self._grew_to, self._grew_ms = frames.end, now
        if self._learn_end(frames, now) or came or found:
            head = HA_DATA.pack(Kind.HA_DATA, len(found), EPOCH, offset, max(self.masters_end, offset + len(found)))
            return [head, found] if found else [head]
        quiet = now - self._heard_ms
        if quiet > self._node.settings.ha_housekeeping_interval:
            raise refused(Rule.SILENT, f"nothing has come for {quiet} ms")
        return None

    def _learn_end(self, frames: Frames, now: int) -> bool:
        """Whether the master's log is known to go further than before. A broker that does not answer is asked no more
        on this connection. Raises LinkRefused where the master has cleaned what comes next: it sends heartbeats, and
        nothing else any more."""
        if self._broker is None or (not self._asks and now < self._ask_at):
            return False
        try:
            if not self._asks:
                self._broker.ask([Request(RequestCode.GET_BROKER_RUNTIME_INFO)])
                self._asks, self._ask_at = True, now + ASK_EVERY_MS
            answers = self._broker.answers()
            if answers is None:
                return False
            ends = ends_of(answers[0])
        except LinkRefused:
            self._forget_broker()
            return False
        self._asks, before = False, self.masters_end
        self.masters_end = max(before, ends.end)
        if frames.end < ends.first and now - self._grew_ms > self._node.settings.ha_housekeeping_interval:
            raise refused(Rule.BEFORE, _lies_before(frames.end, ends))
        return self.masters_end > before

    def _forget_broker(self) -> None:
        if self._broker is not None:
            self._broker.close()
            self._broker = None

    # --- who is followed, and from where

    def _compare(self, broker: MasterBroker, end: int, is_empty: bool) -> tuple[int, bytes]:
        """Where the log begins or goes on, and what of it does not come by frames. Raises LinkRefused where it cannot
        go on in the master's."""
        self._check_origin(end)
        self._masters_port = check_master(broker, self._node.settings)
        ends = find_ends(broker)
        self.masters_end = ends.end
        if is_empty:
            return self._begin_at(broker, ends)
        self._check_end(broker, ends, end)
        return end, b""

    def _check_origin(self, end: int) -> None:
        epochs = [epoch.number for epoch in cut(EpochFile(self._node.store).load(), end)]
        foreign = [number for number in epochs if number != EPOCH]
        if foreign:
            raise refused(Rule.ORIGIN, f"it has epochs {', '.join(map(str, foreign))}")
        promised = self._node.positions.get(Position.PROMISED)
        if promised != EPOCH:
            as_then = f"start it with --set broker_id={node_of(promised)}, as it was then"
            raise refused(Rule.ORIGIN, f"nothing is written in epoch {promised} yet, so {as_then}")

    @property
    def _from_last(self) -> bool:
        settings = self._node.settings
        return settings.sync_from_last_file or settings.seed == FROM_LAST

    def _begin_at(self, broker: MasterBroker, ends: LogEnds) -> tuple[int, bytes]:
        """Of an empty log. A report of 0 means the last segment, so the first message of a log that begins at 0 is
        asked for by its place."""
        size = self._node.settings.mapped_file_size_commit_log
        start = max(ends.first, ends.end - ends.end % size) if self._from_last else ends.first
        start -= start % size
        if start or not ends.end:
            return start, b""
        found = message_at(broker, 0)
        if not found:
            raise refused(Rule.REFUSED, "it does not hand over the message at 0, where its log begins")
        return start, found

    def _check_end(self, broker: MasterBroker, ends: LogEnds, end: int) -> None:
        """The master's log holds ours, as far as can be asked: to its end, and the last message byte for byte."""
        if end < ends.first:
            raise refused(Rule.BEFORE, _lies_before(end, ends))
        if end > ends.end:
            raise refused(Rule.AHEAD, f"this log ends at {end}, the master's at {ends.end}")
        last = self._last_message(end)
        if last is None or last[0] < ends.first:
            self._node.log.warning("nothing before %d can be compared with the master's log", end)
            return
        if message_at(broker, last[0]) != last[1]:
            raise refused(Rule.TAIL, f"the {len(last[1])} bytes at {last[0]} differ")
        behind = last[0] + len(last[1])
        found = message_at(broker, behind) if end - behind >= blank.SIZE else None
        if found and found[: blank.SIZE] != blank.encode(end - behind):
            raise refused(Rule.TAIL, f"at {behind} the master has a message, and this log its segment's blank")

    def _last_message(self, end: int) -> tuple[int, bytes] | None:
        if self._last is None or self._last[0] != end:
            try:
                self._log.refresh()
                found = last_message(self._log, self._node.positions.get(Position.LOG_MIN), end)
                self._log.close()
            except NotInLog as error:
                raise refused(Rule.TAIL, f"it cannot be read here: {error}") from None
            if found is None:
                return None
            self._last = end, *found
        return self._last[1:]

    def _welcome(self, start: int, end: int) -> dict[str, Any]:
        """What a Towline master that has no other epoch would answer. The store keeps the id that it has, or gets one:
        RocketMQ's have none."""
        known = IdentityFile(self._node.store.root).load()
        store = secrets.token_hex(STORE_ID_BYTES) if known is None else known.store_id
        compared = {"common": EPOCH, "tail_size": 0, "tail_crc": 0, "epochs": [list(epoch) for epoch in IMPLIED]}
        named = {"cluster": self._node.settings.broker_cluster_name, "store": store}
        return {"epoch": EPOCH, "start": start, "end": max(self.masters_end, start, end), **named, **compared}

    # --- the connection

    def _open(self) -> socket.socket:
        found = parse(f"tcp://{self.address}")
        try:
            sock = socket.create_connection((found.host, found.port), CONNECT_S)
        except OSError as error:
            why = os.strerror(error.errno) if error.errno else str(error)
            facts = f"{self.address}: {why}; the broker says that its haListenPort is {self._masters_port}"
            raise refused(Rule.PORT, facts) from None
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return sock

    def _frames_from(self, start: int, first: bytes) -> Frames:
        """`first` is taken as if it had come in a frame. Raises LinkRefused."""
        frames = Frames(start, self._node.settings.mapped_file_size_commit_log)
        for part in _pieces(HEAD.pack(start, len(first)) + first):
            frames.take(part)
        return frames

    def _begin(self, sock: socket.socket, frames: Frames) -> None:
        self._frames, self._sock, self._unsent, self._broken = frames, sock, b"", None
        self._asks, self._ask_at, self._reported = False, 0, 0
        self._poller.add(sock.fileno())
        self._heard_ms = self._grew_ms = self._node.clock.monotonic_ms()
        self._grew_to = frames.end
        self._report(frames.end if frames.end > self._nothing_to else 0)

    def _report(self, end: int) -> bool:
        """Where the log ends: at first the place from which on the master sends, where 0 is its last segment."""
        assert self._sock is not None
        try:
            if self._unsent:
                self._unsent = self._unsent[self._sock.send(self._unsent) :]
            if not self._unsent:
                report = end.to_bytes(_WORD, "big")
                self._unsent = report[self._sock.send(report) :]
                self._reported = end
        except BlockingIOError:
            return False
        except OSError:  # the next read says more
            return False
        return True

    def _read(self, frames: Frames) -> int:
        """Bytes that have come. Raises LinkRefused where they are no frames, or the master has closed."""
        assert self._sock is not None
        try:
            count = self._sock.recv_into(self._came, frames.room)
        except BlockingIOError:
            return 0
        except OSError as error:
            raise refused(Rule.CLOSED, self._broke_off(frames, os.strerror(error.errno or 0))) from None
        if not count:
            raise refused(Rule.CLOSED, self._broke_off(frames, "the master closed it"))
        frames.take(self._came[:count])
        return count

    def _broke_off(self, frames: Frames, why: str) -> str:
        where = "in the middle of a frame, " if frames.is_inside else ""
        return f"it ended {where}at {frames.end}: {why}"


def _lies_before(end: int, ends: LogEnds) -> str:
    return f"this log ends at {end}, the master's begins at {ends.first}"


def _pieces(data: bytes) -> Iterator[memoryview]:
    view = memoryview(data)
    for at in range(0, len(view), READ_MAX):
        yield view[at : at + READ_MAX]
