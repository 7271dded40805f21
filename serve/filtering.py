"""The filters of pulls: tag hashes and bitmaps of extension units, and SQL92 over stored properties (spec 3.5, 7.3,
10.2).

An expression is compiled once and evaluated for many records at a time. Where the queue has extension units, a record's
bitmap may rule it out without reading the log, if the record was stored after the group's subscription was made.
"""

from collections.abc import Callable
from typing import Final

import numpy as np

from towline.errors import Remedy, TowlineError
from towline.filter.bloom import Bloom
from towline.filter.sql import Expression
from towline.filter.sql import compile as compile_sql
from towline.filter.subscriptions import FilterData
from towline.format.files.consume_queue_ext import are_addresses
from towline.format.record.columns import parts_of
from towline.format.wire.frames import Pull
from towline.kernels.scan.units import rule_out
from towline.limits import KIB
from towline.log.queues.consume_queue_ext import ConsumeQueueExtFiles, Units
from towline.runtime.settings import Settings

from .selection import Bytes, Entries, Integers, Mask

EVALUATED_MAX: Final = 8_192  # plain messages that one pull evaluates, while everybody else waits
PLAIN_SIZE: Final = 256  # bytes of properties of such a message; with more it counts for several
PLAIN_CONDITIONS: Final = 8  # conditions that are evaluated for it
COPIED_SIZE_MAX: Final = 2 * KIB  # mean size of records that are copied whole for their properties

Subscription = Callable[[str, str], FilterData | None]


class PropertyFilterDisabled(TowlineError, remedy=Remedy.FIX_SETTINGS):
    template = "this node does not filter by properties: enable_property_filter is off"
    advice = "restart the node with `--set enable_property_filter=true`, or filter by tags"


class ExtensionUnits:
    """Reads the units to which queue entries point in place of a tag's hash."""

    def __init__(self, files: ConsumeQueueExtFiles) -> None:
        self._files = files

    def units(self, topic: str, queue_id: int, entries: Entries, bitmap_size: int) -> Units:
        """One row per entry; `found` is false for an entry without a unit."""
        codes = entries["tags_code"].astype(np.int64)
        rows = are_addresses(codes)
        if rows.all():
            return self._files.read(topic, queue_id, codes, bitmap_size)
        count = len(codes)
        made = Units(
            found=np.zeros(count, dtype=np.bool_),
            tags_codes=codes.copy(),
            store_timestamps=np.zeros(count, dtype=np.int64),
            mapped=np.zeros(count, dtype=np.bool_),
            bitmaps=np.zeros((count, bitmap_size), dtype=np.uint8),
        )
        if rows.any():
            units = self._files.read(topic, queue_id, codes[rows], bitmap_size)
            made.found[rows], made.mapped[rows] = units.found, units.mapped
            made.tags_codes[rows], made.store_timestamps[rows] = units.tags_codes, units.store_timestamps
            made.bitmaps[rows] = units.bitmaps
        return made

    def ruled_out(self, topic: str, queue_id: int, entries: Entries, data: FilterData) -> Mask:
        """The entries whose bitmap says that they do not match; only those stored after the subscription was made."""
        codes = entries["tags_code"].astype(np.int64)
        have = are_addresses(codes)
        asked = codes if have.all() else codes[have]
        size, bits = data.bit_count // 8, np.array(data.bit_positions, dtype=np.int64)
        out = np.zeros(len(asked), dtype=np.uint8)
        for rows, units, places in self._files.spans(topic, queue_id, asked, size):
            some = np.zeros(len(places), dtype=np.uint8)
            rule_out(units, places, size, data.born_time, bits, some)
            out[rows] = some
        found = np.zeros(len(codes), dtype=np.bool_)
        found[have] = out.view(np.bool_)
        return found

    def tags_codes(self, topic: str, queue_id: int, entries: Entries) -> Integers:
        """The tag hashes of entries, from the entry or its unit."""
        return self.units(topic, queue_id, entries, 0).tags_codes


class PropertyFilter:
    """The expression of one pull, applied to records."""

    def __init__(self, expression: Expression, extension: ExtensionUnits | None, data: FilterData | None) -> None:
        self._expression = expression
        self._extension = extension
        self._data = data
        self._left = EVALUATED_MAX

    def possible(self, pull: Pull, entries: Entries, rows: Mask) -> Mask:
        """`rows` without the entries that their bitmap rules out.

        No bitmap counts for a pending subscription: no record is newer than it.
        """
        data, extension = self._data, self._extension
        if data is None or extension is None or not rows.any():
            return rows
        return rows & ~extension.ruled_out(pull.topic.decode(), pull.queue_id, entries, data)

    def keep(self, segment: Bytes, starts: Integers, sizes: Integers) -> Mask:
        """Which of the first records match; as many are evaluated as this pull may still evaluate, at first one at
        least.

        The records begin at `starts` in the segment. Raises MalformedRecord.
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
    """The properties of the records. Small ones are copied at once: slicing bytes costs a third of slicing a view."""
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
    """Builds the filters of pulls."""

    def __init__(self, enabled: bool, extension: ExtensionUnits | None, subscription: Subscription) -> None:
        self._enabled = enabled
        self._extension = extension
        self._subscription = subscription

    def get(self, pull: Pull) -> PropertyFilter:
        """The filter for one answer. Raises PropertyFilterDisabled, BadExpression."""
        if not self._enabled:
            raise PropertyFilterDisabled
        return PropertyFilter(compile_sql(pull.expression), self._extension, self._subscribed(pull))

    def _subscribed(self, pull: Pull) -> FilterData | None:
        """The group's subscription, if reput evaluated this very expression for its bits."""
        if self._extension is None or not pull.group:
            return None
        data = self._subscription(pull.topic.decode("utf-8", "replace"), pull.group)
        return data if data is not None and data.expression == pull.expression else None


def bloom_of(settings: Settings) -> Bloom:
    return Bloom(settings.expect_consumer_num_use_filter, settings.max_error_rate_of_bloom_filter)
