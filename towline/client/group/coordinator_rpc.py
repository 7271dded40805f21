"""Requests of a group member to the node that coordinates the group, without blocking on an answer.

A task is a generator: it yields a question and is sent the reply, or has the refusal thrown into it. Tasks are closed
when their link is lost; the I/O thread, which alone uses this module, starts them again when they are due.
"""

from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from towline.client.link.connection import Connection
from towline.client.link.endpoints import Endpoints, masters
from towline.client.link.rpc import Reply, encode_ask, read_answer
from towline.clock import boottime_s
from towline.errors import TowlineError
from towline.format.wire.frames import ANSWER, Buffer, Kind, expect, kind_of
from towline.link.context import close_context, new_context
from towline.link.poller import Poller
from towline.link.waker import Waker
from towline.link.wire import Link

from .replica_reader import ReplicaReader

ANSWER_S: Final = 5.0  # an answer that is later than this, and than the node may hold it, means a dead link


@dataclass(frozen=True, slots=True)
class Question:
    """A question to the node; `held_s` is how long the node may wait before it answers."""

    op: str
    facts: dict[str, Any]
    held_s: float = 0.0


Task: TypeAlias = Generator[Question, Reply, None]


@dataclass(slots=True)
class _Asked:
    name: str
    task: Task
    question: Question
    deadline: float


class CoordinatorRpc:
    def __init__(self, endpoints: Endpoints | Callable[[], Endpoints], facts: Mapping[str, str]) -> None:
        self.waker = Waker()
        self._context = new_context()
        self._poller = Poller(self.waker.fileno())
        self.connection = Connection(self._context, endpoints, facts, self._poller, masters)
        self.replica = ReplicaReader(self._context, endpoints, facts, self._poller, self.connection)
        self._asked: dict[int, _Asked] = {}
        self._running: set[str] = set()
        self._next_id = 0
        self.heard = boottime_s()  # when the node answered last

    @property
    def link(self) -> Link | None:
        """The greeted link; None while there is none."""
        link = self.connection.link
        return link if link is not None and self.connection.is_open and not link.lost else None

    def new_id(self) -> int:
        self._next_id += 1
        return self._next_id

    def runs(self, name: str) -> bool:
        return name in self._running

    def start(self, name: str, task: Task) -> None:
        """Starts a task; at most one task of a name runs. Raises what the task raises."""
        if name in self._running:
            task.close()
            return
        self._running.add(name)
        self._resume(name, task, None)

    def wait(self, timeout_s: float) -> None:
        """Waits for an answer, or for `Waker.wake`."""
        self._poller.poll(max(0, int(timeout_s * 1000) + 1))
        self.waker.drain()

    def receive(self, link: Link) -> Iterator[list[Buffer]]:
        """Messages that are not answers to questions. Raises LinkRefused, MalformedFrame, and what a task raises."""
        while (parts := link.receive()) is not None:
            self.heard = boottime_s()
            if kind_of(parts[0]) == Kind.ANSWER:
                self._answered(parts)
            else:
                yield parts

    def is_late(self, now: float) -> bool:
        return any(asked.deadline <= now for asked in self._asked.values())

    def disconnect(self, learned: tuple[str, ...] = ()) -> None:
        """Closes the link and all tasks that wait for an answer over it."""
        if self.connection.is_open:
            self.connection.move_on(learned)
            self.replica.drop()
        asked, self._asked = self._asked, {}
        self._running.clear()
        for each in asked.values():
            each.task.close()

    def close(self) -> None:
        self.disconnect()
        self.replica.drop()
        self.connection.close()
        self.waker.close()
        close_context(self._context)

    def _answered(self, parts: list[Buffer]) -> None:
        asked = self._asked.pop(int(expect(ANSWER, parts[0])[2]), None)
        if asked is None:
            return
        try:
            answer: Reply | TowlineError = read_answer(asked.question.op, asked.question.facts, parts)
        except TowlineError as error:
            answer = error
        self._resume(asked.name, asked.task, answer)

    def _resume(self, name: str, task: Task, answer: Reply | TowlineError | None) -> None:
        try:
            if answer is None:
                question = next(task)
            else:
                question = task.throw(answer) if isinstance(answer, TowlineError) else task.send(answer)
        except StopIteration:
            self._running.discard(name)
            return
        except TowlineError:
            self._running.discard(name)
            raise
        link, request_id = self.link, self.new_id()
        if link is None or not link.send(encode_ask(request_id, question.op, question.facts)):
            self._running.discard(name)
            task.close()
            return
        self._asked[request_id] = _Asked(name, task, question, boottime_s() + ANSWER_S + question.held_s)
