"""Requests and who handles them."""

from collections.abc import Callable, Mapping
from typing import TypeAlias

from towline.errors import MalformedFrame
from towline.format.remoting.codes import RequestRefused, ResponseCode
from towline.format.remoting.command import Command, decode, frame_size
from towline.runtime.positions import Counter, DutyLine

from .access import Access
from .connections import Answer, Connection, Connections

Handle: TypeAlias = Callable[[Command, Answer], None]
Handler: TypeAlias = Callable[[Connection, Command, Answer], None]


class Requests:
    """Gives each request to its handler, which may raise MalformedFrame and RequestRefused. Requests are counted here,
    refusals where they are answered."""

    def __init__(
        self,
        connections: Connections,
        line: DutyLine,
        access: Access,
        handlers: Mapping[int, Handler],
        other: Handler,
        answered: Callable[[Connection, Command], None] = lambda connection, answer: None,
    ) -> None:
        """`other` handles what no handler is for; `answered` gets what clients answer."""
        self._access, self._answered = access, answered
        self._connections, self._line, self._handlers, self._other = connections, line, handlers, other

    def take(self, connection: Connection, data: bytes) -> int:
        """Handles the whole frames that `data` begins with, while the client reads; returns how many bytes they are.

        Raises MalformedFrame.
        """
        at = 0
        while not connection.is_behind and (size := frame_size(data, at)) and at + size <= len(data):
            self.handle(connection, data[at : at + size])
            at += size
        return at

    def handle(self, connection: Connection, frame: bytes) -> None:
        """Handles one frame. Raises MalformedFrame for what is none."""
        request = decode(frame)
        answer = Answer(self._connections, connection, request)
        if request.is_answer:
            self._answered(connection, request)
            return
        self._line.count(Counter.MESSAGES)
        handler = self._handlers.get(request.code, self._other)

        def checked() -> None:
            self._access.check(request, connection)
            answer.judged_by(connection.permit)
            handler(connection, request, answer)

        self.attempt(checked, answer)

    def look_for_changes(self, now_ms: int) -> list[Connection]:
        """Ends connections whose key was revoked; returns those whose key may do something else by now."""
        return self._access.look_for_changes(self._connections, now_ms)

    def attempt(self, handle: Callable[[], None], answer: Answer) -> None:
        """Handles a request, now or later, and answers with the reason where it is refused."""
        try:
            handle()
        except RequestRefused as refused:
            answer.refuse(refused)
        except MalformedFrame as error:
            answer(ResponseCode.SYSTEM_ERROR, remark=error.describe())


def alone(handle: Handle) -> Handler:
    """A handler that does not care from whom a request comes."""

    def handler(_: Connection, request: Command, answer: Answer) -> None:
        handle(request, answer)

    return handler
