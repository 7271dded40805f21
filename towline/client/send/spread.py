"""Which group of nodes a message goes to, where there are several.

Messages of one sharding key go to one group and one queue of it, whether that group has a master or not. The others
take turns: a batch to one group, the next to another, and a group without a master, or without the topic, is passed
over while there are others.
"""

import threading
import time
from collections.abc import Sequence
from typing import Final

from towline.client.errors import PutRefused, UnknownGroup
from towline.client.message import Message
from towline.errors import LinkRefused, NoAnswer, TowlineError, UnknownTopic
from towline.format.java_hash import string_hash
from towline.link.unclosed import renew, tell_child

from .futures import TopicRoute
from .group_session import Lane

AGAIN_S: Final = 1.0  # before a group is asked again for a topic that it does not have

Place = tuple[Lane, TopicRoute]


class Spread:
    """Any thread may use it; `linked` is for the lanes to call."""

    def __init__(self, *, pass_over: bool, timeout_ms: int) -> None:
        self.lanes: Sequence[Lane] = ()
        self._pass_over, self._timeout_ms = pass_over, timeout_ms
        self._linked = threading.Event()
        self._turns: dict[str, tuple[int, int]] = {}  # topic -> place of the lane, turns of its route when it began
        self._missing: dict[tuple[str, str], float] = {}  # topic, lane -> when it is asked again
        tell_child(self)

    def linked(self) -> None:
        self._linked.set()

    def forked(self) -> None:
        renew(self._linked)

    def named(self, name: str) -> Lane:
        """Raises UnknownGroup."""
        for lane in self.lanes:
            if lane.name == name:
                return lane
        raise UnknownGroup(name, ", ".join(lane.name for lane in self.lanes))

    def place(self, message: Message) -> Place:
        """Raises what `Producer.route` raises, and UnknownGroup."""
        if message.broker_name is not None:
            lane = self.named(message.broker_name)
        elif message.sharding_key is not None and message.queue_id is None:
            lane = self.lanes[abs(string_hash(message.sharding_key)) % len(self.lanes)]
        else:
            return self.turn(message.topic)
        return lane, lane.routes.get(message.topic) or lane.route(message.topic)

    def turn(self, topic: str) -> Place:
        """The lane whose turn it is. Raises what `Producer.route` raises when no group takes the topic."""
        at, turns = self._turns.get(topic, (0, 0))
        lane = self.lanes[at]
        route = lane.routes.get(topic)
        if route is not None and route.turns == turns and (lane.sender.is_linked or not self._pass_over):
            return lane, route
        return self._next(topic, at if route is None else at + 1)

    def _next(self, topic: str, at: int) -> Place:
        deadline = time.monotonic() + self._timeout_ms / 1000
        while True:
            closed = self.lanes[0].accumulator.closed
            if closed is not None:
                raise closed
            self._linked.clear()
            trouble: TowlineError | None = None
            for place in range(at, at + len(self.lanes)):
                lane = self.lanes[place % len(self.lanes)]
                if self._pass_over and not (lane.sender.is_linked and self._may_have(topic, lane)):
                    continue
                try:
                    route = lane.routes.get(topic) or lane.route(topic)
                except (UnknownTopic, PutRefused, NoAnswer, LinkRefused) as error:
                    if not self._pass_over:
                        raise
                    trouble = error
                    self._missing[topic, lane.name] = time.monotonic() + AGAIN_S
                    continue
                self._turns[topic] = place % len(self.lanes), route.turns
                return lane, route
            if trouble is not None and not isinstance(trouble, NoAnswer):
                raise trouble
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                everywhere = ", ".join(lane.sender.endpoint for lane in self.lanes)
                raise trouble or NoAnswer(everywhere, self._timeout_ms, "no group has a master")
            self._linked.wait(min(remaining, AGAIN_S))

    def _may_have(self, topic: str, lane: Lane) -> bool:
        return self._missing.get((topic, lane.name), 0.0) <= time.monotonic()
