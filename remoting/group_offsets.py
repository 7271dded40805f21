"""Offsets of groups, as consumers ask for and commit them: serve keeps them, a slave passes commits on.

What a pull commits goes there a moment later, with what others have committed, and before anything else is asked.
"""

from typing import Any, Final

from towline.errors import UnknownTopic
from towline.format.remoting.codes import RequestRefused, ResponseCode
from towline.format.remoting.command import Command
from towline.format.remoting.headers import ConsumerOffset, read_header
from towline.format.wire.frames import Buffer

from .connections import Answer
from .questions import Facts, Questions, Told, refusal_in
from .readers import SERVE_AWAY, Readers

COMMIT_MS: Final = 50  # a pull's commit is with serve this late
COMMITS_MAX: Final = 4_096  # queues of groups that wait
_NOT_FOUND: Final = -1
_NONE_YET: Final = ("UNKNOWN_GROUP", UnknownTopic.__name__)  # refusals that say that there is no offset


class GroupOffsets:
    """Handles what consumers ask about offsets of their groups."""

    def __init__(self, serve: Questions, readers: Readers) -> None:
        self._serve, self._readers = serve, readers
        self._waiting: dict[str, dict[str, dict[str, int]]] = {}  # offsets by group, topic and queue
        self._count = 0
        self._due_ms = 0
        serve.before(self.flush)

    @property
    def are_due(self) -> bool:
        """Whether commits wait."""
        return bool(self._waiting)

    def cycle(self, now_ms: int) -> None:
        """Passes on what waits."""
        if self._waiting and now_ms >= self._due_ms:
            self._due_ms = now_ms + COMMIT_MS
            self.flush()

    def flush(self) -> None:
        """Passes on what waits, at once."""
        waiting, self._waiting, self._count = self._waiting, {}, 0
        for group, offsets in waiting.items():
            self._serve.ask("group_commit", {"group": group, "offsets": offsets}, lambda found, rest: None)

    def offset(self, request: Command, answer: Answer) -> None:
        """QUERY_CONSUMER_OFFSET. Raises MalformedFrame, RequestRefused."""
        header = read_header(ConsumerOffset, request.fields)

        def begins(low: int, high: int) -> None:
            if low == 0 and header.set_zero_if_not_found:
                answer(ResponseCode.SUCCESS, {"offset": "0"})
            else:
                answer(ResponseCode.QUERY_NOT_FOUND, remark="not found: the group has no offset of this queue")

        def told(found: Facts | None, _: list[Buffer]) -> None:
            problem = refusal_in(found, "serve")
            if found is None or (problem and found["error"] not in _NONE_YET):
                answer(ResponseCode.SYSTEM_ERROR, remark=problem)  # not known: who takes it for none skips messages
                return
            stored = found.get("offsets", {}).get(header.topic, {}).get(str(header.queue_id), _NOT_FOUND)
            if stored != _NOT_FOUND:
                answer(ResponseCode.SUCCESS, {"offset": str(stored)})
                return
            try:
                self._readers.bounds(header.topic, header.queue_id, begins, answer.refuse)
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
        if queue_id < 0:
            return
        offsets = self._waiting.setdefault(group, {}).setdefault(topic, {})
        self._count += str(queue_id) not in offsets
        offsets[str(queue_id)] = offset
        if self._count >= COMMITS_MAX:
            self.flush()

    def _ask(self, op: str, facts: Facts, told: Told) -> None:
        if not self._serve.ask(op, facts, told):
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, SERVE_AWAY)


def _commit(group: str, topic: str, queue_id: int, offset: int) -> dict[str, Any]:
    return {"group": group, "offsets": {topic: {str(queue_id): offset}}}
