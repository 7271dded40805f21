"""Plain sends by kernels, batches too: frames to records in put's ring, PUT_OK to frames of answers
(`towline.kernels.remoting`); puts of our own clients, which are records already, and any answer to them.

A queue is sent to from here once the interpreter has sent to it, until a topic changes: so whatever takes thought about
a topic was thought about there.
"""

import time
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeAlias

import numpy as np

from towline.format.record.properties import CLUSTER, MSG_REGION, REGION_DEFAULT, TRACE_DEFAULT, TRACE_ON, encode
from towline.format.record.record import BORN_HOST_IPV6, STORE_HOST_IPV6, Host
from towline.format.remoting.command import ANSWER, Command, Form
from towline.format.remoting.command import encode as encode_command
from towline.format.remoting.wire_message import encode_message
from towline.format.wire.frames import PUT, Group, PutAnswer, encode_put, put_answer_to
from towline.format.wire.put_ring import stamp_of
from towline.kernels.base.directory import QueueDirectory
from towline.kernels.jit.rows import fields_of
from towline.kernels.remoting import puts
from towline.kernels.remoting.records import SIZES_MAX
from towline.kernels.remoting.sends import OURS, SENT, TEXT_MAX, read_sends
from towline.kernels.remoting.turns import EVENTS_SIZE, FAILPOINTS, SPINS_MAX, TURN, stay
from towline.limits import KIB, MIB
from towline.link.native import address_of_call
from towline.link.put_ring import ClientRing
from towline.runtime.failpoints import ARMED, address_of_failpoints, reach

from .connections import Connection, Connections
from .outcomes import outcome, places_told

ROWS: Final = 1_024  # frames that are read at once
ANSWERS_MAX: Final = 4_096  # rows of answers that are taken at once
OUT_SIZE: Final = 2 * MIB
CAME_SIZE: Final = 256 * KIB  # of one client at once, before it is another's turn
assert OUT_SIZE >= puts.ANSWER_MAX
NS_PER_MS: Final = 1_000_000
# An epoll_event, packed on x86-64 alone; of its data the system's epoll and Python's use the lower half.
EVENT: Final = np.dtype([("events", "<u4"), ("descriptor", "<i4"), ("unused", "<u4")])
_DEADLINE_AT: Final = PUT.offset["deadline"]

# Gets frames for the connection of this number.
Deliver: TypeAlias = Callable[[int, bytes], None]


