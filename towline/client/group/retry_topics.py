"""Messages that a member could not handle are stored again, in the group's retry or dead-letter topic (spec 10.3)."""

import logging
import random
import threading
from collections.abc import Callable
from typing import Final

from towline.client.admin import AdminClient
from towline.client.errors import AskRefused, MessageTooLarge, PutRefused
from towline.client.link.endpoints import Endpoints
from towline.client.producer import Producer
from towline.errors import IllegalProperty, LinkRefused, MalformedRecord, TopicExists
from towline.format.record.forms import StoredForm, delayed
from towline.format.record.properties import ORIGIN_MESSAGE_ID, RETRY_TOPIC
from towline.format.record.retries import FIRST_LEVEL, TIMES_MAX, sent_back
from towline.format.wire.status import PutStatus
from towline.link.permissions import NotPermitted
from towline.link.signature import KEY_REFUSED
from towline.link.unclosed import call_in_child, renew

from .errors import NotStorable, NoWayBack
from .message import GroupMessage
from .subscription import dead_letter_topic, retry_topic

log = logging.getLogger(__name__)

_NEVER_TAKEN: Final = (PutStatus.MESSAGE_ILLEGAL.name, PutStatus.PROPERTIES_SIZE_EXCEEDED.name)  # at no other moment


class RetryTopics:
    """The producer and the topics for messages that come back, made for the first one. Any thread may use it.

    `endpoint` gives the address of put when it is asked for; `retries_max` how often a message comes again,
    `retry_queues` how many queues the retry topic is made with: copies are spread over those that it has.
    """

    def __init__(
        self,
        group: str,
        cluster: str,
        endpoint: Callable[[], Endpoints],
        retries_max: Callable[[], int],
        retry_queues: Callable[[], int],
        timeout_ms: int,
    ) -> None:
        self._group, self._cluster, self._timeout_ms = group, cluster, timeout_ms
        self._endpoint, self._retries_max, self._retry_queues = endpoint, retries_max, retry_queues
        self._lock = threading.Lock()
        self._producer: Producer | None = None
        self._produces_to: Endpoints = ""
        self._there: set[str] = set()
        call_in_child(self)

    def send(self, message: GroupMessage, level: int | None) -> bool:
        """Stores a copy in the retry topic, or as a dead letter: then the result is False.

        A message becomes a dead letter also when there is no room for the properties of a retry, and is stored without
        those of a dead letter where they do not fit either. Raises NotStorable when the node refuses even the message
        as it came.
        """
        times = message.reconsume_times
        more = {RETRY_TOPIC: message.topic, ORIGIN_MESSAGE_ID: message.origin_message_id}
        dead = dead_letter_topic(self._group)
        tries: list[tuple[str, int, dict[str, str]]] = [(dead, 0, more), (dead, 0, {})]
        if times < self._retries_max() and (level is None or level >= 0):
            tries.insert(0, (retry_topic(self._group), level or FIRST_LEVEL + times, more))
        while True:
            topic, wanted, added = tries.pop(0)
            try:
                self._store(message, topic, wanted, added)
                return wanted > 0
            except NotStorable as error:
                if not tries:
                    raise
                log.error("%r: %s; it becomes a dead letter with less", message, error.describe())

    def _store(self, message: GroupMessage, topic: str, level: int, more: dict[str, str]) -> None:
        """A copy in this topic, after the delay of `level` unless that is 0."""
        producer = self._open(topic)
        queue = random.randrange(max(1, min(producer.route(topic).write_queues, self._queues_of(topic))))
        welcome = producer.welcome
        form = StoredForm(topic, queue, ())
        if level:
            form = delayed(topic, queue, level, int(welcome.get("delay_levels", 18)))
        crc = bool(welcome.get("append_property_crc", False))
        times = min(message.reconsume_times + 1, TIMES_MAX)
        try:
            record = sent_back(message.record, form, more, times, append_property_crc=crc)
            result = producer.send_records(form.topic, form.queue_id, record, 1).result()
        except (IllegalProperty, MalformedRecord, MessageTooLarge) as error:
            raise NotStorable(topic, error.describe()) from None
        except PutRefused as error:
            if error.status not in _NEVER_TAKEN:
                raise
            raise NotStorable(topic, error.describe()) from None
        if not result.acknowledged:
            raise NoWayBack(self._group, f"the copy is stored, but not promised: {result.status.name}")

    def close(self) -> None:
        with self._lock:
            if self._producer is not None:
                self._producer.close()

    def forked(self) -> None:
        renew(self._lock)

    def _queues_of(self, topic: str) -> int:
        """The topic of dead letters has one."""
        return max(1, self._retry_queues()) if topic == retry_topic(self._group) else 1

    def _open(self, topic: str) -> Producer:
        """The producer, when the topic is there."""
        endpoint = self._endpoint()
        with self._lock:
            if self._producer is not None and endpoint != self._produces_to:  # another node is master now
                self._producer.close(flush=False)
                self._producer = None
                self._there.clear()
            if topic not in self._there:
                self._make(endpoint, topic)
                self._there.add(topic)
                if self._producer is None:
                    self._produces_to = endpoint
                    self._producer = Producer(endpoint, name=f"group {self._group}", cluster=self._cluster)
            assert self._producer is not None
            return self._producer

    def _make(self, endpoint: Endpoints, topic: str) -> None:
        """Makes the topic where the key is an admin's; else whoever asks for its route does, with one queue."""
        try:
            with AdminClient(endpoint, cluster=self._cluster, timeout_ms=self._timeout_ms) as admin:
                admin.create_topic(topic, self._queues_of(topic))
        except AskRefused as refused:
            if refused.error not in (TopicExists.__name__, NotPermitted.__name__):
                raise
        except LinkRefused as refused:
            if refused.code != KEY_REFUSED:
                raise
