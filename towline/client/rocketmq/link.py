"""A link to a broker of RocketMQ: takes and gives the messages that a client and a node exchange (`format.wire`), and
speaks remoting outside. So producers, consumers and their retries are the same for both.

It finds the broker's address through the name servers whenever it is made. One connection leads to the broker, others
to name servers that were asked, and to slaves that are read.
"""

import logging
import socket
import time
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from towline.errors import LinkRefused, MalformedFrame, MalformedRecord, NoAnswer, TowlineError, UnknownTopic
from towline.format.remoting.codes import RequestCode, ResponseCode
from towline.format.remoting.command import ONE_WAY, Command
from towline.format.remoting.fastjson import loads
from towline.format.remoting.routes import Broker, read_cluster
from towline.format.wire.frames import ANSWER, ASK, Buffer, Kind, decode_pull, expect, json_part, kind_of, read_json
from towline.limits import MESSAGE_BODY_MAX
from towline.link.endpoints import PORT_MAX
from towline.link.poller import Writing
from towline.link.waker import Waker
from towline.link.wire import Poller, watch_sources

from .asks import ask
from .channel import Channel
from .endpoint import RocketmqEndpoint
from .membership import HEARTBEAT_S, heartbeat, pushed
from .names import NameServers
from .pulls import pull
from .puts import REQUEST_BYTES_MAX, put
from .records import sizes_of
from .talk import MASTER_ID, NoNameServer, NoSlave, Pause, Refused, Request, Session, succeeded

TEND_MS: Final = 500  # between calls of `tend`
ROUTES_MS: Final = 30_000  # between looks of a producer at its routes, as Java's clients have them
SLAVE_S: Final = 5.0  # a slave that does not answer is not asked any more
_STARTING: Final = "STARTING"  # the client asks again

log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class _Step:
    """The requests of one step of a talk. `done` gets what the talk returns. `over`: the talk has gone on."""

    talk: Generator[Any, list[Command], Any]
    done: Callable[[Any], None]
    failed: Callable[[TowlineError], None]
    answers: list[Command | None] = field(default_factory=list)
    due: float = 0.0  # of a pause
    over: bool = False


@dataclass(slots=True)
class _Asked:
    """A request without an answer of the broker with the id `at`: number `place` of its step."""

    step: _Step
    place: int
    at: int
    since: float


