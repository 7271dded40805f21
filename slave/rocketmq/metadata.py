"""The link of follow to a RocketMQ master: the questions of its own slaves, answered as a Towline master answers.

Every EVERY_MS: topics, groups, offsets, delays, modes and timers; then where its log ends, which what was delivered by
then cannot be behind. `receive` hands on what has changed.
"""

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from towline.client.rocketmq.talk import Request
from towline.errors import LinkRefused, MalformedFrame
from towline.format.files.topics import read_topics
from towline.format.remoting.codes import RequestCode, ResponseCode
from towline.format.remoting.command import Command
from towline.format.remoting.headers import QueueOfTopic
from towline.format.wire.frames import ANSWER, ASK, Buffer, Kind, expect, json_part, read_json
from towline.log.state.floors import DELAY_OFFSETS, GROUP_OFFSETS, LOG_END, QUEUE_FLOORS, TIMER_OFFSETS
from towline.log.state.topics_file import NAME as TOPICS
from towline.node.process.context import Node
from towline.runtime.doorbell import Doorbell
from towline.runtime.positions import Position

from .broker import MasterBroker, check_master, content_of, ends_of, is_known
from .files import (
    Content,
    delays_file,
    groups_file,
    modes_file,
    offsets_file,
    text_of,
    timers_file,
    topics_file,
    transactions_file,
)
from .link import RetriedLink
from .rules import Rule, refused

EVERY_MS: Final = 2_000
ANSWER_MS: Final = 10_000
QUEUES_AT_ONCE: Final = 512
GROUPS: Final = "subscriptionGroup.json"
MODES: Final = "messageRequestMode.json"
TRANSACTIONS: Final = "transactionOffset.json"
_ASKED: Final = (
    RequestCode.GET_ALL_TOPIC_CONFIG,
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
    RequestCode.GET_ALL_CONSUMER_OFFSET,
    RequestCode.GET_ALL_DELAY_OFFSET,
    RequestCode.GET_ALL_MESSAGE_REQUEST_MODE,  # 4.9 knows neither of these
    RequestCode.GET_TIMER_CHECK_POINT,
)
_TOO_BUSY: Final = (ResponseCode.SYSTEM_ERROR, ResponseCode.SYSTEM_BUSY)
_PROGRESS: Final = frozenset({DELAY_OFFSETS, TRANSACTIONS, TIMER_OFFSETS})

Round = Generator[Sequence[Request], list[Command], dict[str, Content]]


@dataclass(slots=True)
class FloorsAsked:
    """Queues whose ends are still to be asked, some in each round; the ends of others; the log's end by then."""

    left: list[tuple[str, int]]
    ends: dict[tuple[str, int], int] = field(default_factory=dict)
    at: int = 0


