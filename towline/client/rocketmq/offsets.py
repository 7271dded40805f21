"""The offset of a group in a queue: asked for, and set."""

from typing import Final

from towline.format.remoting.codes import RequestCode, ResponseCode
from towline.format.remoting.command import Command
from towline.format.remoting.headers import ConsumerOffset

from .talk import Request, succeeded

UNKNOWN: Final = -1


def query(group: str, topic: str, queue: int) -> Request:
    header = ConsumerOffset(consumer_group=group, topic=topic, queue_id=queue, set_zero_if_not_found=False)
    return Request(RequestCode.QUERY_CONSUMER_OFFSET, header)


def offset_in(answer: Command) -> int:
    """UNKNOWN where the group has none. Raises Refused."""
    return int(answer.fields["offset"]) if succeeded(answer, ResponseCode.QUERY_NOT_FOUND) else UNKNOWN


def update(group: str, topic: str, queue: int, offset: int) -> Request:
    header = ConsumerOffset(consumer_group=group, topic=topic, queue_id=queue, commit_offset=offset)
    return Request(RequestCode.UPDATE_CONSUMER_OFFSET, header)
