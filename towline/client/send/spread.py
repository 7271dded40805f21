"""The choice of a group of nodes for each message, where there are several.

Messages of one sharding key always go to the same group and queue, whether that group has a master or not. Others go to
the groups in turns, a batch each; a group without a master, or without the topic, is skipped while there are others.
"""

import threading
import time
from collections.abc import Sequence
from typing import Final

from towline.client.errors import PutRefused, UnknownGroup
from towline.client.message import Message
from towline.errors import LinkRefused, NoAnswer, TowlineError, UnknownTopic
from towline.format.java_hash import string_hash
from towline.link.unclosed import call_in_child, renew

from .futures import TopicRoute
from .group_session import GroupSession

STARTING_S: Final = 1.0  # before a topic is unknown, although a group has never answered
AGAIN_S: Final = 1.0  # before a group is asked again for a topic that it does not have

Place = tuple[GroupSession, TopicRoute]


class Spread:
    """Chooses among the sessions of a producer. Any thread may use it; the sessions call `linked`."""

    def __init__(self, *, pass_over: bool, timeout_ms: int) -> None:
        self.sessions: Sequence[GroupSession] = ()
        self._pass_over, self._timeout_ms = pass_over, timeout_ms
        self._linked = threading.Event()
        self._current: dict[
            str, tuple[int, int]
        ] = {}  # topic -> place of the session, turns of its route when it began
        self._missing: dict[tuple[str, str], float] = {}  # topic, session -> when it is asked again
        call_in_child(self)

    def linked(self) -> None:
        self._linked.set()

    def forked(self) -> None:
        renew(self._linked)

    def named(self, name: str) -> GroupSession:
        """The session of the group of this name. Raises UnknownGroup."""
        for session in self.sessions:
            if session.name == name:
                return session
        raise UnknownGroup(name, ", ".join(session.name for session in self.sessions))

    def place(self, message: Message, timeout_ms: int | None = None) -> Place:
        """The session and route for this message, within `timeout_ms`, else the time of a delivery.

        Raises what `Producer.route` raises, and UnknownGroup.
        """
        session = self.chosen(message)
        if session is None:
            return self.next_place(message.topic, timeout_ms)
        return session, session.routes.get(message.topic) or session.route(message.topic, timeout_ms)

    def chosen(self, message: Message) -> GroupSession | None:
        """The session that the message's key or `broker_name` chooses. Raises UnknownGroup."""
        if message.broker_name is not None:
            return self.named(message.broker_name)
        if message.sharding_key is not None and message.queue_id is None:
            return self.sessions[abs(string_hash(message.sharding_key)) % len(self.sessions)]
        return None

    def known_place(self, topic: str, session: GroupSession | None) -> Place | None:
        """The route in this session, or in the one in turn, where no node has to be asked or waited for."""
        if session is not None:
            route = session.routes.get(topic)
            return None if route is None else (session, route)
        at = self._turn(topic)
        for place in range(at, at + len(self.sessions)):
            session = self.sessions[place % len(self.sessions)]
            if self._passes_over and not (session.io_thread.is_linked and self._may_have(topic, session)):
                continue
            route = session.routes.get(topic)
            if route is None:
                return None
            self._current[topic] = place % len(self.sessions), route.turns
            return session, route
        return None

    def place_if_known(self, message: Message) -> Place | None:
        """Likewise for this message. Raises UnknownGroup."""
        return self.known_place(message.topic, self.chosen(message))

    def next_place(self, topic: str, timeout_ms: int | None = None) -> Place:
        """The session in turn and its route. Raises what `Producer.route` raises when no group takes the topic."""
        found = self.known_place(topic, None)
        return found or self._next(topic, self._turn(topic), self._timeout_ms if timeout_ms is None else timeout_ms)

    def _turn(self, topic: str) -> int:
        """The place of the session whose turn it is: the one before, until its batch is full."""
        at, turns = self._current.get(topic, (0, 0))
        route = self.sessions[at].routes.get(topic)
        return at if route is None or route.turns == turns else at + 1

    def _next(self, topic: str, at: int, timeout_ms: int) -> Place:
        began = time.monotonic()
        deadline = began + timeout_ms / 1000
        refusal: TowlineError | None = None
        while True:
            closed = self.sessions[0].accumulator.closed
            if closed is not None:
                raise closed
            self._linked.clear()
            trouble: TowlineError | None = None
            for place in range(at, at + len(self.sessions)):
                session = self.sessions[place % len(self.sessions)]
                if self._passes_over and not (session.io_thread.is_linked and self._may_have(topic, session)):
                    continue
                try:
                    route = session.routes.get(topic) or session.route(topic, timeout_ms)
                except (UnknownTopic, PutRefused, NoAnswer, LinkRefused) as error:
                    if not self._passes_over:
                        raise
                    trouble = error
                    refusal = refusal if isinstance(error, NoAnswer) else error
                    self._missing[topic, session.name] = time.monotonic() + AGAIN_S
                    continue
                self._current[topic] = place % len(self.sessions), route.turns
                return session, route
            if refusal is not None and not self._may_come(topic, began):
                raise refusal
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                everywhere = ", ".join(session.io_thread.endpoint for session in self.sessions)
                raise trouble or NoAnswer(everywhere, timeout_ms, "no group has a master")
            self._linked.wait(min(remaining, AGAIN_S))

    @property
    def _passes_over(self) -> bool:
        """A single group is waited for with what it is sent in the buffer."""
        return self._pass_over and len(self.sessions) > 1

    def _may_come(self, topic: str, began: float) -> bool:
        """Whether a group has the topic that is not linked now, or one may have it that was never asked: one that is
        linked by now, or may be in a moment."""
        if any(topic in session.routes for session in self.sessions):
            return True
        starting = time.monotonic() - began < STARTING_S
        unasked = [session for session in self.sessions if (topic, session.name) not in self._missing]
        return any(session.io_thread.is_linked or (starting and not session.welcome) for session in unasked)

    def _may_have(self, topic: str, session: GroupSession) -> bool:
        return self._missing.get((topic, session.name), 0.0) <= time.monotonic()
