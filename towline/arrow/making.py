"""Columns made of heads that were read: copies, nothing of them aliases the log's bytes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import pyarrow as pa

from towline.format.record.properties import KEYS, TAGS, UNIQ_KEY

from .bodies import Restored, bodies
from .columns import schema_of
from .heads import BORN_HOST, STORE_HOST, Heads
from .hosts import hosts
from .pairs import Pairs, pairs_of
from .slices import repeated, slices, text
from .tags_codes import tags_codes

_FIELDS: Final = {  # columns that are a field of the head as it stands
    "queueId": "queue_id",
    "queueOffset": "queue_offset",
    "commitLogOffset": "physical_offset",
    "flag": "flag",
    "size": "total_size",
    "sysFlag": "sys_flag",
    "bodyCRC": "body_crc",
    "reconsumeTimes": "reconsume_times",
    "preparedTransactionOffset": "prepared_transaction_offset",
}
_TIMES: Final = {"bornTimestamp": "born_timestamp", "storeTimestamp": "store_timestamp"}
_HOSTS: Final = {"bornHost": BORN_HOST, "storeHost": STORE_HOST}
_PROPERTIES: Final = {"keys": KEYS, "uniqKey": UNIQ_KEY}
_TIME_MAX: Final = (2**63 - 1) // 1000  # ms; a client's clock may say anything


def fields_of(columns: Sequence[str]) -> set[str]:
    """What `Heads` must read for these columns."""
    found = {fields[name] for name in columns for fields in (_FIELDS, _TIMES, _HOSTS) if name in fields}
    return found | ({"store_timestamp"} if "tagsCode" in columns else set())


def make_batch(
    heads: Heads, columns: Sequence[str], restored: Restored, broker_name: str, delays_ms: tuple[int, ...]
) -> pa.RecordBatch:
    """`columns` of records that were read with `fields_of` and ascend; `restored` are bodies by row.

    Raises UnknownColumn, BatchTooLarge.
    """
    schema = schema_of(columns)
    if not columns:  # nobody can say how many rows it has but a struct
        return pa.RecordBatch.from_struct_array(pa.StructArray.from_buffers(pa.struct([]), len(heads), [None]))
    made = _Made(heads, restored, broker_name, delays_ms)
    return pa.RecordBatch.from_arrays([made.column(name) for name in columns], schema=schema)


@dataclass
class _Made:
    heads: Heads
    restored: Restored
    broker_name: str
    delays_ms: tuple[int, ...]

    def column(self, name: str) -> pa.Array:
        if name in _FIELDS:
            return pa.array(self.heads[_FIELDS[name]])
        if name in _TIMES:
            return self._time(_TIMES[name])
        if name in _HOSTS:
            return hosts(self.heads, _HOSTS[name])
        if name == "tags":
            return self.tags
        if name in _PROPERTIES:
            return self.pairs.values(_PROPERTIES[name])
        return _OTHERS[name](self)

    @cached_property
    def pairs(self) -> Pairs:
        return pairs_of(self.heads)

    @cached_property
    def tags(self) -> pa.StringArray:
        return self.pairs.values(TAGS)

    def topic(self) -> pa.Array:
        starts = self.heads.parts.topic_start
        return text(slices(self.heads.log, starts, starts + self.heads.parts.topic_size, "topic"))

    def body(self) -> pa.Array:
        return bodies(self.heads, self.restored)

    def properties(self) -> pa.Array:
        return self.pairs.to_map()

    def broker(self) -> pa.Array:
        return repeated(self.broker_name, len(self.heads))

    def tags_code(self) -> pa.Array:
        return pa.array(tags_codes(self.heads, self.pairs, self.tags, self.delays_ms))

    def _time(self, name: str) -> pa.Array:
        milliseconds = self.heads[name]
        if len(milliseconds) and max(int(milliseconds.max()), -int(milliseconds.min())) > _TIME_MAX:
            milliseconds = milliseconds.clip(-_TIME_MAX, _TIME_MAX)
        return pa.array(milliseconds * 1000).view(pa.timestamp("us", tz="UTC"))


_OTHERS: Final[dict[str, Callable[[_Made], pa.Array]]] = {
    "topic": _Made.topic,
    "body": _Made.body,
    "properties": _Made.properties,
    "brokerName": _Made.broker,
    "tagsCode": _Made.tags_code,
}
