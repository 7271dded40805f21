"""Doorbells wake sleeping processes. A lost ring costs time (a sleep ends by itself after 100 ms), never correctness.

A bell is a FIFO, so that a process started by hand finds it by name. Both ends open it O_RDWR|O_NONBLOCK: with O_RDONLY
the reader spins on end-of-file once the last writer has gone (H12). A full pipe is a bell that already rings.
"""

import os
import select
from pathlib import Path
from typing import TYPE_CHECKING

from towline.fence import fence

from .positions import Duty, DutyLine, Positions

if TYPE_CHECKING:  # its kernel is for worker processes: commands and the supervisor must not load it
    from .idle_sleep import IdleSleep


def make_bell(path: Path) -> None:
    """Create the FIFO unless it is there."""
    if not path.exists():
        os.mkfifo(path, 0o600)


def _open(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)


class Doorbell:
    """The bell of this process. `arm`, check once more, then wait on `fileno`; `disarm` when awake (H12's order)."""

    def __init__(self, path: Path, line: DutyLine) -> None:
        make_bell(path)
        self._fd = _open(path)
        self._line = line
        self._poll = select.poll()
        self._poll.register(self._fd, select.POLLIN)

    def fileno(self) -> int:
        return self._fd

    def arm(self) -> None:
        self._line.sleeping = True
        fence()

    def disarm(self) -> None:
        self._line.sleeping = False

    def wait(self, timeout_ms: int, rest: "IdleSleep | None" = None) -> bool:
        """Whether it rang within the time; within several, with `rest`."""
        if rest is not None:
            rest((self._fd,))
            timeout_ms = 0
        return bool(self._poll.poll(timeout_ms))

    def drain(self) -> None:
        try:
            os.read(self._fd, 4096)
        except BlockingIOError:
            return  # it did not ring

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class Ringer:
    """Rings neighbours after a position was published: only those that sleep, once per turn."""

    def __init__(self, positions: Positions, bells: dict[Duty, Path]) -> None:
        self._targets: list[tuple[DutyLine, int]] = []
        for duty, path in bells.items():
            make_bell(path)
            self._targets.append((positions.duty(duty), _open(path)))

    def ring(self) -> bool:
        """Call after the position's store; the fence lies between that store and the check of who sleeps. Whether
        anybody did."""
        fence()
        slept = False
        for line, fd in self._targets:
            if line.sleeping:
                slept = True
                try:
                    os.write(fd, b"\0")
                except BlockingIOError:
                    continue  # a full pipe rings already
        return slept

    def close(self) -> None:
        for _, fd in self._targets:
            os.close(fd)
        self._targets = []
