"""Clients that speak Towline's own protocol over this port: each has links of its own to the processes of the node.

What such a client says goes on to whom it is for, over that process's local socket, and the answers come back; so its
greeting, its share and its end are that process's to judge, as those of a client on its socket are. Records go into
put's ring instead, with everybody's. Where a link ends, so does the client's connection: it comes again and greets.
"""

import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from towline.errors import LinkRefused, MalformedFrame, NoAnswer
from towline.format.remoting.command import Command
from towline.format.remoting.wire_message import decode_message, encode_message
from towline.format.wire.frames import (
    ANSWER,
    ASK,
    GROUP,
    PULL,
    PULL_ANSWER,
    PULL_READS_FILES,
    RECORDS_IN_FILE,
    Buffer,
    Kind,
    PutAnswer,
    decode_pull,
    decode_put,
    expect,
    json_part,
    kind_of,
    put_answer_to,
    read_json,
)
from towline.format.wire.frames import PUT as PUT_HEAD
from towline.limits import (
    KIB,
    MIB,
    REQUEST_GROUPS_MAX,
    REQUEST_SIZE_MAX,
    RETRY_TOPIC_SIZE_MAX,
    TOPIC_QUEUES_MAX,
)
from towline.link.context import Context
from towline.link.dealer import Link
from towline.link.handshake import MALFORMED, NOT_GREETED, encode_refusal, encode_welcome, parse_greeting
from towline.link.keys import FORWARDER, AuthorizedKeys, Key, RoleRefused, check_ask
from towline.link.log_files import LogFiles
from towline.link.permissions import ADMIN, Act, NotPermitted, Permit
from towline.link.poller import Poller
from towline.link.signature import verify
from towline.node.peers.peer_server import NOT_MASTER
from towline.runtime.remoting_counts import Ending, Total

from .connections import Answer, Connection, Connections
from .own_needs import (
    check_put,
    check_question,
    judged,
    number_of,
    refusal,
    refused_pull,
    refused_put,
    topic_of_pull,
    topics_for,
    with_holder,
)
from .own_pulls import OwnPulls, Part
from .put_client import PutClient
from .topics import TopicRoutes

SOCKETS_MAX: Final = 16_384  # of ZeroMQ, which takes three for a link
PULLS_MAX: Final = TOPIC_QUEUES_MAX  # of a client, without an answer
ON_THE_WAY_MAX: Final = 16 * MIB  # bytes of answers to one client, which its pulls share
SHARE_MIN: Final = 4 * KIB
_FLAGS_AT: Final = PULL.offset["flags"]
_MOST_AT: Final = PULL.offset["max_bytes"]
_ANSWER_FLAGS_AT: Final = PULL_ANSWER.offset["flags"]
WAITING_MAX: Final = 64  # messages of a client for a link that is being greeted
LOOK_EVERY_MS: Final = 2  # at the links of one client, whether they show something or not; the next one's turn is then
UNREAD_MAX: Final = MIB  # bytes of answers that a client has not read, before no more are taken for it
HEAD_MAX: Final = PUT_HEAD.size + REQUEST_GROUPS_MAX * (GROUP.size + RETRY_TOPIC_SIZE_MAX)  # of a put
PUT: Final = "put"
SERVE: Final = "serve"
SCHEDULE: Final = "schedule"
COMMIT: Final = "group_commit"
_MAIN: Final = {"producer": PUT, "consumer": SERVE, ADMIN: SERVE, FORWARDER: SERVE}  # who answers a greeting
_MAY_ASK: Final = {  # role -> the processes that it may ask, where keys say who is who
    "producer": frozenset({PUT, SCHEDULE}),
    "consumer": frozenset({SERVE}),
    ADMIN: frozenset({PUT, SERVE, SCHEDULE}),
    FORWARDER: frozenset({SERVE}),
}
_OF_PUT: Final = frozenset({"create_topic", "alter_topic", "delete_topic", "begin_producer"})
_OF_BOTH: Final = frozenset({"route", "topics"})  # put makes a topic that is asked for
_OF_SCHEDULE: Final = "transaction_"


@dataclass(slots=True)
class Way:
    """A link to one process. What a client says before it is greeted waits."""

    link: Link
    is_greeted: bool = False
    is_heard: bool = True  # the poller has it
    waiting: deque[list[Buffer]] = field(default_factory=deque)