class PlainSends:
    """One ring's. Used by one thread."""

    def __init__(
        self,
        ring: ClientRing,
        area: int,
        *,
        cluster: str,
        store_host: Host,
        store_ipv6: bool,
        wall_ms: Callable[[], int],
        deadline_ms: int,
        refused: Callable[[int], None],
    ) -> None:
        """`refused` gets the code of each answer that is not PUT_OK."""
        self._ring, self._wall_ms, self._deadline_ms = ring, wall_ms, deadline_ms
        self._refused = refused
        self._store_host, self._store_ipv6 = store_host, store_ipv6
        self._memory: Any = np.frombuffer(ring.memory.view, np.uint8)
        self._sends = np.zeros(ROWS, SENT)
        self.rows: Any = fields_of(self._sends)
        self._text = np.zeros(MIB + TEXT_MAX, np.uint8)
        self._ways = np.zeros(1, puts.WAY)
        self._way: Any = fields_of(self._ways)[0]
        self._pendings = np.zeros(puts.PENDING_MAX, puts.PENDING)
        self._keys = np.zeros(puts.PENDING_MAX * puts.KEY_MAX, np.uint8)
        self._sizes = np.zeros(SIZES_MAX, np.int32)
        self._topics = QueueDirectory()
        self._head = np.frombuffer(encode_put(0, 0, 0, [Group(b"", 0, 1, 0)]), np.uint8).copy()
        pairs = ((CLUSTER, cluster), (MSG_REGION, REGION_DEFAULT), (TRACE_ON, TRACE_DEFAULT))
        self._suffix = np.frombuffer(encode(pairs), np.uint8)
        self._store = np.frombuffer(store_host.packed, np.uint8)
        self._out = np.zeros(OUT_SIZE, np.uint8)
        self._answered = np.zeros(ANSWERS_MAX, puts.ANSWERED)
        self._rows: Any = fields_of(self._answered)
        self._came = np.zeros(CAME_SIZE, np.uint8)
        self._events = np.zeros(EVENTS_SIZE, np.uint8)
        self._turns = np.zeros(1, TURN)
        self._turn: Any = fields_of(self._turns)[0]
        self._turn.bell, self._turn.put_bell, self._turn.spins = ring.fileno(), ring.put_bell, SPINS_MAX
        self._putting = self._head, self._suffix, self._store, self._pendings, self._keys, self._sizes
        self._room = self._came, self._sends, self._text, self._out, self._answered, self._events
        self._turn.failpoint = address_of_failpoints(FAILPOINTS)
        self._turn.store_bits = STORE_HOST_IPV6 if store_ipv6 else 0
        for name in ("epoll_wait", "recv", "send", "read", "write"):
            setattr(self._turn, name, address_of_call(name))
        self._turn.clock, self._turn.give_way = address_of_call("clock_gettime"), address_of_call("sched_yield")
        self._way.area, self._way.next_id, self._way.oldest_id = area, 1, 1
        self._way.store_size = 20 if store_ipv6 else 8

    @property
    def waits(self) -> bool:
        """Whether a send has no answer yet."""
        return bool(self._way.oldest_id < self._way.next_id)

    def know(self, topic: bytes, queue_id: int) -> None:
        """Notes a queue that may be sent to."""
        self._topics.add(topic, queue_id)

    def forget_topics(self) -> None:
        if len(self._topics):
            self._topics = QueueDirectory()

    def read(self, came: Any) -> int:
        """Reads frames into `rows`; returns how many."""
        return int(read_sends(came, came.size, self._sends, self._text))

    def put(self, connection: Connection, came: Any, first: int, count: int) -> tuple[int, int]:
        """Sends rows from `first` on; returns the first that was not sent, and why."""
        way, host = self._way, connection.host
        way.tail, way.head = self._ring.requests.places
        way.connection, way.born_size = connection.number, len(host.packed)
        way.puts = connection.puts
        way.host_bits = (BORN_HOST_IPV6 if host.is_ipv6 else 0) | (STORE_HOST_IPV6 if self._store_ipv6 else 0)
        way.stamp = stamp_of(time.monotonic_ns() // NS_PER_MS)
        deadline = self._wall_ms() + self._deadline_ms
        self._head[_DEADLINE_AT : _DEADLINE_AT + 8] = np.frombuffer(deadline.to_bytes(8, "big"), np.uint8)
        done = puts.put_sends(
            self._memory,
            self._ways,
            came,
            self._sends,
            first,
            count,
            self._text,
            self._topics.arrays,
            self._head,
            self._suffix,
            np.frombuffer(host.packed, np.uint8),
            self._pendings,
            self._keys,
            self._sizes,
        )
        if done > first:
            if ARMED:
                reach("remoting.plain_put")
            self._ring.requests.go_to(way.tail, way.head)
            self._ring.nudge()
        return int(done), int(way.why)

    def stay(self, connections: Connections, glances: int, ms: int) -> int:
        """Serves clients without the interpreter, for so long at most; returns why no longer
        (`towline.kernels.remoting.turns`). What the kernel has left is handed to `connections`, to be sent or taken.

        `glances` is the descriptor of an epoll of all that ends the sleep.
        """
        seats = connections.seats
        way, turn = self._way, self._turn
        turn.carries = seats.carries
        way.tail, way.head = self._ring.requests.places
        tail, way.answers_head = self._ring.answers.places
        now_ms = time.monotonic_ns() // NS_PER_MS
        turn.glances, turn.clients, turn.until_ms = glances, connections.fileno(), now_ms + ms
        turn.wall_ms = self._wall_ms() - now_ms + self._deadline_ms
        topics = self._topics.arrays
        putting = (self._memory, self._ways, topics, *self._putting)
        why = stay(putting, (self._turns, seats.rows, seats.hosts, seats.places, seats.carried), self._room)
        seats.carries = turn.carries
        self._ring.requests.go_to(way.tail, way.head)
        self._ring.answers.go_to(max(tail, way.answers_head), way.answers_head)
        self._deliver(turn.answered, connections.deliver)
        if turn.left_of:
            connections.received(turn.left_of, lambda: self._came[: turn.left_end].tobytes(), turn.left_at)
        return int(why)

    @property
    def taken(self) -> int:
        """How many sends the last `stay` has taken."""
        return int(self._turn.messages)

    @property
    def shown(self) -> list[int]:
        """The descriptors that ended the last `stay`, where something else showed."""
        events = self._events[: EVENT.itemsize * self._turn.shown].view(EVENT)
        return [int(descriptor) for descriptor in events["descriptor"]]

    def _deliver(self, count: int, deliver: Deliver) -> None:
        """Hands out so many rows of answers."""
        for row in self._rows[:count]:
            deliver(row.connection, self._out[row.start : row.start + row.size].tobytes())

    def take(self, deliver: Deliver) -> tuple[int, int]:
        """Hands out the answers that are there; returns how many rows of them there were, and why no more."""
        way = self._way
        tail, way.answers_head = self._ring.answers.places
        before = way.oldest_id
        count = puts.take_answers(
            self._memory, self._ways, self._pendings, self._keys, self._sizes, self._store, self._out, self._answered
        )
        self._deliver(count, deliver)
        self._ring.answers.go_to(max(tail, way.answers_head), way.answers_head)
        return int(way.oldest_id - before), int(way.why)

    def finish(self, found: PutAnswer) -> tuple[int, bytes] | None:
        """The connection and the frame of an answer that the kernel has left; None for one way."""
        number = found.request_id & ~puts.OWN
        place = number & (puts.PENDING_MAX - 1)
        if int(self._pendings[place]["id"]) != number:
            return None
        return self._ended(place, found)

    def abandon(self, lose: Callable[[int], None]) -> Iterator[tuple[int, bytes]]:
        """The frames of answers of all that put will not answer any more; this is not used afterwards.

        `lose` gets the connections of those that are told so by its end.
        """
        for place in np.flatnonzero(self._pendings["id"]).tolist():
            if self._pendings[place]["form"] == OURS:
                lose(int(self._pendings[place]["connection"]))
                continue
            ended = self._ended(place, None)
            if ended is not None:
                yield ended

    def close(self) -> None:
        """Lets go of the ring's memory."""
        self._memory = None

    def _ended(self, place: int, found: PutAnswer | None) -> tuple[int, bytes] | None:
        row = self._pendings[place]
        row["id"] = 0
        if row["form"] == OURS and found is not None:
            parts = encode_message([put_answer_to(int(row["asked"]), found)], from_node=True)
            return int(row["connection"]), b"".join(parts)
        code, why = outcome(found)
        self._refused(code)
        if row["one_way"]:
            return None
        key = self._keys[place * puts.KEY_MAX :][: int(row["key_size"])].tobytes().decode()
        fields = {}
        if found is not None:
            at, records = int(row["sizes_at"]), int(row["records"])
            sizes = self._sizes.take(range(at, at + records), mode="wrap").tolist()
            fields = places_told(self._store_host, found, sizes, int(row["queue_id"]), key)
        answer = Command(code, int(row["opaque"]), ANSWER, why, fields, b"", Form(int(row["form"])))
        return int(row["connection"]), b"".join(encode_command(answer))
