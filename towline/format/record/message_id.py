"""Message ids (spec 2.9): the broker's offset id, and the unique key that a client makes.

The two have nothing in common but their look: upper-case hex, 32 digits with an IPv4 address, 56 with an IPv6 address.
The unique key with an IPv4 address is this:

    at  len  field
     0  4  address   the client's address
     4  2  pid       low 16 bits of the process id
     6  4  constant  of the process, so that two in one host and pid differ
    10  4  month_ms  ms since the first day of the month, local time
    14  2  counter   wraps

The time restarts every month, so a unique key is unique only together with the rest.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from itertools import count
from typing import Final

from towline.errors import IllegalMessageId
from towline.format.layout import Field, Layout

from .record import IPV4_SIZE, IPV6_SIZE, Host


def _unique_layout(address_size: int) -> Layout:
    return Layout(
        Field("address", f"{address_size}s", "the client's address"),
        Field("pid", "H", "low 16 bits of the process id"),
        Field("constant", "I", "of the process, so that two in one host and pid differ"),
        Field("month_ms", "I", "ms since the first day of the month, local time"),
        Field("counter", "H", "wraps"),
    )


def _offset_layout(address_size: int) -> Layout:
    return Layout(
        Field("address", f"{address_size}s", "the store host's address"),
        Field("port", "i", "the store host's port"),
        Field("physical_offset", "q", "where the record begins in the CommitLog"),
    )


LAYOUT: Final = _unique_layout(IPV4_SIZE)
_UNIQUE: Final = {layout.size: layout for layout in (LAYOUT, _unique_layout(IPV6_SIZE))}
_OFFSET: Final = {layout.size: layout for layout in (_offset_layout(IPV4_SIZE), _offset_layout(IPV6_SIZE))}
assert list(_UNIQUE) == list(_OFFSET) == [16, 28]


@dataclass(frozen=True, slots=True)
class OffsetId:
    """Where a broker stored a message; `physical_offset` in bytes of its log."""

    store_host: Host
    physical_offset: int


@dataclass(frozen=True, slots=True)
class UniqueKey:
    """The parts of a unique key. `month_ms` counts from the first day of the month, local time of the client."""

    address: bytes
    pid: int
    constant: int
    month_ms: int
    counter: int


def encode_offset_id(store_host: Host, physical_offset: int) -> str:
    """32 or 56 upper-case hex digits."""
    return (store_host.packed + physical_offset.to_bytes(8, "big", signed=True)).hex().upper()


def decode_offset_id(text: str) -> OffsetId:
    """The parts of an offset id, from either case. Raises IllegalMessageId."""
    packed, layout = _unhex(text, _OFFSET)
    address, port, physical_offset = layout.unpack_from(packed)
    return OffsetId(Host(address, port), physical_offset)


def decode_unique_key(text: str) -> UniqueKey:
    """The parts of a unique key, from either case. Raises IllegalMessageId. A key of another form is legal to store."""
    packed, layout = _unhex(text, _UNIQUE)
    return UniqueKey(*layout.unpack_from(packed))


def month_bounds_ms(local: datetime) -> tuple[int, int]:
    """The beginning of the month of `local` and of the next one, in epoch ms; a naive time is in the system's zone."""
    start = local.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    following = start.replace(year=start.year + start.month // 12, month=start.month % 12 + 1)
    return int(start.timestamp() * 1000), int(following.timestamp() * 1000)


class UniqueKeyGenerator:
    """Makes unique keys; any thread may call `next`. After a fork, or for a new process, make a new one."""

    __slots__ = ("_count", "_month", "_month_bounds_ms", "_now_ms", "_prefix")

    def __init__(
        self,
        address: bytes,
        pid: int,
        constant: int,
        now_ms: Callable[[], int],
        bounds_ms: Callable[[int], tuple[int, int]],
        first: int = 0,
    ) -> None:
        """`now_ms()` is the epoch in ms; `bounds_ms(now)` the beginning of its month and of the next one, likewise.

        Of `pid` and `constant` the low 16 and 32 bits count. The counter begins at `first`.
        """
        assert len(address) in (IPV4_SIZE, IPV6_SIZE), f"an address has 4 or 16 bytes, not {len(address)}"
        self._prefix = f"{address.hex().upper()}{pid & 0xFFFF:04X}{constant & 0xFFFF_FFFF:08X}"
        self._now_ms = now_ms
        self._month_bounds_ms = bounds_ms
        self._month = (0, 0)
        self._count = count(first)  # one step of it is atomic under the interpreter's lock

    def next(self) -> str:
        """A new key: 32 or 56 upper-case hex digits."""
        now = self._now_ms()
        start, following = self._month  # one read: another thread may replace the pair
        if not start <= now < following:
            self._month = start, following = self._month_bounds_ms(now)
        return f"{self._prefix}{(now - start) & 0xFFFF_FFFF:08X}{next(self._count) & 0xFFFF:04X}"


def _unhex(text: str, layouts: dict[int, Layout]) -> tuple[bytes, Layout]:
    try:
        packed = bytes.fromhex(text)
    except ValueError:
        raise IllegalMessageId(text, "it is not hex digits") from None
    layout = layouts.get(len(packed))
    if layout is None or len(text) != 2 * len(packed):
        raise IllegalMessageId(text, f"it has {len(text)} characters, not 32 (IPv4) or 56 (IPv6)")
    return packed, layout