@dataclass(slots=True, eq=False)
class Tunnel:
    """A client that has greeted: its facts, its links by process."""

    connection: Connection
    version: int
    facts: dict[str, Any]
    main: str
    ways: dict[str, Way] = field(default_factory=dict)
    files: LogFiles | None = None
    pulls: dict[int, list[Buffer]] = field(default_factory=dict)  # without an answer, by number
    again: deque[int] = field(default_factory=deque)  # those to be answered without files; the first is asked

    seen: Permit | None = None  # of its key, when `judge` was found
    judge: Permit | None = None

    @property
    def limits(self) -> Permit | None:
        """What its key may do, where that is limited; or where it has lost the role with which it greeted."""
        key, permit = self.connection.key, self.connection.permit
        if permit is not self.seen:
            self.seen = self.judge = permit
            if key is None or permit is None or (not permit.is_limited and self.facts.get("role") in key.may_greet_as):
                self.judge = None
        return self.judge

    def close(self) -> None:
        if self.files is not None:
            self.files.close()
        for way in self.ways.values():
            way.link.close()


class Tunnels:
    """All of them. Used by one thread."""

    def __init__(
        self,
        context: Context,
        poller: Poller,
        endpoints: Mapping[str, str],
        put: PutClient | None,
        connections: Connections,
        keys: AuthorizedKeys | None,
        now_ms: Callable[[], int],
        log: logging.Logger,
        topics: TopicRoutes,
        pulls: OwnPulls | None = None,
    ) -> None:
        """`endpoints` are the local sockets, by process. A slave has no schedule, no way for records (`put`), and at
        put's socket somebody who says where the master is. `now_ms` of the wall clock. Without `pulls` all are asked of
        serve."""
        self._pulls, self._topics = pulls, topics
        self._context, self._poller, self._endpoints, self._put = context, poller, endpoints, put
        self._connections, self._keys, self._now_ms, self._log = connections, keys, now_ms, log
        self._tunnels: dict[Connection, Tunnel] = {}
        self._look_at = 0
        self._turns: deque[Tunnel] = deque()  # of clients to be looked at
        self._unread: set[Connection] = set()  # of clients that have to read before they get more

    def __len__(self) -> int:
        return len(self._tunnels)

    @property
    def are_greeting(self) -> bool:
        """Whether a link is not greeted yet: that goes on by looking."""
        return any(not way.is_greeted for tunnel in self._tunnels.values() for way in tunnel.ways.values())

    def handle(self, connection: Connection, request: Command, _: Answer) -> None:
        """One message of a client."""
        try:
            parts = decode_message(request.body)
            tunnel = self._tunnels.get(connection)
            if kind_of(parts[0]) == Kind.GREETING:
                self._greet(connection, parts)
            elif tunnel is None:
                why = "a request came before a greeting; the server may have been restarted"
                self._refuse(connection, LinkRefused(NOT_GREETED, why))
            else:
                self._take(tunnel, parts)
        except MalformedFrame as error:
            self._refuse(connection, LinkRefused(MALFORMED, error.describe()))
            self._end(connection, Ending.MALFORMED, error.describe())

    def cycle(self, now_ms: int) -> int:
        """Goes on with greetings, takes answers that the poller has seen, and those of a client whose turn it is;
        returns how much of both."""
        looked = None
        if self._turns and now_ms >= self._look_at:
            self._look_at = now_ms + LOOK_EVERY_MS
            self._turns.rotate(-1)
            looked = self._turns[-1]
        return sum(self._cycle(tunnel, tunnel is looked) for tunnel in tuple(self._tunnels.values()))

    def go_on(self) -> int:
        """Takes more answers for those who have read; returns how many."""
        done = 0
        for connection in [each for each in self._unread if each.held < UNREAD_MAX]:
            self._unread.discard(connection)
            tunnel = self._tunnels.get(connection)
            done += 0 if tunnel is None else self._cycle(tunnel, True)
        return done

    def close_files(self) -> None:
        """Lets files of the log go, some of which are deleted: they are opened again where they are read again."""
        for tunnel in self._tunnels.values():
            if tunnel.files is not None:
                tunnel.files.close()

    def ended(self, connection: Connection) -> None:
        """Ends the links of a client that has gone."""
        tunnel = self._tunnels.pop(connection, None)
        self._unread.discard(connection)
        if tunnel is not None:
            self._turns.remove(tunnel)
            self._connections.counts.set(Total.OWN_CLIENTS, len(self._tunnels))
            for way in tunnel.ways.values():
                self._mute(way)
            tunnel.close()

    def close(self) -> None:
        for connection in tuple(self._tunnels):
            self.ended(connection)

    # --- what clients say

    def _greet(self, connection: Connection, parts: Sequence[Buffer]) -> None:
        """Raises MalformedFrame."""
        try:
            greeting = parse_greeting(parts)
            role = greeting.facts.get("role")
            main = _MAIN.get(role) if isinstance(role, str) else None
            if main is None:
                raise LinkRefused("ROLE", f"the role {role!r} has no use at this port; {', '.join(_MAIN)} have")
            key = None if self._keys is None else verify(greeting.facts, self._keys, self._now_ms())
            most = self._connections.tunnels_max
            if connection not in self._tunnels and len(self._tunnels) >= most:
                raise LinkRefused("FULL", f"{most} clients are served at this port already")
        except LinkRefused as refused:
            self._refuse(connection, refused)
            return
        self.ended(connection)
        connection.keep_alive()
        connection.puts = role in ("producer", ADMIN) and self._put is not None
        connection.key, connection.has_greeted = key, True
        connection.permit = None if self._keys is None or key is None else self._keys.permit(key)
        self._tunnels[connection] = tunnel = Tunnel(connection, greeting.version, greeting.facts, main)
        self._turns.append(tunnel)
        self._connections.counts.set(Total.OWN_CLIENTS, len(self._tunnels))
        self._way(tunnel, main)

    def _take(self, tunnel: Tunnel, parts: list[Buffer]) -> None:
        """Raises MalformedFrame."""
        match kind_of(parts[0]):
            case Kind.PUT if len(parts) == 2:
                self._take_put(tunnel, parts)
            case Kind.ASK if len(parts) == 2:
                self._take_question(tunnel, parts)
            case Kind.PULL:
                self._take_pull(tunnel, parts)
            case kind:
                raise MalformedFrame(f"a message of kind {kind} in {len(parts)} parts is no request")

    def _take_put(self, tunnel: Tunnel, parts: list[Buffer]) -> None:
        if self._put is None or not tunnel.connection.puts:
            raise MalformedFrame("records come from producers that are welcome, and this is none")
        if len(parts[0]) > HEAD_MAX or len(parts[1]) > REQUEST_SIZE_MAX:
            raise MalformedFrame(f"a put of {len(parts[1])} bytes with a head of {len(parts[0])}: more than put takes")
        number, epoch, deadline, groups = decode_put(parts[0], REQUEST_GROUPS_MAX)
        connection, limits = tunnel.connection, tunnel.limits
        if limits is not None:
            try:
                check_put(limits, groups, parts[1])
            except NotPermitted as refused:
                self._connections.counts.add(Total.OWN_REFUSED)
                self._say(connection, [refused_put(number, refused)])
                return

        def done(found: PutAnswer | None) -> None:
            if found is None:
                self._end(connection, Ending.AWAY, "put has ended: what becomes of its last records is not known")
            else:
                self._say(connection, [put_answer_to(number, found)])

        if not self._put.put(groups, parts[1], done, deadline_ms=deadline, epoch=epoch):
            self._end(connection, Ending.AWAY, "put is away")

    def _take_question(self, tunnel: Tunnel, parts: list[Buffer]) -> None:
        question = read_json(parts[1])
        op = question.get("op")
        if not isinstance(op, str):
            raise MalformedFrame("the op of a question is a text")
        process, limits = _process_for(op, tunnel.main), tunnel.limits
        try:
            _check_role(op, process, str(tunnel.facts.get("role")), tunnel.connection.key)
            if limits is not None:
                check_question(limits, question, makes=process == PUT)
        except RoleRefused as refused:
            self._answer_no(tunnel, parts, type(refused).__name__, str(refused))
            return
        except NotPermitted as refused:
            self._connections.counts.add(Total.OWN_REFUSED)
            self._say(tunnel.connection, refusal(number_of(parts), refused))
            return
        if process not in self._endpoints:
            self._answer_no(tunnel, parts, NOT_MASTER, f"this node is a slave, and {op} is for the master")
        elif limits is not None and op == "topics":
            self._topics.refresh()
            self._say(tunnel.connection, topics_for(limits, number_of(parts), self._topics.table.topics.values()))
        else:
            self._send(tunnel, process, with_holder(limits, parts, question) if process == SCHEDULE else parts)

    def _answer_no(self, tunnel: Tunnel, question: list[Buffer], error: str, sentence: str) -> None:
        head = ANSWER.pack(Kind.ANSWER, 1, expect(ASK, question[0])[1], 0)
        self._connections.counts.add(Total.OWN_REFUSED)
        self._say(tunnel.connection, [head, json_part({"error": error, "sentence": sentence})])

    def _take_pull(self, tunnel: Tunnel, parts: list[Buffer]) -> None:
        """Answers at once where serve is not needed, to who is welcome there. Raises MalformedFrame."""
        if tunnel.main != SERVE or tunnel.facts.get("role") == FORWARDER:
            raise MalformedFrame("pulls come from consumers and admins, and this is none")
        number = expect(PULL, parts[0])[3]
        if number in tunnel.pulls:
            raise MalformedFrame(f"a pull of number {number} beside one of this number without an answer")
        limits = tunnel.limits
        refused = None if limits is None else limits.refusal(Act.CONSUME, topic_of_pull(parts[0]))
        if refused is not None:
            self._connections.counts.add(Total.OWN_REFUSED)
            self._say(tunnel.connection, refused_pull(parts[0], refused))
            return
        answer = None
        if self._pulls is not None and tunnel.ways[SERVE].is_greeted and tunnel.connection.held < UNREAD_MAX:
            answer = self._pulls.answer(decode_pull(parts), sends_files=tunnel.connection.sends_files)
        if answer is None:
            self._send(tunnel, SERVE, self._noted(tunnel, parts))
        else:
            self._say(tunnel.connection, answer)

    def _noted(self, tunnel: Tunnel, parts: list[Buffer]) -> list[Buffer]:
        """The pull as serve gets it: a STRETCH may answer it, since records in memory are read here and so cross one
        socket less; and it asks for no more than its share of what may be on the way to one client."""
        _, flags, _, number, _, _, most, *_ = expect(PULL, parts[0])
        if len(tunnel.pulls) >= PULLS_MAX:
            raise MalformedFrame(f"a pull beside {PULLS_MAX} that are not answered; so many are allowed")
        most = min(most, max(SHARE_MIN, ON_THE_WAY_MAX // (len(tunnel.pulls) + 1)))
        head = _with(bytes(parts[0]), _MOST_AT, most.to_bytes(4, "big", signed=True))
        tunnel.pulls[number] = [head, *parts[1:]]
        if tunnel.files is not None:
            head = _with(head, _FLAGS_AT, bytes([flags | PULL_READS_FILES]))
        return [head, *parts[1:]]

    def _send(self, tunnel: Tunnel, process: str, parts: list[Buffer]) -> None:
        way = self._way(tunnel, process)
        if not way.is_greeted:
            if len(way.waiting) >= WAITING_MAX:
                why = f"{process} is away, and {WAITING_MAX} requests wait for it"
                self._end(tunnel.connection, Ending.AWAY, why)
            else:
                way.waiting.append(parts)
        elif not way.link.send(parts):
            self._end(tunnel.connection, Ending.AWAY, f"{process} takes no more of it")

    def _way(self, tunnel: Tunnel, process: str) -> Way:
        way = tunnel.ways.get(process)
        if way is None:
            way = Way(Link(self._context, self._endpoints[process], tunnel.facts))
            tunnel.ways[process] = way
            self._poller.add(way.link)
        return way

    # --- what the processes say

    def _cycle(self, tunnel: Tunnel, is_looked_at: bool) -> int:
        done = 0
        for process, way in tuple(tunnel.ways.items()):
            try:
                if not way.is_greeted:
                    done += self._finish_greeting(tunnel, process, way)
                elif is_looked_at or self._poller.ready(way.link):
                    done += self._receive(tunnel, way)
            except LinkRefused as refused:
                self._refuse(tunnel.connection, refused)
                self.ended(tunnel.connection)
                return done + 1
            except (NoAnswer, MalformedFrame) as error:
                self._end(tunnel.connection, Ending.AWAY, f"{process}: {error.describe()}")
                return done + 1
        return done

    def _finish_greeting(self, tunnel: Tunnel, process: str, way: Way) -> int:
        """Raises LinkRefused, NoAnswer."""
        welcome = way.link.try_greet()
        if welcome is None:
            return 0
        way.is_greeted = True
        if process == SERVE:
            tunnel.files = LogFiles.of(self._endpoints[SERVE], welcome)
        if process == tunnel.main:
            self._say(tunnel.connection, encode_welcome(tunnel.version, welcome))
        while way.waiting:
            self._send(tunnel, process, way.waiting.popleft())
        return 1

    def _receive(self, tunnel: Tunnel, way: Way) -> int:
        """Hands answers on, as long as the client reads them. Raises LinkRefused, MalformedFrame."""
        done = 0
        while tunnel.connection.held < UNREAD_MAX and (parts := way.link.receive()) is not None:
            if kind_of(parts[0]) == Kind.PULL_ANSWER:
                self._say_pulled(tunnel, parts)
            elif (limits := tunnel.limits) is not None and way is not tunnel.ways.get(PUT):
                act = Act.PRODUCE if way is tunnel.ways.get(SCHEDULE) else Act.CONSUME
                self._say(tunnel.connection, judged(limits, parts, act))
            else:
                self._say(tunnel.connection, parts)
            done += 1
        if way.link.lost:
            self._end(tunnel.connection, Ending.AWAY, "the process that answered it has ended")
        elif tunnel.connection.held >= UNREAD_MAX:
            self._unread.add(tunnel.connection)
            self._mute(way)
        elif not way.is_heard:
            self._poller.add(way.link)
            way.is_heard = True
        return done

    def _say_pulled(self, tunnel: Tunnel, parts: list[Buffer]) -> None:
        """An answer with its records, or their place for a client that reads the files itself; records that cannot be
        read at once are asked of serve, one answer at a time. Raises MalformedFrame."""
        _, _, _, number, *_, flags = expect(PULL_ANSWER, parts[0])
        pull, limits, refused = tunnel.pulls.get(number), tunnel.limits, None
        if limits is not None and pull is None:
            raise MalformedFrame(f"an answer to pull {number}, which nobody waits for")
        if limits is not None and pull is not None:
            refused = limits.refusal(Act.CONSUME, topic_of_pull(pull[0]))
        if refused is not None and pull is not None:
            parts = refused_pull(pull[0], refused)
        elif flags & RECORDS_IN_FILE and tunnel.files is not None and pull is not None and not _reads_files(pull):
            records = tunnel.files.read(parts[2], waits=False)
            if records is None:
                tunnel.again.append(number)
                if len(tunnel.again) == 1:
                    self._send(tunnel, SERVE, pull)
                return
            head = _with(bytes(parts[0]), _ANSWER_FLAGS_AT, bytes([flags & ~RECORDS_IN_FILE]))
            parts = [head, parts[1], records]
        tunnel.pulls.pop(number, None)
        self._say(tunnel.connection, parts)
        if tunnel.again and tunnel.again[0] == number:
            tunnel.again.popleft()
            if tunnel.again:
                self._send(tunnel, SERVE, tunnel.pulls[tunnel.again[0]])

    def _mute(self, way: Way) -> None:
        """Takes a link from the poller, which it would wake for nothing."""
        if way.is_heard:
            self._poller.remove(way.link)
            way.is_heard = False

    # --- what is said to clients

    def _say(self, connection: Connection, parts: Sequence[Part]) -> None:
        self._connections.send_parts(connection, encode_message(parts, from_node=True))

    def _refuse(self, connection: Connection, refused: LinkRefused) -> None:
        self._connections.counts.add(Total.OWN_REFUSED)
        self._say(connection, encode_refusal(refused))

    def _end(self, connection: Connection, ending: Ending, why: str) -> None:
        self._connections.end(connection, ending, why)
        self.ended(connection)


def _check_role(op: str, process: str, role: str, key: Key | None) -> None:
    """Raises RoleRefused for a question that is not for who asks. Without keys everybody may be who he says he is."""
    if role == FORWARDER and op != COMMIT:
        raise RoleRefused(op, role, "clients")
    if key is None:
        return
    if role not in key.may_greet_as:
        raise RoleRefused(op, role, f"a {role}, which the key {key.name!r} is not any more")
    check_ask(op, key.name, role)
    if process not in _MAY_ASK[role]:
        raise RoleRefused(op, role, "consumers and admins" if process == SERVE else "producers and admins")


def _process_for(op: str, main: str) -> str:
    """Who answers a question."""
    if op in _OF_PUT:
        return PUT
    if op in _OF_BOTH:
        return main
    return SCHEDULE if op.startswith(_OF_SCHEDULE) else SERVE


def _reads_files(pull: list[Buffer]) -> bool:
    """Whether the client itself asked for the records' place."""
    return bool(bytes(pull[0])[_FLAGS_AT] & PULL_READS_FILES)


def _with(data: bytes, at: int, value: bytes) -> bytes:
    """The same bytes with others at a place."""
    return data[:at] + value + data[at + len(value) :]
