"""What of a piece of a queue is handed out: what the member subscribed to, as it was stored."""

import numpy as np
from numpy.typing import NDArray

from towline.client.columns import Columns
from towline.client.read.checks import Checked, parsed, placed
from towline.errors import TowlineError

from .parts import Part
from .queue import Handed


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
