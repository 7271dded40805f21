"""The duty cycle of rocketmq_ha: brokers of RocketMQ connect as slaves, report, and are sent what is confirmed.

The protocol names no epoch, and such a slave cannot cut what a failover or a power cut has cut (spec 9.3). So it is
sent what is confirmed, on this node's disk and held by its in-sync set, and nothing else (H15).
"""

import gc
import os
import select
import socket
from typing import ClassVar, Final

from towline.errors import CannotListen
from towline.limits import LOOK_MS, ROCKETMQ_SLAVES_MAX
from towline.link.endpoints import tcp_endpoint
from towline.link.memory_limit import NO_ROOM
from towline.link.poller import Poller
from towline.node.process.context import Node
from towline.node.store.confirmed import confirmed_of, written_of
from towline.replication.flow_control import FlowControl
from towline.runtime.doorbell import Doorbell
from towline.runtime.idle_sleep import IdleSleep
from towline.runtime.ports import is_loopback
from towline.runtime.positions import Counter, Duty, Position

from .refusal_log import RefusalLog
from .reports import LogEnds, Refusal, Rule, begin_at, check_next
from .slave import Ended, Slave

WAITING_MAX: Final = 64  # connections that have not reported yet
WAITING_MS: Final = 10_000  # so long one may take for that: a broker of 4.9 takes 5 s
BACKLOG: Final = 128
ACCEPTS_PER_TURN: Final = 64
DRAIN_MS: Final = 5000
STANDS_MS: Final = 1000  # a slave that takes and reports nothing for so long is not waited for at a stop
BUSY_MS: Final = 1000  # so long after a frame more is looked for every STEP_MS
STEP_MS: Final = 10
CHECK_MS: Final = 500  # between two looks for who is silent


