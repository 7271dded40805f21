"""Rows that are delivered later: where their records stand until then, and what those carry. Needs no Spark.

A row with a `delayLevel` or a `deliverAt` is a record of a system topic in a form (`towline.format.record.forms`),
which names the topic and queue that it is for. There it stays, delivered or not: so that is where an earlier attempt's
rows are looked for.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from towline.client.send.forms import DelayLimits
from towline.format.record.forms import SCHEDULE_TOPIC, TIMER_TOPIC, StoredForm, delayed, timed
from towline.format.record.properties import encode

from .errors import UnwritableRow

LEVEL, AT = "delayLevel", "deliverAt"
NO_LEVEL: Final = 0  # as with RocketMQ: delivered at once
_NEVER: Final = -1
_S: Final = 1000  # ms

Integers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Part:
    """Rows whose records stand in one topic; `queue_ids` are of that topic, `pairs` what their form adds."""

    topic: str
    rows: Integers
    queue_ids: Integers
    pairs: list[bytes] | None = None  # None: they are in no form


def has_delays(batch: pa.RecordBatch) -> bool:
    return LEVEL in batch.schema.names or AT in batch.schema.names


def stored_topics(batch: pa.RecordBatch, topic: str) -> list[tuple[str, Integers]]:
    """The topics in which the records of rows for `topic` stand, each with its rows. Raises UnwritableRow."""
    levels, times = _delays(batch)
    plain = (levels == NO_LEVEL) & (times == _NEVER)
    kinds = ((topic, plain), (SCHEDULE_TOPIC, levels > NO_LEVEL), (TIMER_TOPIC, times >= 0))
    return [(name, np.flatnonzero(are)) for name, are in kinds if are.any()]


def parts_of(batch: pa.RecordBatch, topic: str, queue_ids: Integers, limits: DelayLimits, now_ms: int) -> list[Part]:
    """The rows by the topic where their records stand. `now_ms` is the node's clock. Raises UnwritableRow for both
    columns in a row, a level or time that cannot be, and a time that is too far away."""
    levels, times = _delays(batch)
    far = times > now_ms + limits.timer_max_sec * _S
    if far.any():
        why = f"{AT} is more than timer_max_delay_sec ({limits.timer_max_sec} s) away"
        raise UnwritableRow(int(far.argmax()), why)
    parts = []
    for stored, rows in stored_topics(batch, topic):
        if stored == SCHEDULE_TOPIC:
            parts.append(_formed(rows, queue_ids, levels, lambda queue, at: delayed(topic, queue, at, limits.levels)))
        elif stored == TIMER_TOPIC:
            parts.append(_formed(rows, queue_ids, times, lambda queue, at: timed(topic, queue, at)))
        else:
            parts.append(Part(topic, rows, queue_ids[rows]))
    return parts


def _formed(rows: Integers, queue_ids: Integers, delays: Integers, form: Callable[[int, int], StoredForm]) -> Part:
    """Each form that there is, made once."""
    places, which = np.unique(np.stack([queue_ids[rows], delays[rows]]), axis=1, return_inverse=True)
    which = which.reshape(-1)  # numpy 2.0.0 gives it the shape of the pairs
    forms = [form(queue, delay) for queue, delay in places.T.tolist()]
    pairs = [encode(each.pairs) for each in forms]
    queues = np.array([each.queue_id for each in forms], dtype=np.int64)
    return Part(forms[0].topic, rows, queues[which], [pairs[each] for each in which.tolist()])


def _delays(batch: pa.RecordBatch) -> tuple[Integers, Integers]:
    """Of each row its level, NO_LEVEL without one, and its time in ms, _NEVER without one. Raises UnwritableRow."""
    levels, times = _column(batch, LEVEL, NO_LEVEL), _column(batch, AT, _NEVER)
    given = np.zeros(batch.num_rows, dtype=bool)
    if AT in batch.schema.names:
        given = np.asarray(pc.is_valid(batch[AT]))
    for wrong, why in (
        (levels < 0, f"{LEVEL} is negative: a level is a number from 1 on, 0 is no delay"),
        (given & (times <= 0), f"{AT} is not after 1970"),
        (given & (levels > 0), f"it has a {LEVEL} and a {AT}: one of them says when"),
    ):
        if wrong.any():
            raise UnwritableRow(int(wrong.argmax()), why)
    return levels, times


def _column(batch: pa.RecordBatch, name: str, otherwise: int) -> Integers:
    if name not in batch.schema.names:
        return np.full(batch.num_rows, otherwise, dtype=np.int64)
    found: Integers = pc.fill_null(batch[name].cast(pa.int64()), otherwise).to_numpy(zero_copy_only=False)
    return found
