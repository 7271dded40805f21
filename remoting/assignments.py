"""Queues that the node divides among the members of a group, for clients that leave it to the broker; and how a group
reads a topic: by pulls or by pops."""

import json
from typing import Any, Final

from towline.errors import MalformedFrame
from towline.format.remoting.codes import RequestRefused, ResponseCode
from towline.format.remoting.command import Command
from towline.format.remoting.consumers import BROADCASTING
from towline.format.wire.allocation import AVERAGE, CIRCLE, allocate
from towline.format.wire.frames import Buffer
from towline.limits import RETRY_TOPIC_PREFIX

from .connections import Answer
from .consumers import Consumers
from .questions import Facts, Questions, refusal_in
from .readers import SERVE_AWAY
from .topics import TopicDesk

PULL: Final = "PULL"
POP: Final = "POP"
ALL_QUEUES: Final = -1
_STRATEGIES: Final = {"AVG": AVERAGE, "AVG_BY_CIRCLE": CIRCLE}


class Assignments:
    """Handles QUERY_ASSIGNMENT and SET_MESSAGE_REQUEST_MODE."""

    def __init__(self, serve: Questions, topics: TopicDesk, consumers: Consumers, broker: str) -> None:
        self._serve, self._topics, self._consumers, self._broker = serve, topics, consumers, broker

    def set_mode(self, request: Command, answer: Answer) -> None:
        """SET_MESSAGE_REQUEST_MODE. Raises MalformedFrame, RequestRefused."""
        match request.json():
            case {"topic": str(topic), "consumerGroup": str(group), "mode": ("PULL" | "POP") as mode, **more}:
                share = more.get("popShareQueueNum", 0)
            case _:
                raise MalformedFrame(f"a mode has a topic, a consumerGroup and a mode: {PULL} or {POP}")
        if topic.startswith(RETRY_TOPIC_PREFIX):
            raise RequestRefused(ResponseCode.NO_PERMISSION, "retry topic is not allowed to set mode")
        if self._topics.find(topic) is None:
            raise RequestRefused(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist")

        def told(facts: Facts | None, _: list[Buffer]) -> None:
            problem = refusal_in(facts, "serve")
            answer(ResponseCode.SYSTEM_ERROR if problem else ResponseCode.SUCCESS, remark=problem)

        said = {"group": group, "topic": topic, "mode": mode, "share": max(0, share) if type(share) is int else 0}
        self._ask("group_set_mode", said, told)

    def query(self, request: Command, answer: Answer) -> None:
        """QUERY_ASSIGNMENT: no assignment at all, so that the client changes nothing, where the group or the topic is
        not there. Raises MalformedFrame, RequestRefused."""
        match request.json():
            case {"topic": str(topic), "consumerGroup": str(group), "clientId": str(client), **more}:
                strategy = _STRATEGIES.get(str(more.get("strategyName", "AVG")))
                broadcasts = more.get("messageModel") == BROADCASTING
            case _:
                raise MalformedFrame("an assignment is for a topic, a consumerGroup and a clientId")

        def told(facts: Facts | None, _: list[Buffer]) -> None:
            problem = refusal_in(facts, "serve")
            if facts is None or problem:
                answer(ResponseCode.SYSTEM_ERROR, remark=problem)
                return
            mode = str(facts["mode"]) or PULL
            share = int(facts["share"]) if mode == POP else None
            queues = self._queues(topic, group, client, strategy, share, broadcasts=broadcasts)
            rows = None if queues is None else [self._row(topic, queue, mode) for queue in queues]
            answer(ResponseCode.SUCCESS, body=json.dumps({"messageQueueAssignments": rows}).encode())

        self._ask("group_mode", {"group": group, "topic": topic}, told)

    def _queues(
        self, topic: str, group: str, client: str, strategy: str | None, share: int | None, *, broadcasts: bool
    ) -> list[int] | None:
        """The queues of a member; ALL_QUEUES for one that pops from each. `share`: of a member that pops."""
        found = self._topics.find(topic)
        if found is None or strategy is None:
            return None
        every = list(range(found.read_queue_nums))
        if broadcasts:
            return every
        members = sorted(self._consumers.known_members(group))
        if not members:
            return None
        if share is None:
            return allocate(strategy, every, members, client)
        if share == 0 or share >= len(members) - 1:
            return [ALL_QUEUES]
        if client not in members:
            return []
        place = members.index(client)
        if len(members) > len(every):
            return [every[place % len(every)]]
        shared = [members[(place + step) % len(members)] for step in range(share + 1)]
        return sorted({queue for member in shared for queue in allocate(strategy, every, members, member)})

    def _row(self, topic: str, queue: int, mode: str) -> dict[str, Any]:
        place = {"brokerName": self._broker, "queueId": queue, "topic": topic}
        return {"attachments": {}, "messageQueue": place, "mode": mode}

    def _ask(self, op: str, facts: Facts, told: Any) -> None:
        if not self._serve.ask(op, facts, told):
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, SERVE_AWAY)
