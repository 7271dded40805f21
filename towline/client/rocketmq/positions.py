"""Where queues begin and end, and what stood in them at a time."""

from collections.abc import Generator, Mapping
from typing import Any

from towline.errors import UnknownTopic
from towline.format.remoting.codes import RequestCode, ResponseCode
from towline.format.remoting.command import Command
from towline.format.remoting.fastjson import loads
from towline.format.remoting.headers import OfTopic, QueueOfTopic, SearchOffset
from towline.format.remoting.routes import QueueData, read_route

from .talk import Request, Session, Step, Talk, succeeded

READ, WRITE = 4, 2  # of a topic's `perm`


def queues_of(session: Session, topic: str) -> Generator[Step, list[Command], QueueData]:
    """The topic's queues at this broker. Raises UnknownTopic."""
    (answer,) = yield [Request(RequestCode.GET_ROUTEINFO_BY_TOPIC, OfTopic(topic=topic), names=True)]
    if succeeded(answer, ResponseCode.TOPIC_NOT_EXIST):
        for row in read_route(loads(answer.body)):
            if row.broker == session.broker:
                return row
    raise UnknownTopic(topic)


def first_of(topic: str, queue: int, start: str | int) -> Generator[Step, list[Command], int]:
    """The offset at which a reader begins: first, last, or a time in ms."""
    if isinstance(start, str):
        code = RequestCode.GET_MIN_OFFSET if start == "first" else RequestCode.GET_MAX_OFFSET
        (answer,) = yield [Request(code, QueueOfTopic(topic=topic, queue_id=queue))]
    else:
        (answer,) = yield [_search(topic, queue, start, "lower")]
    succeeded(answer)
    return int(answer.fields["offset"])


def bounds_of(topic: str, count: int) -> Generator[Step, list[Command], list[tuple[int, int]]]:
    """The lowest offset and the end of each queue."""
    if not count:
        return []
    codes = (RequestCode.GET_MIN_OFFSET, RequestCode.GET_MAX_OFFSET)
    places = [QueueOfTopic(topic=topic, queue_id=queue) for queue in range(count)]
    answers = yield [Request(code, place) for place in places for code in codes]
    for answer in answers:
        succeeded(answer)
    numbers = [int(answer.fields["offset"]) for answer in answers]
    return list(zip(numbers[::2], numbers[1::2], strict=True))


def bounds(session: Session, facts: Mapping[str, Any]) -> Talk:
    topic = facts["topic"]
    known = yield from queues_of(session, topic)
    found = yield from bounds_of(topic, known.read_queues)
    rows = [{"queue": queue, "min": low, "max": end} for queue, (low, end) in enumerate(found)]
    return {"topic": topic, "queues": rows}, b""


def offset_by_time(_: Session, facts: Mapping[str, Any]) -> Talk:
    (answer,) = yield [_search(facts["topic"], facts["queue"], facts["time"], facts["boundary"])]
    succeeded(answer)
    return {"offset": int(answer.fields["offset"])}, b""


def _search(topic: str, queue: int, when: int, boundary: str) -> Request:
    header = SearchOffset(topic=topic, queue_id=queue, timestamp=when, boundary_type=boundary.upper())
    return Request(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header)