class RocketmqHaAgent:
    """The duty cycle of rocketmq_ha."""

    duty: ClassVar[Duty] = Duty.ROCKETMQ_HA

    def __init__(self, node: Node) -> None:
        self._node, self._line = node, node.line
        self._confirmed = confirmed_of(node)
        self._written = written_of(node)
        self._slaves: dict[int, Slave] = {}  # by descriptor
        self._said = RefusalLog(node.log)
        self._handed = 0  # the end of what slaves may have
        self._reported = False  # somebody has more than put knows of
        self._put_doorbell = node.ringer(Duty.PUT)
        self._check_at = 0
        self._accepts = True
        self._drain_until: int | None = None

    def on_start(self, bell: Doorbell) -> None:
        """Raises CannotListen."""
        self._bell = bell
        for line in self._node.positions.rocketmq_slaves():  # who was connected to an earlier process comes again
            line.leave()
        self._listening = self._listen()
        self._epoll = select.epoll()
        self._epoll.register(self._listening.fileno(), select.EPOLLIN)
        self._poller = Poller(bell.fileno(), self._epoll.fileno())
        host = self._node.settings.rocketmq_ha_address
        if not is_loopback(host):
            self._node.log.warning("whoever reaches %s reads every message: nobody is asked who he is there", host)
        gc.freeze()

    def _listen(self) -> socket.socket:
        settings = self._node.settings
        host, port = settings.rocketmq_ha_address.strip("[]"), settings.rocketmq_ha_port
        try:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            made = socket.create_server((host, port), family=family, backlog=BACKLOG)
        except OSError as error:
            why = os.strerror(error.errno) if error.errno else str(error)
            raise CannotListen(tcp_endpoint(host, port), error.errno or 0, why) from None
        made.setblocking(False)
        return made

    def adjust(self) -> None:
        """Slaves are sent what the settings allow now."""
        now = self._node.clock.monotonic_ms()
        for slave in self._slaves.values():
            slave.flow = FlowControl(self._rate(), now)

    def do_work(self) -> int:
        now = self._node.clock.monotonic_ms()
        done = 0
        for descriptor, events in self._epoll.poll(0):
            slave = self._slaves.get(descriptor)
            if slave is None:
                done += self._accept(now)
                continue
            done += 1
            if events & select.EPOLLOUT:
                slave.is_blocked = False
                self._epoll.modify(descriptor, select.EPOLLIN)
            if events & ~select.EPOLLOUT:
                self._hear(slave, now)
        end = self._end()
        for slave in list(self._slaves.values()):
            if slave.has_begun:
                done += self._serve(slave, end, now)
        if self._reported:
            self._reported = False
            if self._node.settings.rocketmq_ha_acks:
                self._put_doorbell.ring()
        if now >= self._check_at:
            self._check_at = now + CHECK_MS
            self._drop_silent(now)
            if not self._accepts:
                self._accepts = True
                self._epoll.register(self._listening.fileno(), select.EPOLLIN)
        return done

    def sleep_ms(self) -> int:
        now = self._node.clock.monotonic_ms()
        begun = [slave for slave in self._slaves.values() if slave.has_begun]
        if any(slave.flow.is_throttled or now - slave.busy_ms < BUSY_MS for slave in begun):
            return STEP_MS
        return min(LOOK_MS, self._node.settings.ha_send_heartbeat_interval)

    def wait(self, timeout_ms: int, rest: IdleSleep | None) -> bool:
        return self._poller.poll(timeout_ms, rest) and self._poller.ready(self._bell.fileno())

    def drain(self) -> bool:
        """Until every slave that goes on has all there is, or the time is over; the slaves of a fenced master get no
        more."""
        if self._is_fenced:
            return True
        now = self._node.clock.monotonic_ms()
        if self._drain_until is None:
            self._drain_until = now + DRAIN_MS
        end = self._node.positions.get(self._written)
        behind = [slave for slave in self._slaves.values() if slave.has_begun and slave.held < end]
        goes_on = any(now - max(slave.busy_ms, slave.heard_ms) < STANDS_MS for slave in behind)
        return not goes_on or now >= self._drain_until

    def on_close(self) -> None:
        for slave in list(self._slaves.values()):
            self._forget(slave)
        if hasattr(self, "_epoll"):
            self._epoll.close()
            self._listening.close()

    # --- who comes, and what they say

    def _accept(self, now: int) -> int:
        """Some of those that wait; how many. Where the machine has no descriptor for one, nobody is for CHECK_MS."""
        for accepted in range(ACCEPTS_PER_TURN):
            try:
                sock, (host, port, *_) = self._listening.accept()
            except OSError as error:
                if error.errno in NO_ROOM:
                    self._accepts = False
                    self._epoll.unregister(self._listening.fileno())
                return accepted
            self._take(sock, (host, port), now)
        return ACCEPTS_PER_TURN

    def _take(self, sock: socket.socket, peer: tuple[str, int], now: int) -> None:
        settings = self._node.settings
        slave = Slave(sock, peer, self._node.store.commitlog, settings.mapped_file_size_commit_log)
        waiting = sum(not each.has_begun for each in self._slaves.values())
        if waiting >= WAITING_MAX:
            self._refuse(slave, Refusal(Rule.FULL, f"{waiting} have connected and not reported yet"), now)
            return
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        slave.heard_ms = slave.taken_ms = now
        self._slaves[sock.fileno()] = slave
        self._epoll.register(sock.fileno(), select.EPOLLIN)

    def _hear(self, slave: Slave, now: int) -> None:
        try:
            reported = slave.read()
        except OSError as error:
            self._left(slave, str(error))
            return
        if reported is None:
            return
        slave.heard_ms = now
        if not slave.has_begun:
            self._begin(slave, reported, now)
            return
        refusal = check_next(reported, slave.reported, slave.start, slave.sent)
        if refusal is not None:
            self._refuse(slave, refusal, now)
            return
        self._reported = self._reported or reported > slave.reported
        slave.reported = reported

    def _begin(self, slave: Slave, reported: int, now: int) -> None:
        settings, positions = self._node.settings, self._node.positions
        log = LogEnds(positions.get(Position.LOG_MIN), self._end(), positions.get(self._written))
        size = settings.mapped_file_size_commit_log
        start = begin_at(reported, log, size, from_oldest=settings.rocketmq_ha_from_oldest)
        taken = {each.place for each in self._slaves.values()}
        free = next((place for place in range(ROCKETMQ_SLAVES_MAX) if place not in taken), None)
        if isinstance(start, int) and free is None:
            start = Refusal(Rule.FULL, f"{ROCKETMQ_SLAVES_MAX} slaves follow already")
        if isinstance(start, Refusal):
            self._refuse(slave, start, now)
            return
        assert free is not None
        slave.place, slave.flow = free, FlowControl(self._rate(), now)
        slave.begin(start, reported, now)
        positions.rocketmq_slaves()[free].join(*slave.peer, start)
        self._reported = True  # what it has already counts from now on
        self._node.log.info(
            "slave %s of RocketMQ follows from %d on, our log is confirmed up to %d",
            slave.address,
            start,
            log.confirmed,
        )

    # --- what they are sent

    @property
    def _is_fenced(self) -> bool:
        """Whether another master was promised to somebody: what is confirmed from here on is not this node's to say."""
        positions = self._node.positions
        return positions.get(Position.PROMISED) > positions.get(Position.EPOCH)

    def _end(self) -> int:
        """The end of what slaves may have. Memory alone may hold what is confirmed, and a master alone have it."""
        positions = self._node.positions
        end = min(self._confirmed(), positions.get(Position.FLUSHED), positions.get(Position.REPLICATED))
        if not self._is_fenced:  # looked at behind the end: what this node says after the promise does not count
            self._handed = max(self._handed, end)
        return self._handed

    def _rate(self) -> int:
        """Bytes a second that a slave is sent at most; 0: any."""
        settings = self._node.settings
        return settings.max_ha_transfer_byte_in_second if settings.ha_flow_control_enable else 0

    def _serve(self, slave: Slave, end: int, now: int) -> int:
        """Sends what it takes; how many bytes of the log that is."""
        was_blocked, frames = slave.is_blocked, slave.frames
        try:
            done = slave.stream(end, now)
            if now - slave.sent_ms >= self._node.settings.ha_send_heartbeat_interval:
                slave.heartbeat(now)
        except Ended as ended:
            self._refuse(slave, ended.refusal, now)
            return 1
        except OSError as error:
            self._left(slave, str(error))
            return 1
        if slave.is_blocked and not was_blocked:
            self._epoll.modify(slave.sock.fileno(), select.EPOLLIN | select.EPOLLOUT)
        self._line.count(Counter.BYTES, done)
        self._line.count(Counter.BATCHES, slave.frames - frames)
        self._node.positions.rocketmq_slaves()[slave.place].reach(slave.sent, slave.held)
        return done

    # --- who goes

    def _drop_silent(self, now: int) -> None:
        silent_ms = self._node.settings.ha_housekeeping_interval
        for slave in list(self._slaves.values()):
            quiet, unread = now - slave.heard_ms, now - slave.taken_ms
            if quiet > (silent_ms if slave.has_begun else min(silent_ms, WAITING_MS)):
                self._refuse(slave, Refusal(Rule.SILENT, f"nothing has come for {quiet} ms"), now)
            elif slave.is_sending and unread > silent_ms:
                self._refuse(slave, Refusal(Rule.UNREAD, f"it has taken nothing for {unread} ms"), now)

    def _refuse(self, slave: Slave, refusal: Refusal, now: int) -> None:
        self._line.count(Counter.REFUSED)
        who = f"slave {slave.address} of RocketMQ" if slave.has_begun else f"{slave.address}, which is no slave yet,"
        self._said.say(slave.peer[0], who, refusal, now)
        self._forget(slave)

    def _left(self, slave: Slave, why: str) -> None:
        if slave.has_begun:
            self._node.log.warning("slave %s of RocketMQ left at %d: %s", slave.address, slave.held, why)
        self._forget(slave)

    def _forget(self, slave: Slave) -> None:
        if self._slaves.pop(slave.sock.fileno(), None) is not None:
            self._epoll.unregister(slave.sock.fileno())
        if slave.place >= 0:
            self._node.positions.rocketmq_slaves()[slave.place].leave()
        slave.close()


def build(node: Node) -> RocketmqHaAgent:
    return RocketmqHaAgent(node)
