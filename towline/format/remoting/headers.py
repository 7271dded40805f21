"""The header fields of requests: by name and type, out of the text that is on the wire (spec 11.2).

A class names the fields of a request in snake_case; on the wire they are camelCase, but for SEND_MESSAGE_V2, whose
fields are letters. A field without a default has to be there.
"""

import re
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from functools import cache
from typing import Any, ClassVar, Final, TypeVar, get_type_hints

from towline.errors import MalformedFrame

TEXT_MAX: Final = 65_535  # bytes of a field: properties are the longest there are
_TRUE: Final = "true"
_BOUNDS: Final = {int: (-(1 << 63), (1 << 63) - 1)}


@dataclass(frozen=True, slots=True, kw_only=True)
class SendMessage:
    """SEND_MESSAGE, SEND_MESSAGE_V2, SEND_BATCH_MESSAGE and the two of a reply. `queue_id` below 0: any queue."""

    producer_group: str
    topic: str
    default_topic: str = ""
    default_topic_queue_nums: int = 0
    queue_id: int
    sys_flag: int
    born_timestamp: int
    flag: int
    properties: str = ""
    reconsume_times: int = 0
    unit_mode: bool = False
    max_reconsume_times: int = -1
    batch: bool = False
    broker_name: str = ""


LETTERS: Final = {name: chr(ord("a") + place) for place, name in enumerate(SendMessage.__dataclass_fields__)}


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteOfTopic:
    """GET_ROUTEINFO_BY_TOPIC."""

    topic: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UnregisterClient:
    """UNREGISTER_CLIENT: of one group, or of both."""

    client_id: str
    producer_group: str = ""
    consumer_group: str = ""

    WIRE: ClassVar = {"client_id": "clientID"}


@dataclass(frozen=True, slots=True, kw_only=True)
class MakeTopic:
    """UPDATE_AND_CREATE_TOPIC."""

    topic: str
    default_topic: str = ""
    read_queue_nums: int
    write_queue_nums: int
    perm: int
    topic_filter_type: str = ""
    topic_sys_flag: int = 0
    order: bool = False


Header = TypeVar("Header")


def read_header(kind: type[Header], given: Mapping[str, str], *, letters: bool = False) -> Header:
    """The fields of a request. Raises MalformedFrame, which names the field that is missing or of another type."""
    values: dict[str, Any] = {}
    for name, wire, wanted, optional in _shape(kind, letters):
        text = given.get(wire)
        if text is None:
            if not optional:
                raise MalformedFrame(f"the header field {wire} ({name}) is missing")
        else:
            values[name] = _value(name, wire, text, wanted)
    return kind(**values)


@cache
def _shape(kind: type[Any], letters: bool) -> tuple[tuple[str, str, type, bool], ...]:
    """(attribute, name on the wire, type, whether it may be missing) of each field."""
    hints, named = get_type_hints(kind), getattr(kind, "WIRE", {})
    return tuple(
        (
            each.name,
            LETTERS[each.name] if letters else named.get(each.name, _camel(each.name)),
            hints[each.name],
            each.default is not MISSING,
        )
        for each in fields(kind)
    )


def _camel(name: str) -> str:
    return re.sub(r"_(\w)", lambda found: found[1].upper(), name)


def _value(name: str, wire: str, text: str, wanted: type) -> Any:
    if len(text) > TEXT_MAX:
        raise MalformedFrame(f"the header field {wire} ({name}) has {len(text)} characters; {TEXT_MAX} are allowed")
    if wanted is bool:
        return text.lower() == _TRUE  # as Java reads it: everything else is false
    if wanted is int:
        if re.fullmatch(r"[+-]?\d{1,19}", text, re.ASCII) is None:
            raise MalformedFrame(f"the header field {wire} ({name}) is {text[:40]!r}; a number is wanted")
        low, high = _BOUNDS[int]
        number = int(text)
        if not low <= number <= high:
            raise MalformedFrame(f"the header field {wire} ({name}) is {number}; 64 bits hold no such number")
        return number
    return text
