"""A RecordBatch made of heads: fields, topic, hosts, tags codes and properties. All columns are copies."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from towline.format.java_hash import string_hash
from towline.format.record.columns import Integers, wider_by
from towline.format.record.forms import SCHEDULE_TOPIC
from towline.format.record.properties import DELAY, KEYS, TAGS, UNIQ_KEY
from towline.format.record.record import BORN_HOST_IPV6, IPV4_SIZE, IPV6_SIZE, LAYOUT, Host

from .bodies import Restored, bodies
from .columns import schema_of
from .heads import BORN_HOST, FAMILIES, STORE_HOST, Heads
from .pairs import Pairs, pairs_of
from .slices import repeated, slices, text

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
_PORT_SIZE: Final = 4
_KNOWN_MAX: Final = 16_384  # hosts whose text is kept from one batch to the next
_LEVEL: Final = re.compile(r"[0-9]+")
_LEVEL_MAX: Final = 0x7FFF_FFFF  # before its last digit
_DIGITS_MAX: Final = len(str(10 * _LEVEL_MAX))


def fields_of(columns: Sequence[str]) -> set[str]:
    """The fields that `Heads` must read for these columns."""
    found = {fields[name] for name in columns for fields in (_FIELDS, _TIMES, _HOSTS) if name in fields}
    return found | ({"store_timestamp"} if "tagsCode" in columns else set())


def make_batch(
    heads: Heads, columns: Sequence[str], restored: Restored, broker_name: str, delays_ms: tuple[int, ...]
) -> pa.RecordBatch:
    """A batch of `columns` of records that were read with `fields_of` and ascend; `restored` are bodies by row.

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


def hosts(heads: Heads, name: str) -> pa.StringArray:
    """The born or the store host of each record, as `Host` writes it."""
    packed = heads[name]
    wide = np.flatnonzero(heads.sys_flag & FAMILIES[name])
    if not len(wide):
        return _shown(packed)
    texts = _shown(packed).to_pylist()
    places = heads.positions[wide] + LAYOUT.offset[name]
    if name == STORE_HOST:
        places = places + wider_by(heads.sys_flag[wide], BORN_HOST_IPV6)
    for row, address in zip(wide.tolist(), _wide(heads, places), strict=True):
        texts[row] = address
    return pa.array(texts, pa.string())


def _shown(packed: NDArray[np.uint64]) -> pa.StringArray:
    if len(packed) and (packed == packed[0]).all():  # as a store's own host mostly is
        return repeated(_text(int(packed[0]).to_bytes(IPV4_SIZE + _PORT_SIZE, "big")), len(packed))
    encoded = pa.array(packed).dictionary_encode()
    distinct = [_text(number.to_bytes(IPV4_SIZE + _PORT_SIZE, "big")) for number in encoded.dictionary.to_pylist()]
    return pa.array(distinct, pa.string()).take(encoded.indices)


def _wide(heads: Heads, places: Integers) -> list[str]:
    """Of IPv6 hosts."""
    size = IPV6_SIZE + _PORT_SIZE
    packed = np.ndarray(len(heads.log) - size + 1, f"V{size}", heads.log, 0, (1,))[places].tolist()
    return list(map(_text, packed))


@lru_cache(maxsize=_KNOWN_MAX)
def _text(packed: bytes) -> str:
    port = int.from_bytes(packed[-_PORT_SIZE:], "big", signed=True)
    return str(Host(packed[:-_PORT_SIZE], port))


def tags_codes(heads: Heads, pairs: Pairs, tags: pa.StringArray, delays_ms: tuple[int, ...]) -> Integers:
    """The tags codes as reput computes them (spec 3.1): the hash of the tag, or when a delayed message is due.

    `delays_ms` is by level - 1; without any, DELAY is ignored.
    """
    codes = hashes(tags)
    delayed = _delayed(heads) if delays_ms else np.empty(0, np.int64)
    if len(delayed):
        levels = pairs.values(DELAY).take(pa.array(delayed))
        delayed = delayed[levels.is_valid().to_numpy(zero_copy_only=False)]
        encoded = levels.drop_null().dictionary_encode()
        delays = np.array([_delay(level, delays_ms) for level in encoded.dictionary.to_pylist()], np.int64)
        delay = delays[encoded.indices.to_numpy()]
        due = delayed[delay >= 0]
        codes[due] = heads["store_timestamp"][due] + delay[delay >= 0]
    return codes


def hashes(texts: pa.StringArray) -> Integers:
    """Java's hash of each text, 0 for null; equal ones are hashed once."""
    encoded = texts.dictionary_encode()
    distinct = np.array([*map(string_hash, encoded.dictionary.to_pylist()), 0], np.int64)
    codes: Integers = distinct[encoded.indices.fill_null(len(distinct) - 1).to_numpy(zero_copy_only=False)]
    return codes


def _delayed(heads: Heads) -> Integers:
    """Rows of the topic of delayed messages."""
    wanted = SCHEDULE_TOPIC.encode()
    rows = np.flatnonzero(heads.parts.topic_size == len(wanted))
    starts = heads.parts.topic_start[rows]
    same = np.ndarray(max(0, len(heads.log) - len(wanted) + 1), f"S{len(wanted)}", heads.log, 0, (1,))[starts]
    delayed: Integers = rows[same == wanted]
    return delayed


def _delay(level: str, delays_ms: tuple[int, ...]) -> int:
    """Of a level as it is written, in ms; -1 where it is none. A level above the last one is the last one."""
    digits = level.lstrip("0")
    if not _LEVEL.fullmatch(digits) or int(digits[:_DIGITS_MAX]) // 10 > _LEVEL_MAX or len(digits) > _DIGITS_MAX:
        return -1
    return delays_ms[min(int(digits), len(delays_ms)) - 1]