class RocketmqMetadata(RetriedLink):
    """`connect` when `due`; then a question by `send`, and its answer by `receive`, until `disconnect`."""

    def __init__(self, node: Node, bell: Doorbell) -> None:
        assert node.settings.rocketmq_master_broker is not None
        super().__init__(node, bell, node.settings.rocketmq_master_broker)
        self._broker: MasterBroker | None = None
        self._broken: LinkRefused | None = None
        self._request_id: int | None = None  # of the question that waits for an answer
        self._have: Mapping[str, Any] = {}
        self._floors_at = 0
        self._round: Round | None = None
        self._began_ms = self._next_ms = 0
        self._told: dict[str, Content] = {}
        self._floors: FloorsAsked | None = None

    def connect(self, _: Mapping[str, Any], agree: Callable[[dict[str, Any]], None]) -> bool:
        """A failure is logged."""
        broker = MasterBroker(self.address)
        try:
            check_master(broker, self._node.settings)
            agree({})
        except LinkRefused as error:
            broker.close()
            self._not_made(error)
            return False
        self._broker, self._broken, self._told = broker, None, {}
        self._request_id, self._round, self._next_ms, self._floors = None, None, 0, None
        self._made()
        return True

    def disconnect(self, why: str) -> None:
        """Closes the link; it is made again a little later."""
        if self._broker is None:
            return
        self._broker.close()
        self._broker = None
        if self._broken is None:
            self._ended(why)
        else:
            self._not_made(self._broken)

    def close(self) -> None:
        if self._broker is not None:
            self._broker.close()

    def send(self, parts: list[bytes]) -> bool:
        """A question as a Towline master is asked: which files are there, and whether floors are wanted."""
        if self._broker is None:
            return False
        _, self._request_id = expect(ASK, parts[0])
        question = read_json(parts[1])
        self._have, self._floors_at = question["have"], int(question.get("floors_at", 0))
        return True

    def receive(self) -> list[Buffer] | None:
        """The answer to the question, when all has come. Raises LinkRefused, and `disconnect` comes next."""
        if self._broker is None or self._request_id is None:
            return None
        try:
            found = self._advance(self._broker, self._node.clock.monotonic_ms())
        except LinkRefused as error:
            self._broken = error
            raise
        except MalformedFrame as error:
            self._broken = refused(Rule.REFUSED, error.describe())
            raise
        if found is None:
            return None
        head = ANSWER.pack(Kind.ANSWER, 0, self._request_id, 0)
        self._request_id = None
        return [head, json_part({"files": self._changed(found)})]

    # --- a round of questions

    def _advance(self, broker: MasterBroker, now: int) -> dict[str, Content] | None:
        """The files of a round that is over; None while there is none, or it goes on."""
        if self._round is None:
            if now < self._next_ms:
                return None
            self._began_ms, self._next_ms = now, now + EVERY_MS
            self._round = self._ask_all()
            broker.ask(next(self._round))
        answers = broker.answers()
        while answers is not None:
            try:
                broker.ask(self._round.send(answers))
            except StopIteration as over:
                self._round = None
                files: dict[str, Content] = over.value
                return files
            answers = broker.answers()
        if now - self._began_ms > ANSWER_MS:
            raise refused(Rule.BROKER, f"{self.address} has not answered within {ANSWER_MS} ms")
        return None

    def _ask_all(self) -> Round:
        """The files. Progress is asked before the end of the log: all that it counts stands before that."""
        topics, groups, offsets, delays, modes, timers = yield [Request(code) for code in _ASKED]
        told = content_of(offsets)
        files = {
            TOPICS: topics_file(content_of(topics)),
            GROUPS: groups_file(content_of(groups)),
            GROUP_OFFSETS: offsets_file(told),
            DELAY_OFFSETS: delays_file(content_of(delays)),
            TRANSACTIONS: transactions_file(told),
        }
        if is_known(modes):
            files[MODES] = modes_file(content_of(modes))
        if is_known(timers):
            files[TIMER_OFFSETS] = timers_file(bytes(timers.body))
        (runtime,) = yield [Request(RequestCode.GET_BROKER_RUNTIME_INFO)]
        end = ends_of(runtime).end
        for name in _PROGRESS & files.keys():
            files[name][LOG_END] = end
        if self._floors_at:
            yield from self._ask_floors(end, files)
        return files

    def _ask_floors(self, end: int, files: dict[str, Content]) -> Generator[Sequence[Request], list[Command], None]:
        """Where queues go on that have no message in this log, which begins in the middle of the master's.

        A queue that has none between the beginning and `end` has the end that it has behind it, whatever comes.
        """
        if self._floors is None:
            self._floors = FloorsAsked(list(_queues(files[TOPICS])))
        asked = self._floors
        if asked.left:
            some = asked.left[-QUEUES_AT_ONCE:]
            queues = [QueueOfTopic(topic=topic, queue_id=number) for topic, number in some]
            answers = yield [Request(RequestCode.GET_MAX_OFFSET, each) for each in queues]
            if any(answer.code in _TOO_BUSY for answer in answers):  # in the next round once more
                return
            asked.ends |= dict(zip(some, map(_end, answers), strict=True))
            del asked.left[-QUEUES_AT_ONCE:]
            asked.at = end
        if asked.left or self._node.positions.get(Position.DISPATCHED) < asked.at:
            return
        known = self._node.queue_ends()
        floors: dict[str, dict[str, int]] = {}
        for (topic, number), floor in asked.ends.items():
            if floor and known.find(topic.encode(), number) < 0:
                floors.setdefault(topic, {})[str(number)] = floor
        files[QUEUE_FLOORS] = {"start": self._floors_at, "floors": floors}

    def _changed(self, files: dict[str, Content]) -> dict[str, str]:
        """The files that differ from what was handed on, or that follow says it lacks, as text."""
        changed = {}
        for name, content in files.items():
            plain = {member: value for member, value in content.items() if member != LOG_END}
            if self._told.get(name) != plain or name not in self._have:
                self._told[name] = plain
                changed[name] = text_of(content)
        return changed


def _queues(topics: Content) -> Iterable[tuple[str, int]]:
    """Each queue of the topics that are there. Raises MalformedFrame."""
    for name, topic in read_topics(topics, TOPICS).topics.items():
        for number in range(max(topic.read_queue_nums, topic.write_queue_nums)):
            yield name, number


def _end(answer: Command) -> int:
    """The end of a queue; 0 of one that the broker does not know."""
    try:
        return int(answer.fields.get("offset", "0")) if is_known(answer) else 0
    except ValueError:
        raise MalformedFrame("the end of a queue is no number") from None
