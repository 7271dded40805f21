"""Pulls with an expression: SQL92 over the stored properties, many records at a time (spec 7.3, 10.2).

An expression is compiled once and kept. Where the queue has extension units, a record's bitmap may tell that it does
not match, without a look at the log: if the record was stored after the group's subscription was born.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final

from towline.errors import Remedy, TowlineError
from towline.filter.bloom import Bloom
from towline.filter.sql import Expression
from towline.filter.sql import compile as compile_sql
from towline.filter.subscriptions import FilterData
from towline.format.columns import parts_of
from towline.format.frames import Pull
from towline.runtime.settings import Settings

from .extension import Extension
from .selection import Bytes, Entries, Integers, Mask

COMPILED_MAX: Final = 256

Subscription = Callable[[str, str], FilterData | None]


class PropertyFilterDisabled(TowlineError):
    """A pull with an expression on a node that evaluates none. No facts."""

    remedy = Remedy.FIX_SETTINGS
    advice = "set enable_property_filter and restart the node, or filter by tags"

    def __init__(self) -> None:
        super().__init__()

    def describe(self) -> str:
        return "this node does not filter by properties: enable_property_filter is off"


class PropertyFilter:
    """What the expression of one pull lets through."""

    def __init__(self, expression: Expression, extension: Extension | None, data: FilterData | None) -> None:
        self._expression = expression
        self._extension = extension
        self._data = data

    def possible(self, pull: Pull, entries: Entries, rows: Mask) -> Mask:
        """`rows` without the entries whose bitmap says that they do not match."""
        data, extension = self._data, self._extension
        if data is None or extension is None or data.is_pending or not rows.any():
            return rows
        return rows & ~extension.ruled_out(pull.topic.decode(), pull.queue_id, entries, data)

    def keep(self, segment: Bytes, starts: Integers, sizes: Integers) -> Mask:
        """Which records match; they begin at these bytes of the segment. Raises MalformedRecord."""
        first, end = int(starts[0]), int(starts[-1] + sizes[-1])
        properties = parts_of(segment, starts, sizes).properties_start
        ends = starts + sizes
        if end - first <= 2 * int(sizes.sum()):  # one copy, whose slices cost a third of those of a view
            data = segment[first:end].tobytes()
            pairs = zip((properties - first).tolist(), (ends - first).tolist(), strict=True)
            encoded = [data[start:stop] for start, stop in pairs]
        else:
            view = segment.data
            pairs = zip(properties.tolist(), ends.tolist(), strict=True)
            encoded = [bytes(view[start:stop]) for start, stop in pairs]
        return self._expression.select(encoded)


class Filters:
    """The expressions of pulls, compiled; those used last are kept."""

    def __init__(self, enabled: bool, extension: Extension | None, subscription: Subscription) -> None:
        self._enabled = enabled
        self._extension = extension
        self._subscription = subscription
        self._compiled: OrderedDict[str, Expression] = OrderedDict()

    def get(self, pull: Pull) -> PropertyFilter:
        """Raises PropertyFilterDisabled, BadExpression."""
        if not self._enabled:
            raise PropertyFilterDisabled
        expression = self._compiled.get(pull.expression)
        if expression is None:
            expression = self._compiled[pull.expression] = compile_sql(pull.expression)
            if len(self._compiled) > COMPILED_MAX:
                self._compiled.popitem(last=False)
        else:
            self._compiled.move_to_end(pull.expression)
        return PropertyFilter(expression, self._extension, self._subscribed(pull))

    def _subscribed(self, pull: Pull) -> FilterData | None:
        """Only the expression that reput evaluated is spoken for by its bits."""
        if self._extension is None or not pull.group:
            return None
        data = self._subscription(pull.topic.decode("utf-8", "replace"), pull.group)
        return data if data is not None and data.expression == pull.expression else None


def bloom_of(settings: Settings) -> Bloom:
    return Bloom(settings.expect_consumer_num_use_filter, settings.max_error_rate_of_bloom_filter)


def facts_of(error: TowlineError) -> dict[str, Any]:
    """What a peer is told: the error's name, its sentence, and the position where it has one."""
    facts: dict[str, Any] = {"error": type(error).__name__, "sentence": str(error)}
    position = getattr(error, "position", None)
    return facts if position is None else {**facts, "position": position}
