"""The groups of nodes that a group consumer reads. In each it is a member with its own queues, offsets and locks.

All groups of nodes share one lock, so a thread that waits for messages waits for all of them; groups take turns.
"""

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from towline.client.columns import Columns
from towline.client.errors import UnknownGroup
from towline.client.read.checks import Checked, Checks, parsed, placed
from towline.clock import boottime_s
from towline.errors import NoAnswer, TowlineError, UnknownTopic

from .fetch_buffer import FetchBuffer
from .member import Member
from .offsets import OffsetsFile
from .queue import Delivery
from .send_backs import SendBacks

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """What a consumer keeps for one group of nodes; `name` is "" where it is the only one."""

    name: str
    member: Member
    buffer: FetchBuffer
    send_backs: SendBacks
    offsets: OffsetsFile | None
    checks: Checks | None  # None where nobody asked for them


class NodeGroups:
    """All groups of nodes of a consumer, whose fetch buffers share `lock`. Any thread may use it."""

    def __init__(self, parts: Sequence[NodeGroup], lock: threading.Condition) -> None:
        self.all = parts
        self.lock = lock
        self._next = 0
        self._out_of_reach: dict[str, TowlineError] = {}

    def named(self, name: str) -> NodeGroup:
        """The group of nodes of this name. Raises UnknownGroup."""
        for node_group in self.all:
            if node_group.name == name or (not name and len(self.all) == 1):
                return node_group
        raise UnknownGroup(name, ", ".join(node_group.name for node_group in self.all))

    def receive(self, deadline: float, *, whole: bool) -> tuple[NodeGroup, Delivery] | None:
        """The next delivery, of the groups of nodes in turn; waits until `deadline`.

        Raises the error that keeps all groups from being read, or a refusal of one.
        """
        if len(self.all) == 1:
            delivery = self.all[0].buffer.receive(deadline, whole=whole)
            return None if delivery is None else (self.all[0], delivery)
        with self.lock:
            for node_group in self.all:
                node_group.buffer.finish_previous()
            while True:
                for _ in self.all:
                    self._next = (self._next + 1) % len(self.all)
                    delivery = self._receive_from(self.all[self._next], whole)
                    if delivery is not None:
                        return self.all[self._next], delivery
                remaining = deadline - boottime_s()
                if remaining <= 0:
                    return None
                self.lock.wait(remaining)

    def each(self, do: Callable[[NodeGroup], object]) -> None:
        """Calls `do` for every group of nodes; raises the first error when all were tried."""
        trouble: TowlineError | None = None
        for node_group in self.all:
            try:
                do(node_group)
            except TowlineError as error:
                trouble = trouble or error
        if trouble is not None:
            raise trouble

    def _receive_from(self, node_group: NodeGroup, whole: bool) -> Delivery | None:
        if node_group.member.is_joined:
            self._out_of_reach.pop(node_group.name, None)
        try:
            return node_group.buffer.receive(0.0, whole=whole)
        except (NoAnswer, UnknownTopic) as error:
            if node_group.name not in self._out_of_reach:
                log.warning("group of nodes %s is not read for now: %s", node_group.name, error.describe())
            self._out_of_reach[node_group.name] = error
            if len(self._out_of_reach) < len(self.all):
                return None
            self._out_of_reach.clear()
            raise


def readable(node_group: NodeGroup, delivery: Delivery) -> Columns | None:
    """The records of a delivery that the member subscribed to, up to a damaged one; None where there are none.

    Raises DamagedMessage, MalformedRecord: then the delivery comes again, until a caller seeks behind it.
    """
    try:
        found = _checked(node_group, delivery)
        if found.damage is not None and found.sound is None:
            raise found.damage
    except TowlineError:
        node_group.buffer.requeue(delivery)
        raise
    if found.damage is not None and found.sound is not None:
        node_group.buffer.split(delivery, found.sound.sizes, found.sound.records, found.damage.queue_offset)
    return found.sound


def _checked(node_group: NodeGroup, delivery: Delivery) -> Checked:
    """The node compares hashes of tags; different tags may share one."""
    answer, queue = delivery.answer, delivery.queue
    found = parsed(answer.sizes, answer.records, queue.topic, queue.queue_id, node_group.name, answer.first)
    if node_group.checks is not None:
        found = placed(found, queue.topic, answer.begins, answer.following, answer.first)
    columns = found.sound
    if columns is not None and int(columns.queue_offset[0]) < answer.first:  # some of it was given before
        columns = _those(columns, columns.queue_offset >= answer.first)
    tags = queue.subscription.tags
    if columns is not None and tags:
        columns = _those(columns, np.fromiter((tag in tags for tag in columns.tags()), np.bool_, len(columns)))
    if columns is None or node_group.checks is None:
        return Checked(columns, found.damage)
    checked = node_group.checks.check(columns, queue.topic)
    return Checked(checked.sound, checked.damage or found.damage)


def _those(columns: Columns, rows: NDArray[np.bool_]) -> Columns | None:
    """None when nothing is left."""
    if rows.all():
        return columns
    return columns.select(rows) if rows.any() else None
