"""The groups of nodes that a member reads: in each it is a member of its own, with its own queues, offsets and locks.

What their I/O threads fetch is handed out in turns, under one lock: who waits for messages waits for all of them.
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

from .fetch_buffer import Shelf
from .member import Member
from .offsets import OffsetsFile
from .queue import Handed
from .retry_topics import WayBack

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Part:
    """What there is for one group of nodes; `name` is "" where it is the only one."""

    name: str
    member: Member
    shelf: Shelf
    back: WayBack
    offsets: OffsetsFile | None
    checks: Checks | None  # None where nobody asked for them


class Parts:
    """Any thread may use it. Every shelf has the lock `lock`."""

    def __init__(self, parts: Sequence[Part], lock: threading.Condition) -> None:
        self.all = parts
        self.lock = lock
        self._turn = 0
        self._away: dict[str, TowlineError] = {}

    def named(self, name: str) -> Part:
        """Raises UnknownGroup."""
        for part in self.all:
            if part.name == name or (not name and len(self.all) == 1):
                return part
        raise UnknownGroup(name, ", ".join(part.name for part in self.all))

    def take(self, deadline: float, *, whole: bool) -> tuple[Part, Handed] | None:
        """The next piece of a queue, of the group whose turn it is; waits until `deadline`. Raises what keeps all of
        them from being read, or what one of them refuses."""
        if len(self.all) == 1:
            handed = self.all[0].shelf.take(deadline, whole=whole)
            return None if handed is None else (self.all[0], handed)
        with self.lock:
            for part in self.all:
                part.shelf.settle()
            while True:
                for _ in self.all:
                    self._turn = (self._turn + 1) % len(self.all)
                    handed = self._take_from(self.all[self._turn], whole)
                    if handed is not None:
                        return self.all[self._turn], handed
                remaining = deadline - boottime_s()
                if remaining <= 0:
                    return None
                self.lock.wait(remaining)

    def each(self, do: Callable[[Part], object]) -> None:
        """For every group; the first error is raised when all were tried."""
        trouble: TowlineError | None = None
        for part in self.all:
            try:
                do(part)
            except TowlineError as error:
                trouble = trouble or error
        if trouble is not None:
            raise trouble

    def _take_from(self, part: Part, whole: bool) -> Handed | None:
        if part.member.is_joined:
            self._away.pop(part.name, None)
        try:
            return part.shelf.take(0.0, whole=whole)
        except (NoAnswer, UnknownTopic) as error:
            if part.name not in self._away:
                log.warning("group of nodes %s is not read for now: %s", part.name, error.describe())
            self._away[part.name] = error
            if len(self._away) < len(self.all):
                return None
            self._away.clear()
            raise


def readable(part: Part, handed: Handed) -> Columns | None:
    """Up to a damaged message, which is met when it comes on its own; None where nothing is wanted.

    Raises DamagedMessage, MalformedRecord: then the piece comes again, until somebody seeks behind it.
    """
    try:
        found = _checked(part, handed)
        if found.damage is not None and found.sound is None:
            raise found.damage
    except TowlineError:
        part.shelf.refuse(handed)
        raise
    if found.damage is not None and found.sound is not None:
        part.shelf.cut(handed, found.sound.sizes, found.sound.records, found.damage.queue_offset)
    return found.sound


def _checked(part: Part, handed: Handed) -> Checked:
    """The node compares hashes of tags; different tags may share one."""
    answer, queue = handed.answer, handed.queue
    found = parsed(answer.sizes, answer.records, queue.topic, queue.queue_id, part.name, answer.first)
    if part.checks is not None:
        found = placed(found, queue.topic, answer.begins, answer.following, answer.first)
    columns = found.sound
    if columns is not None and int(columns.queue_offset[0]) < answer.first:  # some of it was given before
        columns = _those(columns, columns.queue_offset >= answer.first)
    tags = queue.subscription.tags
    if columns is not None and tags:
        columns = _those(columns, np.fromiter((tag in tags for tag in columns.tags()), np.bool_, len(columns)))
    if columns is None or part.checks is None:
        return Checked(columns, found.damage)
    checked = part.checks.check(columns, queue.topic)
    return Checked(checked.sound, checked.damage or found.damage)


def _those(columns: Columns, rows: NDArray[np.bool_]) -> Columns | None:
    """None when nothing is left."""
    if rows.all():
        return columns
    return columns.select(rows) if rows.any() else None
