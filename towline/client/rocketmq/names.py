"""The name servers of a cluster: each question goes to one of them, and to the next where that one is gone, says
nothing for a while, or refuses. What is for all of them goes to each.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from towline.format.remoting.codes import ResponseCode
from towline.format.remoting.command import Command
from towline.link.poller import Writing

from .channel import Channel
from .endpoint import RocketmqEndpoint
from .talk import NoNameServer, Request

SILENT_S: Final = 2.0  # before a name server that does not answer is left for the next
_ANSWERS: Final = frozenset({ResponseCode.SUCCESS, ResponseCode.TOPIC_NOT_EXIST, ResponseCode.QUERY_NOT_FOUND})

Outcome = Command | NoNameServer
Done = Callable[[Outcome], None]


@dataclass(slots=True, eq=False)
class _Question:
    """`left`: name servers that it may still go to, by their numbers; `outcome`: what it gets when there are none."""

    request: Request
    done: Done
    left: list[int]
    outcome: Outcome
    since: float = 0.0


class NameServers:
    """Used by one thread. `failed` is called where a name server ends at once: `turn` is due."""

    def __init__(self, endpoint: RocketmqEndpoint, failed: Callable[[], None]) -> None:
        self._known, self._failed = endpoint, failed
        self._count = len(endpoint.name_servers)
        self._first = 0  # the one that answered last
        self._channels: dict[int, Channel] = {}
        self._waiting: dict[int, dict[int, _Question]] = {number: {} for number in range(self._count)}
        self._next_opaque = 0

    @property
    def sources(self) -> list[int | Writing]:
        return [each.source for each in self._channels.values() if each.source is not None]

    def ask(self, request: Request, done: Done) -> None:
        """`done` gets the answer: a refusal where none of them says anything else."""
        nobody = NoNameServer("none has answered yet")
        if request.everywhere:
            gathered = _Gathered(self._count, done)
            for number in range(self._count):
                self._try(_Question(request, gathered.add, [number], nobody))
            return
        order = [(self._first + place) % self._count for place in range(self._count)]
        self._try(_Question(request, done, order, nobody))

    def turn(self) -> None:
        """Takes what came. The next question may be asked meanwhile."""
        for number, channel in list(self._channels.items()):
            for command in channel.turn():
                question = self._waiting[number].pop(command.opaque, None)
                if question is not None:
                    self._answer(number, question, command)
            if channel.trouble:
                self._leave(number, channel.trouble)

    def tend(self, now: float) -> None:
        """Leaves who has been silent for too long."""
        for number, waiting in self._waiting.items():
            if waiting and now - min(each.since for each in waiting.values()) >= SILENT_S:
                self._leave(number, "it says nothing")

    def close(self) -> None:
        for channel in self._channels.values():
            channel.close()
        for waiting in self._waiting.values():
            waiting.clear()

    # --- inside

    def _try(self, question: _Question) -> None:
        if not question.left:
            question.done(question.outcome)
            return
        number = question.left.pop(0)
        channel = self._channel(number)
        self._next_opaque += 1
        question.since = time.monotonic()
        self._waiting[number][self._next_opaque] = question
        if not channel.trouble:
            channel.send(question.request.command(self._next_opaque))
        if channel.trouble:
            self._failed()

    def _channel(self, number: int) -> Channel:
        known = self._channels.get(number)
        if known is not None and not self._waiting[number]:
            known.turn()  # it may have closed an idle connection
            if known.trouble:
                known = None
        if known is None:
            host, port = self._known.name_servers[number]
            known = self._channels[number] = Channel(host, port, self._known.credentials, self._known.tls)
        return known

    def _answer(self, number: int, question: _Question, command: Command) -> None:
        if command.code in _ANSWERS:
            self._first = number
            question.done(command)
        else:
            question.outcome = command
            self._try(question)

    def _leave(self, number: int, trouble: str) -> None:
        channel = self._channels.pop(number)
        channel.close()
        waiting, self._waiting[number] = self._waiting[number], {}
        for question in waiting.values():
            if isinstance(question.outcome, NoNameServer):  # else another one has refused, and said why
                question.outcome = NoNameServer(f"{channel.address}: {trouble}")
            self._try(question)


class _Gathered:
    """The answers of all: `done` gets a success where there is one, else a refusal, else that nobody answers."""

    def __init__(self, count: int, done: Done) -> None:
        self._left, self._done = count, done
        self._outcomes: list[Outcome] = []

    def add(self, outcome: Outcome) -> None:
        self._outcomes.append(outcome)
        if len(self._outcomes) == self._left:
            self._done(min(self._outcomes, key=_rank))


def _rank(outcome: Outcome) -> int:
    if isinstance(outcome, NoNameServer):
        return 2
    return int(outcome.code != ResponseCode.SUCCESS)