class BrokerLink:
    """A link to one broker. Used by one thread.

    `facts` say who we are, as a node is told them.
    """

    def __init__(self, endpoint: str, facts: Mapping[str, Any]) -> None:
        """Begins to connect. Raises InvalidEndpoint."""
        self.endpoint = endpoint
        self._known = RocketmqEndpoint.read(endpoint)
        role, name, client = (str(facts.get(name, "")) for name in ("role", "name", "client"))
        self._session = Session(role, name, client)
        self.greeted_at = time.monotonic()
        self._welcome: dict[str, Any] | None = None
        self._refusal: TowlineError | None = None
        self._lost = self._refused = False
        self._trouble = "the name servers have not answered yet"
        self._next_opaque = 0
        self._asked: dict[int, _Asked] = {}
        self._paused: list[_Step] = []
        self._out: deque[list[Buffer]] = deque()
        self._bell = Waker()
        self._rung = False
        self._names = NameServers(self._known, self._ring)
        self._broker: Channel | None = None
        self._slaves: dict[int, Channel] = {}
        self._heartbeat_at = self.greeted_at + HEARTBEAT_S
        self._tend_at = 0.0
        self._start(self._greeting(), self._greeted, self._not_greeted)

    # --- as a client uses it

    @property
    def takes_turns(self) -> bool:
        return False

    @property
    def sockets(self) -> tuple[int | Writing, ...]:
        channels = [each for each in (self._broker, *self._slaves.values()) if each is not None]
        of_brokers = [each.source for each in channels if each.source is not None]
        return (self._bell.fileno(), *of_brokers, *self._names.sources)

    @property
    def lost(self) -> bool:
        return self._lost

    @property
    def has_ended(self) -> bool:
        return self.lost

    @property
    def refused(self) -> bool:
        return self._refused

    @property
    def trouble(self) -> str:
        return self._trouble

    @property
    def own_port(self) -> int:
        return self._broker.own_port if self._broker is not None else 0

    def try_greet(self) -> dict[str, Any] | None:
        """The welcome, made of what name server and broker say; None while it is not here.

        Raises NoAnswer, and LinkRefused where a name server knows no such broker.
        """
        self.tend()
        self._turn()
        if self._refusal is not None:
            raise self._refusal
        if self._lost:
            raise NoAnswer(self.endpoint, 0, self._trouble)
        return self._welcome

    def send(self, parts: Sequence[Buffer], copy: bool = True) -> bool:
        if self._lost or self._broker is None or not self._broker.has_room:
            return False
        kind = kind_of(parts[0])
        if kind == Kind.PUT:
            self._start(put(self._session, parts), self._emit, self._fatal)
        elif kind == Kind.PULL:
            self._start(pull(self._session, decode_pull(parts)), self._emit, self._fatal)
        elif kind == Kind.ASK:
            self._ask(parts)
        else:
            raise MalformedFrame(f"a message of kind {kind} is for no broker")
        return True

    def receive(self) -> list[Buffer] | None:
        if not self._out:
            if time.monotonic() >= self._tend_at:  # who always finds something never polls
                self.tend()
            self._turn()
        if self._out:
            return self._out.popleft()
        if self._rung:
            self._rung = False
            self._bell.drain()
        return None

    def tend(self) -> None:
        now = time.monotonic()
        self._tend_at = now + TEND_MS / 1000
        self._names.tend(now)
        self._leave_slaves(now)
        self._resume_paused(now)
        if self._welcome is not None and now >= self._heartbeat_at:
            self._heartbeat_at = now + HEARTBEAT_S
            self._start(self._look_again(), lambda _: None, self._fatal)

    def watch(self, poller: Poller) -> None:
        watch_sources(poller, self.sockets)

    def close(self, linger_ms: int = 0) -> None:
        self._lost = True
        for each in self._asked.values():
            each.step.talk.close()
        for step in self._paused:
            step.talk.close()
        self._asked.clear()
        self._paused.clear()
        self._names.close()
        for channel in (self._broker, *self._slaves.values()):
            if channel is not None:
                channel.close()
        self._bell.close()

    # --- the greeting

    def _greeting(self) -> Generator[Any, list[Command], dict[str, Any]]:
        broker = yield from self._find_broker()
        address = broker.addresses.get(MASTER_ID)
        if address is None:
            raise NoNameServer(f"the broker {broker.name} has no master now")
        host, port = _host_and_port(broker.name, address)
        session = self._session
        session.broker, session.cluster, session.address = broker.name, broker.cluster, address
        session.store_host = _store_host(host, port)
        self._trouble = f"the broker {broker.name} at {address} has not answered yet"
        self._broker = Channel(host, port, self._known.credentials, self._known.tls)
        yield from self._greet_broker()
        return {
            "role": "rocketmq",
            "broker_role": "master",
            "cluster": broker.cluster,
            "store_host": session.store_host,
            "request_limit": REQUEST_BYTES_MAX,
            "request_batches_max": 1,  # each is answered by itself
            "form_batch_max": 1,
            "tend_ms": TEND_MS,
            "routes_ms": ROUTES_MS,
            "max_message_size": MESSAGE_BODY_MAX,
            "rocketmq_version": session.version,
        }

    def _find_broker(self) -> Generator[Any, list[Command], Broker]:
        """The broker, as a name server knows it now."""
        (answer,) = yield [Request(RequestCode.GET_BROKER_CLUSTER_INFO, names=True)]
        succeeded(answer)
        broker = _chosen(read_cluster(loads(answer.body)), self._known.broker)
        self._session.slaves = {number: each for number, each in broker.addresses.items() if number != MASTER_ID}
        return broker

    def _look_again(self) -> Generator[Any, list[Command], None]:
        """Says again who we are, and looks who the broker's slaves are."""
        yield from self._greet_broker()
        with suppress(Refused, NoNameServer, LinkRefused):  # what was known is right, as far as anybody says
            yield from self._find_broker()

    def _greet_broker(self) -> Generator[Any, list[Command], None]:
        (answer,) = yield [heartbeat(self._session)]
        if answer.code == ResponseCode.NO_PERMISSION:
            raise LinkRefused("NO_PERMISSION", f"{self._session.address}: {answer.remark}")
        if not self._session.version:
            succeeded(answer)
        self._session.version = answer.version

    def _greeted(self, welcome: dict[str, Any]) -> None:
        self._welcome = welcome

    def _not_greeted(self, error: TowlineError) -> None:
        if isinstance(error, LinkRefused):
            self._refusal = error
        elif isinstance(error, Refused):
            self._refusal = LinkRefused(error.error, error.sentence)
        else:
            self._lose(error.describe())

    # --- talks

    def _ask(self, parts: Sequence[Buffer]) -> None:
        (_, request_id), facts = expect(ASK, parts[0]), read_json(parts[1])

        def done(found: tuple[dict[str, Any], bytes]) -> None:
            told, records = found
            sizes = sizes_of(records)
            head = ANSWER.pack(Kind.ANSWER, 0, request_id, len(sizes) // 4)
            self._emit([head, json_part(told), sizes, records] if sizes else [head, json_part(told)])

        def failed(error: TowlineError) -> None:
            if isinstance(error, Refused):
                told = {"error": error.error, "sentence": error.sentence, "position": error.position}
                told |= {"remedy": error.advised} if error.advised else {}
            elif isinstance(error, NoNameServer):
                told = {"error": _STARTING, "sentence": error.describe()}
            else:
                told = {"error": type(error).__name__, "sentence": error.describe()}
            self._emit([ANSWER.pack(Kind.ANSWER, 1, request_id, 0), json_part(told)])

        self._start(ask(self._session, facts), done, failed)

    def _start(
        self,
        talk: Generator[Any, list[Command], Any],
        done: Callable[[Any], None],
        failed: Callable[[TowlineError], None],
    ) -> None:
        self._resume(_Step(talk, done, failed), None)

    def _resume(self, step: _Step, error: TowlineError | None) -> None:
        """Goes on with the answers of a step, or with the error that came in place of one; the others count no more."""
        step.over = True
        try:
            if error is not None:
                wanted = step.talk.throw(error)
            elif step.answers:
                wanted = step.talk.send([each for each in step.answers if each is not None])
            else:
                wanted = next(step.talk)
            following = _Step(step.talk, step.done, step.failed)
            if isinstance(wanted, Pause):
                following.due = time.monotonic() + wanted.seconds
                self._paused.append(following)
            else:
                self._send_all(following, wanted)
        except StopIteration as ended:
            step.done(ended.value)
        except (MalformedFrame, MalformedRecord, UnknownTopic, Refused, NoNameServer, LinkRefused) as trouble:
            step.failed(trouble)

    def _send_all(self, step: _Step, requests: Sequence[Request]) -> None:
        assert requests, "a step asks something"
        step.answers = [None] * len(requests)
        now = time.monotonic()
        for place, request in enumerate(requests):
            if request.names:
                self._names.ask(request, partial(self._told, step, place))
                continue
            channel = self._channel(request.at)
            self._next_opaque += 1
            self._asked[self._next_opaque] = _Asked(step, place, request.at, now)
            if not channel.trouble:
                channel.send(request.command(self._next_opaque))
            if channel.trouble:
                self._ring()

    def _told(self, step: _Step, place: int, outcome: Command | NoNameServer | NoSlave) -> None:
        """What became of request number `place`."""
        if step.over or self._lost:
            return
        if isinstance(outcome, TowlineError):
            self._resume(step, outcome)
            return
        step.answers[place] = outcome
        if all(each is not None for each in step.answers):
            self._resume(step, None)

    def _answer(self, command: Command) -> None:
        asked = self._asked.pop(command.opaque, None)
        if asked is not None:
            self._told(asked.step, asked.place, command)

    def _resume_paused(self, now: float) -> None:
        if not self._paused or not (self._session.has_news or any(each.due <= now for each in self._paused)):
            return
        due = [each for each in self._paused if self._session.has_news or each.due <= now]
        self._session.has_news = False
        self._paused = [each for each in self._paused if each not in due]
        for step in due:
            self._resume(step, None)

    def _emit(self, parts: list[Buffer]) -> None:
        self._out.append(parts)
        self._ring()

    def _ring(self) -> None:
        """There is something to take, or to look at in the next turn."""
        if not self._rung:
            self._rung = True
            self._bell.wake()

    def _fatal(self, error: TowlineError) -> None:
        """What was answered cannot be understood: whether it was done is not known."""
        self._lose(error.describe())

    def _lose(self, trouble: str) -> None:
        self._trouble = trouble
        self._lost = True

    # --- channels

    def _channel(self, at: int) -> Channel:
        """The connection to the broker with this id, which the session names."""
        if at == MASTER_ID:
            assert self._broker is not None, "the master is greeted first"
            return self._broker
        if at not in self._slaves:
            host, port = _host_and_port(self._session.broker, self._session.slaves[at])
            self._slaves[at] = Channel(host, port, self._known.credentials, self._known.tls)
        return self._slaves[at]

    def _turn(self) -> None:
        """Takes what came over all connections."""
        self._names.turn()
        for at, slave in list(self._slaves.items()):
            for command in slave.turn():
                self._answer(command)
            if slave.trouble:
                self._leave_slave(at, slave.trouble)
        broker = self._broker
        if broker is not None and not self._lost:
            for command in broker.turn():
                if command.is_answer:
                    self._answer(command)
                else:
                    self._pushed(broker, command)
            if broker.trouble:
                self._refused = self._welcome is None
                self._lose(f"{broker.address}: {broker.trouble}")
        if self._session.has_news:
            self._resume_paused(time.monotonic())

    def _leave_slaves(self, now: float) -> None:
        """Those that have been silent for too long."""
        silent = {each.at for each in self._asked.values() if each.at != MASTER_ID and now - each.since >= SLAVE_S}
        for at in silent:
            self._leave_slave(at, "it says nothing")

    def _leave_slave(self, at: int, trouble: str) -> None:
        """What it was asked is for the master."""
        channel = self._slaves.pop(at)
        channel.close()
        left = {opaque: each for opaque, each in self._asked.items() if each.at == at}
        for opaque, each in left.items():
            del self._asked[opaque]
            self._told(each.step, each.place, NoSlave(f"{channel.address}: {trouble}"))

    def _pushed(self, broker: Channel, command: Command) -> None:
        """A request of the broker's."""
        try:
            answer = pushed(self._session, command)
        except MalformedFrame as error:
            log.warning("%s: request %d is not understood: %s", broker.address, command.code, error.describe())
            return
        if not command.flag & ONE_WAY:
            broker.send(answer)


def _chosen(known: Mapping[str, Broker], name: str) -> Broker:
    """The broker that was named, or the only one. Raises LinkRefused."""
    if name:
        if name not in known:
            raise NoNameServer(f"they know no broker {name!r}, but {', '.join(known) or 'none'}")
        return known[name]
    if len(known) == 1:
        return next(iter(known.values()))
    if not known:
        raise NoNameServer("they know no broker")
    raise LinkRefused("SEVERAL_BROKERS", f"the cluster has {', '.join(known)}: name one behind the last port, with a /")


def _host_and_port(broker: str, address: str) -> tuple[str, int]:
    """Raises MalformedFrame."""
    host, _, port = address.rpartition(":")
    if not port.isdecimal() or int(port) > PORT_MAX:
        raise MalformedFrame(f"the broker {broker} has the address {address!r}")
    return host, int(port)


def _store_host(host: str, port: int) -> str:
    try:
        address = socket.getaddrinfo(host, port, socket.AF_INET)[0][4][0]
    except OSError:
        return ""
    return f"{socket.inet_aton(str(address)).hex()}{port:08x}".upper()
