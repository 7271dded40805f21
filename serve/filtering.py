"""Pulls with an expression: SQL92 over the stored properties, many records at a time (spec 7.3, 10.2).

An expression is compiled once. Where the queue has extension units, a record's bitmap may tell that it does
not match, without a look at the log: if the record was stored after the group's subscription was born.
"""

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from towline.errors import Remedy, TowlineError
from towline.filter.bloom import Bloom
from towline.filter.sql import Expression
from towline.filter.sql import compile as compile_sql
from towline.filter.subscriptions import FilterData
from towline.format.record.columns import parts_of
from towline.format.wire.frames import Pull
from towline.limits import KIB
from towline.runtime.settings import Settings

from .extension import Extension
from .selection import Bytes, Entries, Integers, Mask

EVALUATED_MAX: Final = 8_192  # plain messages that one pull evaluates, while everybody else waits
PLAIN_SIZE: Final = 256  # bytes of properties of such a message; with more it counts for several
PLAIN_CONDITIONS: Final = 8  # conditions that are evaluated for it
COPIED_SIZE_MAX: Final = 2 * KIB  # mean size of records that are copied whole for their properties

Subscription = Callable[[str, str], FilterData | None]


class PropertyFilterDisabled(TowlineError, remedy=Remedy.FIX_SETTINGS):
    template = "this node does not filter by properties: enable_property_filter is off"
    advice = "set enable_property_filter and restart the node, or filter by tags"


class PropertyFilter:
    """What the expression of one pull lets through."""

    def __init__(self, expression: Expression, extension: Extension | None, data: FilterData | None) -> None:
        self._expression = expression
        self._extension = extension
        self._data = data
        self._left = EVALUATED_MAX

    def possible(self, pull: Pull, entries: Entries, rows: Mask) -> Mask:
        """`rows` without the entries whose bitmap says that they do not match.

        That of no record speaks for a subscription that is pending: none is newer than its birth.
        """
        data, extension = self._data, self._extension
        if data is None or extension is None or not rows.any():
            return rows
        return rows & ~extension.ruled_out(pull.topic.decode(), pull.queue_id, entries, data)

    def keep(self, segment: Bytes, starts: Integers, sizes: Integers) -> Mask:
        """Which of the first records match: of as many as are left to this pull, at first of one at least.

        They begin at these bytes of the segment. Raises MalformedRecord.
        """
        properties, ends = parts_of(segment, starts, sizes).properties_start, starts + sizes
        conditions = self._expression.conditions // PLAIN_CONDITIONS
        costs = np.cumsum(np.maximum(1, (ends - properties) // PLAIN_SIZE + conditions))
        count = int(np.searchsorted(costs, self._left, side="right"))
        if self._left == EVALUATED_MAX:
            count = max(1, count)
        if count == 0:
            return np.zeros(0, dtype=np.bool_)
        self._left = max(0, self._left - int(costs[count - 1]))
        return self._expression.select(_sliced(segment, starts[:count], properties[:count], ends[:count]))


def _sliced(segment: Bytes, starts: Integers, properties: Integers, ends: Integers) -> list[bytes]:
    """The properties of the records; of small ones by one copy, whose slices cost a third of those of a view."""
    first, end = int(starts[0]), int(ends[-1])
    size = int((ends - starts).sum())
    if end - first <= 2 * size and size <= COPIED_SIZE_MAX * len(starts):
        data = segment[first:end].tobytes()
        pairs = zip((properties - first).tolist(), (ends - first).tolist(), strict=True)
        return [data[start:stop] for start, stop in pairs]
    view = segment.data
    pairs = zip(properties.tolist(), ends.tolist(), strict=True)
    return [bytes(view[start:stop]) for start, stop in pairs]


class Filters:
    """The expressions of pulls."""

    def __init__(self, enabled: bool, extension: Extension | None, subscription: Subscription) -> None:
        self._enabled = enabled
        self._extension = extension
        self._subscription = subscription

    def get(self, pull: Pull) -> PropertyFilter:
        """For one answer. Raises PropertyFilterDisabled, BadExpression."""
        if not self._enabled:
            raise PropertyFilterDisabled
        return PropertyFilter(compile_sql(pull.expression), self._extension, self._subscribed(pull))

    def _subscribed(self, pull: Pull) -> FilterData | None:
        """Only the expression that reput evaluated is spoken for by its bits."""
        if self._extension is None or not pull.group:
            return None
        data = self._subscription(pull.topic.decode("utf-8", "replace"), pull.group)
        return data if data is not None and data.expression == pull.expression else None


def bloom_of(settings: Settings) -> Bloom:
    return Bloom(settings.expect_consumer_num_use_filter, settings.max_error_rate_of_bloom_filter)


def facts_of(error: TowlineError) -> dict[str, Any]:
    """What a peer is told: the error's name, its sentence, and where in an expression or a queue it is, if anywhere."""
    facts: dict[str, Any] = {"error": type(error).__name__, "sentence": str(error)}
    where = {name: getattr(error, name, None) for name in ("position", "offset", "problem")}
    return facts | {name: value for name, value in where.items() if value is not None}
