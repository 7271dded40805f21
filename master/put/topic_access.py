"""Which queues a put may write to: those of clients by their forms (`towline.format.record.forms`), and system
queues."""

from typing import Final

from towline.format.record.forms import (
    HALF_TOPIC,
    OP_TOPIC,
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
    TRANS_CHECK_TOPIC,
    Form,
    form_of,
)
from towline.format.wire.frames import Group
from towline.kernels.base.forms import Reals, RealTopics

from .topics import Topics

_SYSTEM_QUEUES: Final = {  # topics that the node's own processes write to; SCHEDULE_TOPIC_XXXX has a queue per level
    HALF_TOPIC.encode(): 1,
    OP_TOPIC.encode(): 1,
    TRANS_CHECK_TOPIC.encode(): 1,
    TIMER_TOPIC.encode(): 2,
}
CANCEL_MARGIN_MS: Final = 50  # a cancellation that is stored stands in the log before schedule looks at that time
_S: Final = 1000  # ms


class TopicAccess:
    """Looked up once per group. The kernel's table of topics is built again when topics change."""

    def __init__(self, topics: Topics, *, levels: int, timer_max_delay_sec: int) -> None:
        self._topics = topics
        self._levels = levels
        self._timer_max_ms = timer_max_delay_sec * _S
        self._system_queues = {**_SYSTEM_QUEUES, SCHEDULE_TOPIC.encode(): levels}
        self._reals = RealTopics()
        self._clients_seen: object = None

    def form(self, group: Group) -> Form:
        return form_of(group.topic, group.queue_id, self._levels)

    def queues(self, group: Group, *, trusted: bool) -> int:
        """The number of queues that the sender may write to; 0 if it may not, -1 for an unknown topic.

        A process of the node (`trusted`) also delivers to topics that have become read-only meanwhile.
        """
        if not trusted:
            return self._topics.write_queues(group.topic)
        if group.topic in self._system_queues:
            return self._system_queues[group.topic]
        topic = self._topics.get(group.topic.decode("utf-8", "replace"))
        return -1 if topic is None else max(topic.write_queue_nums, topic.read_queue_nums)

    def reals(self, now_ms: int) -> Reals:
        """The real topics and time bounds of a request that is stored now."""
        clients = self._topics.client_queues
        if clients is not self._clients_seen:
            self._reals.replace(clients)
            self._clients_seen = clients
        return self._reals.at(now_ms + CANCEL_MARGIN_MS, now_ms + self._timer_max_ms)
