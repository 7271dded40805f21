"""Tags codes as a queue holds them (spec 3.1): the hash of the tag, or when a delayed message is due."""

import re
from typing import Final

import numpy as np
import pyarrow as pa

from towline.format.java_hash import string_hash
from towline.format.record.columns import Integers
from towline.format.record.forms import SCHEDULE_TOPIC
from towline.format.record.properties import DELAY

from .heads import Heads
from .pairs import Pairs

_LEVEL: Final = re.compile(r"[0-9]+")
_LEVEL_MAX: Final = 0x7FFF_FFFF  # before its last digit
_DIGITS_MAX: Final = len(str(10 * _LEVEL_MAX))


def tags_codes(heads: Heads, pairs: Pairs, tags: pa.StringArray, delays_ms: tuple[int, ...]) -> Integers:
    """As reput computes them. `delays_ms` by level - 1; without any, DELAY says nothing."""
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
