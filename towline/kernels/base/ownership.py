"""Property names that are reserved for brokers: the table of `towline.format.record.properties`, for put's kernel.

Only where `properties_form` suspects a name: not for TAGS, KEYS, UNIQ_KEY and names in lower case.
"""

from typing import Final

import numpy as np
import numpy.typing as npt

from towline.format.record.properties import PAIR_END as PAIR_END_TEXT
from towline.format.record.properties import REGION_DEFAULT, RESERVED, TRACE_DEFAULT, TRANSIENT_PREFIX
from towline.format.record.rules import Rule
from towline.kernels.jit.compiled import Bytes, helper

from .shape import NAME_END, PAIR_END
from .words import load_u8

NO_NAME: Final = -1  # as a row: not a reserved name
RESERVED_NAMES: Final = (*RESERVED, TRANSIENT_PREFIX)  # in the order of the rows
_PREFIX: Final = 1 << 8  # added to the length of a name that is the beginning of one


def _table() -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """The names back to back, and for each: length (or _PREFIX + length), its first byte's place, rule."""
    names = [(name, len(name), rule) for name, rule in RESERVED.items()]
    names.append((TRANSIENT_PREFIX, _PREFIX + len(TRANSIENT_PREFIX), Rule.PROPERTY_NEVER_STORED))
    text = "".join(name for name, _, _ in names).encode()
    starts = np.cumsum([0, *(len(name) for name, _, _ in names)]).tolist()
    rows = [[length, start, int(rule)] for (_, length, rule), start in zip(names, starts[:-1], strict=True)]
    return np.frombuffer(text, dtype=np.uint8).copy(), np.array(rows, dtype=np.int64)


_NAMES, _ROWS = _table()
_COUNT: Final = len(_ROWS)
_ANOTHERS: Final = Rule.PROPERTY_OF_ANOTHER_BROKER.value
_OWN_FIRST: Final = list(RESERVED).index("CLUSTER")  # rows of the names whose own values `own_values` holds
_OWN_COUNT: Final = sum(rule is Rule.PROPERTY_OF_ANOTHER_BROKER for rule in RESERVED.values())
assert list(RESERVED)[_OWN_FIRST : _OWN_FIRST + _OWN_COUNT] == ["CLUSTER", "MSG_REGION", "TRACE_ON"]


def own_values(cluster: str) -> npt.NDArray[np.uint8]:
    """What this broker would write into CLUSTER, MSG_REGION and TRACE_ON, for the append."""
    values = (cluster, REGION_DEFAULT, TRACE_DEFAULT)
    return np.frombuffer("".join(value + PAIR_END_TEXT for value in values).encode(), dtype=np.uint8).copy()


@helper
def _is_name(buffer: Bytes, item: int, length: int, row: int) -> bool:
    wanted = _ROWS[row, 0]
    if wanted >= _PREFIX:
        wanted -= _PREFIX
        if length < wanted:
            return False
    elif wanted != length:
        return False
    start = _ROWS[row, 1]
    same = True
    for place in range(wanted):
        same = same and load_u8(buffer, item + place) == _NAMES[start + place]
    return same


@helper
def _is_own_value(buffer: Bytes, at: int, end: int, own: Bytes, number: int) -> bool:
    """Whether the value at `at` is the own value of this number, whole."""
    place = 0
    while number > 0:
        number -= own[place] == PAIR_END
        place += 1
    while at < end and load_u8(buffer, at) == own[place] and own[place] != PAIR_END:
        at += 1
        place += 1
    return own[place] == PAIR_END and (at == end or load_u8(buffer, at) == PAIR_END)


@helper
def row_of(buffer: Bytes, item: int, name_end: int) -> int:
    """The row of the reserved name in [item, name_end), or NO_NAME."""
    for row in range(_COUNT):
        if _is_name(buffer, item, name_end - item, row):
            return row
    return NO_NAME


@helper
def is_taken(buffer: Bytes, row: int, name_end: int, end: int, own: Bytes) -> int:
    """The rule that a reserved name breaks whose value follows `name_end`; OK for one with this broker's own value."""
    rule = _ROWS[row, 2]
    if rule == _ANOTHERS and _is_own_value(buffer, name_end + 1, end, own, row - _OWN_FIRST):
        return Rule.OK.value
    return int(rule)


@helper
def _rule_of(buffer: Bytes, item: int, name_end: int, end: int, own: Bytes) -> int:
    row = row_of(buffer, item, name_end)
    return Rule.OK.value if row == NO_NAME else is_taken(buffer, row, name_end, end, own)


@helper
def names_rule(buffer: Bytes, at: int, end: int, own: Bytes) -> tuple[int, int]:
    """The first rule that a name breaks among the sound properties in [at, end), and where that name begins.

    Byte by byte: few come here. A property CRC in its place is not among them. `own` are this broker's `own_values`.
    """
    item = at
    while at < end:
        if load_u8(buffer, at) == NAME_END:
            rule = _rule_of(buffer, item, at, end, own)
            if rule != Rule.OK:
                return rule, item
            while at < end and load_u8(buffer, at) != PAIR_END:
                at += 1
            item = at + 1
        elif load_u8(buffer, at) == PAIR_END:
            item = at + 1
        at += 1
    return Rule.OK.value, 0
