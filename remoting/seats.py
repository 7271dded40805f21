"""The clients that a kernel may serve (`towline.kernels.remoting.turns`): those of whom nothing waits elsewhere."""

from typing import Any, Final

import numpy as np

from towline.format.record.record import BORN_HOST_IPV6, Host
from towline.kernels.jit.rows import fields_of
from towline.kernels.remoting.turns import ALL_CARRIES, CARRIES, CARRY_SIZE, HOST_MAX, PLACES, SEAT

SEATS: Final = 1 << 15  # descriptors; a client with a later one is the interpreter's


class Seats:
    """A row for each descriptor. Used by one thread."""

    def __init__(self) -> None:
        self.rows = np.zeros(SEATS, SEAT)
        self.hosts = np.zeros(SEATS * HOST_MAX, np.uint8)
        self.places = np.zeros(PLACES, np.int32)
        self.carried = np.zeros(CARRIES * CARRY_SIZE, np.uint8)
        self.carries = ALL_CARRIES  # bit n: carry n + 1 is free
        self._fields: Any = fields_of(self.rows)

    def give(self, descriptor: int, number: int, host: Host, *, puts: bool) -> None:
        """Has the kernel serve a connection. `puts`: it may send puts of ours."""
        if descriptor >= SEATS:
            return
        row, packed = self._fields[descriptor], host.packed
        self.hosts[HOST_MAX * descriptor : HOST_MAX * descriptor + len(packed)] = np.frombuffer(packed, np.uint8)
        row.born_size, row.host_bits, row.puts = len(packed), BORN_HOST_IPV6 if host.is_ipv6 else 0, puts
        row.heard_ms = 0
        row.number = number
        self.places[number % PLACES] = descriptor

    def take(self, descriptor: int) -> bytes:
        """Has the interpreter serve it, which begins with these bytes."""
        if descriptor >= SEATS:
            return b""
        self._fields[descriptor].number = 0
        return self.empty(descriptor)

    def empty(self, descriptor: int) -> bytes:
        """Takes the beginning of a frame out of a client's carry."""
        row = self._fields[descriptor] if descriptor < SEATS else None
        if row is None or not row.carry:
            return b""
        start = CARRY_SIZE * (row.carry - 1)
        self.carries |= 1 << (row.carry - 1)
        row.carry = 0
        return self.carried[start : start + row.filled].tobytes()

    def heard_ms(self, descriptor: int) -> int:
        """When something came last that the kernel took, by the monotonic clock; 0 where nothing did."""
        return int(self._fields[descriptor].heard_ms) if descriptor < SEATS else 0
