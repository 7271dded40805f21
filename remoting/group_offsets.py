"""Offsets of groups, as consumers ask for and commit them: serve keeps them, a slave passes commits on."""

from typing import Any, Final

from towline.format.remoting.codes import RequestRefused, ResponseCode
from towline.format.remoting.command import Command
from towline.format.remoting.headers import ConsumerOffset, read_header
from towline.format.wire.frames import Buffer

from .connections import Answer
from .questions import Facts, Questions, Told, refusal_in
from .readers import SERVE_AWAY, Readers

_NOT_FOUND: Final = -1


class GroupOffsets:
    """Handles what consumers ask about offsets of their groups."""

    def __init__(self, serve: Questions, readers: Readers) -> None:
        self._serve, self._readers = serve, readers

    def offset(self, request: Command, answer: Answer) -> None:
        """QUERY_CONSUMER_OFFSET. Raises MalformedFrame, RequestRefused."""
        header = read_header(ConsumerOffset, request.fields)

        def begins(low: int, high: int) -> None:
            if low == 0 and header.set_zero_if_not_found:
                answer(ResponseCode.SUCCESS, {"offset": "0"})
            else:
                answer(ResponseCode.QUERY_NOT_FOUND, remark="not found: the group has no offset of this queue")

        def told(found: Facts | None, _: list[Buffer]) -> None:
            if found is None:
                answer(ResponseCode.SYSTEM_ERROR, remark=SERVE_AWAY)
                return
            stored = found.get("offsets", {}).get(header.topic, {}).get(str(header.queue_id), _NOT_FOUND)
            if stored != _NOT_FOUND:
                answer(ResponseCode.SUCCESS, {"offset": str(stored)})
                return
            try:
                self._readers.bounds(header.topic, header.queue_id, begins)
            except RequestRefused as refused:
                answer.refuse(refused)

        self._ask("group_offsets", {"group": header.consumer_group, "topics": [header.topic]}, told)

    def update_offset(self, request: Command, answer: Answer) -> None:
        """UPDATE_CONSUMER_OFFSET. Raises MalformedFrame, RequestRefused."""
        header = read_header(ConsumerOffset, request.fields)
        if header.commit_offset < 0:  # clients in Go and Node say so of a queue of which they know no offset
            answer(ResponseCode.SUCCESS)
            return

        def told(found: Facts | None, _: list[Buffer]) -> None:
            problem = refusal_in(found, "serve")
            answer(ResponseCode.SYSTEM_ERROR if problem else ResponseCode.SUCCESS, remark=problem)

        facts = _commit(header.consumer_group, header.topic, header.queue_id, header.commit_offset)
        self._ask("group_commit", facts, told)

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Commits without an answer, as a pull does."""
        if queue_id >= 0:
            self._serve.ask("group_commit", _commit(group, topic, queue_id, offset), lambda found, rest: None)

    def _ask(self, op: str, facts: Facts, told: Told) -> None:
        if not self._serve.ask(op, facts, told):
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, SERVE_AWAY)


def _commit(group: str, topic: str, queue_id: int, offset: int) -> dict[str, Any]:
    return {"group": group, "offsets": {topic: {str(queue_id): offset}}}
