"""What consumers read: pulls, offsets of queues, messages by key or id (spec 10, 11.2). All of it is asked of serve."""

from collections.abc import Callable
from typing import Final

from towline.errors import MalformedFrame, MalformedRecord, UnknownTopic
from towline.filter import sql, tags
from towline.filter.errors import BadExpression
from towline.format.record.record import decode
from towline.format.remoting.codes import RequestCode, RequestRefused, ResponseCode, response_of_pull
from towline.format.remoting.command import Command
from towline.format.remoting.consumers import SQL92, SubscriptionData, subscription_of
from towline.format.remoting.headers import (
    PullMessage,
    QueryMessage,
    QueueOfTopic,
    SearchOffset,
    ViewMessage,
    read_header,
)
from towline.format.wire.frames import PULL_ANSWER, READ_FROM_SLAVE, Buffer, Pull, expect, read_json
from towline.format.wire.status import GetStatus
from towline.limits import MIB
from towline.link.permissions import Act, topics_of

from .connections import Answer
from .log_reads import FoundRecords, LogReads
from .questions import Facts, Questions, refusal_in
from .read_from import ReadFrom
from .topics import TopicRoutes

COMMITS: Final = 1  # bits of a pull's sysFlag
SUSPENDS: Final = 2
SUBSCRIBES: Final = 4
SUSPEND_MAX_MS: Final = 30_000
COUNT_MAX: Final = 1_024
BYTES_MAX: Final = 4 * MIB  # of one answer; a first record that is larger comes whole
UNIQUE_MAX: Final = 32  # messages by a unique key
SERVE_AWAY: Final = "serve is away; try again"
_UNIQUE: Final = "U"
_TAG: Final = "T"

# Of a group and a topic: the subscription of the last heartbeat.
SubscriptionOf = Callable[[str, str], SubscriptionData | None]
Commit = Callable[[str, str, int, int], None]  # group, topic, queue, offset
Pulled = Callable[[str, str, int, int, int], None]  # group, topic, queue, count, the offset behind


