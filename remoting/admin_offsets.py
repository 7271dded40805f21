"""Offsets of groups as RocketMQ's tools compare and copy them, and what a group reads."""

from collections.abc import Callable, Iterable, Mapping
from itertools import chain
from typing import Any, Final, TypeAlias

from towline.format.remoting.admin_bodies import TimeSpan, time_spans, topic_list
from towline.format.remoting.broker_bodies import correction_offsets, subscription_of_group
from towline.format.remoting.codes import RequestRefused, ResponseCode
from towline.format.remoting.command import Command
from towline.format.remoting.headers import CloneOffsets, CorrectionOffset, OfGroup, TopicOfGroup, read_header
from towline.format.wire.frames import Buffer

from .admin_groups import NONE, refused_by_serve
from .connections import Answer
from .consumers import Consumers
from .questions import Facts, Questions, ask_in_turn, refusal_in
from .readers import SERVE_AWAY
from .store_times import Place, StoreTimes
from .topics import TopicDesk

_UNKNOWN_GROUP: Final = "UNKNOWN_GROUP"
_ABOVE_ALL: Final = (1 << 63) - 1  # the correction of a queue where the group that asks is behind all others
Rows: TypeAlias = list[dict[str, Any]]  # of queues, as serve describes them


class OffsetAdmin:
    """Handles what tools ask about offsets of groups. `where`: `host:port` of this node."""

    def __init__(
        self,
        serve: Questions,
        topics: TopicDesk,
        times: StoreTimes,
        consumers: Consumers,
        group_changed: Callable[..., None],
        wall_ms: Callable[[], int],
        broker: str,
        where: str,
    ) -> None:
        self._serve, self._topics, self._times, self._consumers = serve, topics, times, consumers
        self._group_changed, self._wall_ms = group_changed, wall_ms
        self._broker, self._where = broker, where

    # --- what a group reads

    def topics_of(self, request: Command, answer: Answer) -> None:
        """QUERY_TOPICS_BY_CONSUMER: those of which the group has an offset. Raises MalformedFrame, RequestRefused."""
        group = read_header(OfGroup, request.fields).group

        def told(rows: Rows) -> None:
            names = sorted({str(row["topic"]) for row in rows})
            answer(ResponseCode.SUCCESS, body=topic_list(names, self._where))

        self._stored(group, answer, told)

    def subscription_of(self, request: Command, answer: Answer) -> None:
        """QUERY_SUBSCRIPTION_BY_CONSUMER: the newest that a client of the group told. Raises MalformedFrame."""
        header = read_header(TopicOfGroup, request.fields)
        said = self._consumers.subscription(header.group, header.topic)
        answer(ResponseCode.SUCCESS, body=subscription_of_group(header.group, header.topic, said))

    # --- spans of time

    def spans(self, request: Command, answer: Answer) -> None:
        """QUERY_CONSUME_TIME_SPAN: when the first, the last and the consumed message of each queue were stored, and how
        long the next one waits. Raises MalformedFrame, RequestRefused."""
        header = read_header(TopicOfGroup, request.fields)
        if self._topics.find(header.topic) is None:
            raise RequestRefused(ResponseCode.TOPIC_NOT_EXIST, f"topic[{header.topic}] not exist")

        def bounded(facts: Facts | None, _: list[Buffer]) -> None:
            problem = refusal_in(facts, "serve")
            if facts is None or problem:
                answer(ResponseCode.SYSTEM_ERROR, remark=problem)
                return
            bounds = {int(row["queue"]): (int(row["min"]), int(row["max"])) for row in facts["queues"]}
            self._stored(header.group, answer, lambda rows: consumed(bounds, rows))

        def consumed(bounds: Mapping[int, tuple[int, int]], rows: Rows) -> None:
            at = {int(row["queue"]): int(row["offset"]) for row in rows if row["topic"] == header.topic}
            self._with_times(
                header.topic, {queue: (*ends, at.get(queue, NONE)) for queue, ends in bounds.items()}, answer
            )

        if not self._serve.ask("bounds", {"topic": header.topic}, bounded):
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, SERVE_AWAY)

    def _with_times(self, topic: str, queues: Mapping[int, tuple[int, int, int]], answer: Answer) -> None:
        """`queues`: first offset, end, and the group's, by queue."""

        def found(times: Mapping[Place, int], problem: str) -> None:
            if problem:
                answer(ResponseCode.SYSTEM_ERROR, remark=problem)
                return
            spans = {}
            for queue, (low, end, at) in queues.items():
                first = times.get((topic, queue, low), NONE)
                last = times.get((topic, queue, end - 1), NONE)
                done = times.get((topic, queue, at - 1), NONE) if at > 0 else first
                following = times.get((topic, queue, max(low, at)))
                waits = 0 if following is None else max(0, self._wall_ms() - following)
                spans[topic, queue] = TimeSpan(first, last, done, waits)
            answer(ResponseCode.SUCCESS, body=time_spans(self._broker, spans))

        places = {
            (topic, queue, offset)
            for queue, (low, end, at) in queues.items()
            for offset in (low, end - 1, at - 1, max(low, at))
            if low <= offset < end
        }
        self._times.of(sorted(places), found)

    # --- copies and corrections

    def clone(self, request: Command, answer: Answer) -> None:
        """CLONE_GROUP_OFFSET: sets the offsets of a group to those of another. Raises MalformedFrame,
        RequestRefused."""
        header = read_header(CloneOffsets, request.fields)

        def told(rows: Rows) -> None:
            offsets: dict[str, dict[str, int]] = {}
            for row in rows:
                topic = str(row["topic"])
                if header.topic in ("", topic) and (header.offline or self._reads(header.src_group, topic)):
                    offsets.setdefault(topic, {})[str(row["queue"])] = int(row["offset"])
            if not offsets:
                answer(ResponseCode.SUCCESS)
                return
            for topic in offsets:
                self._group_changed(header.dest_group, topic)
            facts = {"group": header.dest_group, "offsets": offsets}
            if not self._serve.ask("group_commit", facts, committed):
                answer(ResponseCode.SYSTEM_ERROR, remark=SERVE_AWAY)

        def committed(facts: Facts | None, _: list[Buffer]) -> None:
            if facts is None or "error" in facts:
                answer.refuse(refused_by_serve(facts))
            else:
                answer(ResponseCode.SUCCESS)

        self._stored(header.src_group, answer, told)

    def _reads(self, group: str, topic: str) -> bool:
        """Whether a group reads a topic as far as its clients say: where it has none, it does."""
        return not self._consumers.members_of(group) or self._consumers.subscription(group, topic) is not None

    def corrections(self, request: Command, answer: Answer) -> None:
        """QUERY_CORRECTION_OFFSET: of each queue of a topic the least offset of all groups but some; where the group
        that is compared is before that, the greatest number there is. Raises MalformedFrame, RequestRefused."""
        header = read_header(CorrectionOffset, request.fields)
        left_out = set(filter(None, header.filter_groups.split(",")))

        def listed(facts: Facts | None, _: list[Buffer]) -> None:
            if facts is None or "error" in facts:
                answer.refuse(refused_by_serve(facts))
                return
            readers = {str(row["group"]) for row in facts["groups"] if header.topic in row["topics"]}
            counted = sorted(readers - left_out)
            asked = [*counted, *({header.compare_group} & readers)]
            questions = (("group_describe", {"group": group}) for group in asked)
            ask_in_turn(self._serve.ask, questions, lambda found, refused: described(counted, asked, found, refused))

        def described(counted: list[str], asked: list[str], found: list[Facts], refused: Facts | None) -> None:
            if refused is None or "error" in refused:
                answer.refuse(refused_by_serve(refused))
                return
            groups = [[row for row in each["queues"] if row["topic"] == header.topic] for each in found]
            compared = groups.pop() if len(asked) > len(counted) else []
            answer(ResponseCode.SUCCESS, body=correction_offsets(_corrected(groups, compared)))

        if not self._serve.ask("group_list", {}, listed):
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, SERVE_AWAY)

    def _stored(self, group: str, answer: Answer, then: Callable[[Rows], None]) -> None:
        """Asks for the queues of which a group has an offset: none where there is no such group."""

        def told(facts: Facts | None, _: list[Buffer]) -> None:
            if facts is None or facts.get("error") not in (None, _UNKNOWN_GROUP):
                answer.refuse(refused_by_serve(facts))
            else:
                then([row for row in facts.get("queues", ()) if row["offset"] != NONE])

        if not self._serve.ask("group_describe", {"group": group}, told):
            answer(ResponseCode.SYSTEM_ERROR, remark=SERVE_AWAY)


def _corrected(groups: Iterable[Rows], compared: Rows) -> dict[int, int]:
    """The corrections by queue, of the rows of one topic. An offset before the first message counts for nobody else."""
    least: dict[int, int] = {}
    for row in chain.from_iterable(groups):
        queue, at = int(row["queue"]), int(row["offset"])
        if at != NONE and at >= row["min"]:
            least[queue] = min(at, least.get(queue, at))
    behind = {int(row["queue"]) for row in compared if NONE != row["offset"] < least.get(int(row["queue"]), 0)}
    return {queue: _ABOVE_ALL if queue in behind else at for queue, at in least.items()}