class Readers:
    """Handles what consumers, and tools, read."""

    def __init__(
        self,
        serve: Questions,
        topics: TopicRoutes,
        subscription_of: SubscriptionOf,
        commit: Commit,
        read_from: ReadFrom,
        pulled: Pulled = lambda group, topic, queue_id, count, following: None,
        log_reads: LogReads | None = None,
        *,
        filters: bool,
    ) -> None:
        """`filters`: SQL92 is allowed. `pulled` is told of each answer with messages. Without `log_reads` everything is
        asked of serve."""
        self._log_reads = log_reads
        self._serve, self._topics, self._read_from, self._filters = serve, topics, read_from, filters
        self._subscription_of, self._commit, self._pulled = subscription_of, commit, pulled

    # --- pulls

    def pull(self, request: Command, answer: Answer) -> None:
        """Raises MalformedFrame, RequestRefused."""
        header = read_header(PullMessage, request.fields)
        if header.sys_flag & COMMITS and header.commit_offset >= 0:
            self._commit(header.consumer_group, header.topic, header.queue_id, header.commit_offset)
        self._check_place(header)
        wanted = self._wanted(header)
        codes, expression = self.filter_of(wanted)
        held = max(0, min(header.suspend_timeout_millis, SUSPEND_MAX_MS)) if header.sys_flag & SUSPENDS else 0
        most = min(header.max_msg_bytes, BYTES_MAX) if header.max_msg_bytes > 0 else BYTES_MAX
        count = max(1, min(header.max_msg_nums, COUNT_MAX))
        if self._log_reads is not None and not (codes or expression):
            found = self._log_reads.find(header.topic, header.queue_id, header.queue_offset, count, most)
            if found is not None:
                self._answer_found(header, found, answer)
                return
        pull = Pull(
            0,
            header.topic.encode(),
            header.queue_id,
            max(0, header.queue_offset),
            count,
            most,
            held,
            codes,
            expression,
            header.consumer_group if expression else "",
        )

        def received(parts: list[Buffer]) -> None:
            try:
                answer.check(Act.JOIN, header.consumer_group)  # it may have been held
                answer.check(Act.CONSUME, header.topic)
            except RequestRefused as refused:
                answer.refuse(refused)
                return
            if parts:
                self._answer_pull(header, parts, answer)
            else:
                answer(ResponseCode.SYSTEM_ERROR, remark=SERVE_AWAY)

        if not self._serve.pull(pull, received):
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, SERVE_AWAY)

    def _answer_pull(self, header: PullMessage, parts: list[Buffer], answer: Answer) -> None:
        _, number, _, _, count, following, low, end, flags = expect(PULL_ANSWER, parts[0])
        status = GetStatus(number)
        if status is GetStatus.REFUSED:
            why = str(read_json(parts[1]).get("sentence", status.name)) if len(parts) > 1 else status.name
            answer(response_of_pull(status, header.queue_offset), remark=why)
            return
        records = parts[2] if count else b""
        found = FoundRecords(count, following, low, end, records)
        self._answer_found(header, found, answer, status, far=bool(flags & READ_FROM_SLAVE))

    def _answer_found(
        self,
        header: PullMessage,
        found: FoundRecords,
        answer: Answer,
        status: GetStatus = GetStatus.FOUND,
        *,
        far: bool = False,
    ) -> None:
        left = found.end - found.following if found.count else 0
        fields = {
            "suggestWhichBrokerId": str(self._read_from.broker(header.queue_id, far=far, left=left)),
            "nextBeginOffset": str(found.following),
            "minOffset": str(found.low),
            "maxOffset": str(found.end),
            "topicSysFlag": "0",
            "groupSysFlag": "0",
        }
        if found.count:
            self._pulled(header.consumer_group, header.topic, header.queue_id, found.count, found.following)
        code = self._read_from.code(response_of_pull(status, header.queue_offset))
        answer(code, fields, found.records, status.name)

    def check_filter(self, request: Command, answer: Answer) -> None:
        """CHECK_CLIENT_CONFIG: whether a filter can be evaluated. Raises MalformedFrame, RequestRefused."""
        match request.json():
            case {"subscriptionData": said}:
                self.filter_of(subscription_of(said)[1])
                answer(ResponseCode.SUCCESS)
            case _:
                raise MalformedFrame("what is to be checked has a subscriptionData")

    def _check_place(self, header: PullMessage) -> None:
        topic = self._topics.find(header.topic)
        if topic is None:
            why = f"topic[{header.topic}] not exist, apply first please!"
            raise RequestRefused(ResponseCode.TOPIC_NOT_EXIST, why)
        if not topic.readable:
            raise RequestRefused(ResponseCode.NO_PERMISSION, f"the topic[{header.topic}] pulling message is forbidden")
        if not 0 <= header.queue_id < topic.read_queue_nums:
            why = f"queueId[{header.queue_id}] is illegal, topic:[{header.topic}] has {topic.read_queue_nums} queues"
            raise RequestRefused(ResponseCode.INVALID_PARAMETER, why)

    def _wanted(self, header: PullMessage) -> SubscriptionData:
        if header.sys_flag & SUBSCRIBES:
            return SubscriptionData(header.subscription, header.expression_type or "TAG", header.sub_version)
        found = self._subscription_of(header.consumer_group, header.topic)
        if found is None:
            why = "the consumer's subscription not exist"
            raise RequestRefused(ResponseCode.SUBSCRIPTION_NOT_EXIST, why)
        if found.version < header.sub_version:
            why = "the consumer's subscription not latest"
            raise RequestRefused(ResponseCode.SUBSCRIPTION_NOT_LATEST, why)
        return found

    def filter_of(self, subscription: SubscriptionData) -> tuple[tuple[int, ...], str]:
        """The hashes of tags, or the expression. Raises RequestRefused."""
        try:
            if subscription.kind != SQL92:
                found = tags.parse(subscription.expression)
                if not found.everything and not found.codes:
                    raise BadExpression(subscription.expression, 0, "there is no tag in it")
                return found.codes, ""
            if not self._filters:
                why = "The broker does not support consumer to filter message by SQL92"
                raise RequestRefused(ResponseCode.SYSTEM_ERROR, why)
            sql.compile(subscription.expression)
        except BadExpression as error:
            raise RequestRefused(ResponseCode.SUBSCRIPTION_PARSE_FAILED, error.describe()) from None
        return (), subscription.expression

    # --- offsets

    def bound(self, request: Command, answer: Answer) -> None:
        """GET_MAX_OFFSET, GET_MIN_OFFSET. Raises MalformedFrame, RequestRefused."""
        header = read_header(QueueOfTopic, request.fields)
        wants_end = request.code == RequestCode.GET_MAX_OFFSET

        def then(low: int, end: int) -> None:
            _say_offset(answer, end if wants_end else low)

        self.bounds(header.topic, header.queue_id, then, answer.refuse)

    def bounds(
        self,
        topic: str,
        queue_id: int,
        then: Callable[[int, int], None],
        refused: Callable[[RequestRefused], None],
    ) -> None:
        """Asks for the bounds of a queue; (0, 0) of one that is not there. `refused` is called where they are not
        known: who took 0 for the end would read all again. Raises RequestRefused."""

        def told(facts: Facts | None, _: list[Buffer]) -> None:
            problem = refusal_in(facts, "serve")
            if facts is None or (problem and facts["error"] != UnknownTopic.__name__):
                refused(RequestRefused(ResponseCode.SYSTEM_ERROR, problem))
                return
            rows = [] if problem else facts["queues"]
            found = next((row for row in rows if row["queue"] == queue_id), {"min": 0, "max": 0})
            then(int(found["min"]), int(found["max"]))

        self._ask("bounds", {"topic": topic}, told)

    def search(self, request: Command, answer: Answer) -> None:
        """SEARCH_OFFSET_BY_TIMESTAMP. Raises MalformedFrame, RequestRefused."""
        header = read_header(SearchOffset, request.fields)
        boundary = "upper" if header.boundary_type.lower() == "upper" else "lower"

        def told(facts: Facts | None, _: list[Buffer]) -> None:
            problem = refusal_in(facts, "serve")
            if facts is None or problem:
                answer(ResponseCode.SYSTEM_ERROR, remark=problem)
            else:
                _say_offset(answer, int(facts["offset"]))

        place = {"topic": header.topic, "queue": header.queue_id}
        self._ask("offset_by_time", {**place, "time": max(0, header.timestamp), "boundary": boundary}, told)

    def earliest(self, request: Command, answer: Answer) -> None:
        """GET_EARLIEST_MSG_STORETIME: -1 where the queue is empty. Raises MalformedFrame, RequestRefused."""
        header = read_header(QueueOfTopic, request.fields)
        topic = self._topics.find(header.topic)
        if topic is None or not 0 <= header.queue_id < topic.read_queue_nums:
            answer(ResponseCode.SUCCESS, {"timestamp": "-1"})
            return

        def received(parts: list[Buffer]) -> None:
            if not parts:
                answer(ResponseCode.SYSTEM_ERROR, remark=SERVE_AWAY)
                return
            found = expect(PULL_ANSWER, parts[0])[4]
            time = decode(bytes(parts[2]), check_crc=False).store_timestamp if found else -1
            answer(ResponseCode.SUCCESS, {"timestamp": str(time)})

        def then(low: int, _: int) -> None:
            pull = Pull(0, header.topic.encode(), header.queue_id, low, 1, 1, 0)
            if not self._serve.pull(pull, received):
                answer(ResponseCode.SYSTEM_ERROR, remark=SERVE_AWAY)

        self.bounds(header.topic, header.queue_id, then, answer.refuse)

    # --- single messages

    def query(self, request: Command, answer: Answer) -> None:
        """QUERY_MESSAGE. Raises MalformedFrame, RequestRefused."""
        header = read_header(QueryMessage, request.fields)
        unique = header.unique or header.index_type == _UNIQUE
        op = "query_unique_key" if unique else "query_key"
        if header.index_type == _TAG:
            raise RequestRefused(ResponseCode.QUERY_NOT_FOUND, "there is no index of tags")
        facts = {
            "topic": header.topic,
            "key": header.key,
            "max": UNIQUE_MAX if unique else max(1, header.max_num),
            "begin": max(0, header.begin_timestamp),
            "end": max(0, header.end_timestamp),
        }
        fields = {"indexLastUpdateTimestamp": "0", "indexLastUpdatePhyoffset": "0"}
        self._ask(op, facts, lambda found, rest: _say_records(answer, found, rest, fields))

    def view(self, request: Command, answer: Answer) -> None:
        """VIEW_MESSAGE_BY_ID. Raises MalformedFrame, RequestRefused."""
        header = read_header(ViewMessage, request.fields)

        def told(found: Facts | None, rest: list[Buffer]) -> None:
            try:
                check_record(answer, rest)
            except RequestRefused as refused:
                answer.refuse(refused)
            else:
                _say_records(answer, found, rest, {})

        self.read(header.offset, told)

    def read(self, offset: int, told: Callable[[Facts | None, list[Buffer]], None]) -> None:
        """Asks for the record at an offset of the log. Raises RequestRefused."""
        self._ask("query_offset", {"offset": offset}, told)

    def _ask(self, op: str, facts: Facts, told: Callable[[Facts | None, list[Buffer]], None]) -> None:
        if not self._serve.ask(op, facts, told):
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, SERVE_AWAY)


def check_record(answer: Answer, rest: list[Buffer]) -> None:
    """Raises RequestRefused where the record behind an answer of serve is of a topic that who asked does not read, or
    cannot be read."""
    if answer.permit is None or len(rest) < 2 or not len(rest[1]):
        return
    try:
        record = decode(bytes(rest[1]), check_crc=False)
    except MalformedRecord as error:
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, error.describe()) from None
    answer.check(Act.CONSUME, *topics_of(record))


def _say_offset(answer: Answer, offset: int) -> None:
    answer(ResponseCode.SUCCESS, {"offset": str(offset)})


def _say_records(answer: Answer, found: Facts | None, rest: list[Buffer], fields: dict[str, str]) -> None:
    if found is None:
        answer(ResponseCode.SYSTEM_ERROR, remark=SERVE_AWAY)
    elif "error" in found or len(rest) < 2 or not len(rest[1]):
        answer(ResponseCode.QUERY_NOT_FOUND, remark=str(found.get("sentence", "can not find message")))
    else:
        answer(ResponseCode.SUCCESS, fields, bytes(rest[1]))
