"""The duty cycle of every process: work while there is work, else sleep on the doorbell."""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar, Final, Protocol

from towline.limits import SLEEP_MAX_MS

from .doorbell import Doorbell
from .positions import Duty, DutyLine, State

if TYPE_CHECKING:  # its kernel is for worker processes: commands and the supervisor must not load it
    from .idle_sleep import IdleSleep

NS_PER_MS: Final = 1_000_000
ALONE: Final = 1  # sleeps in a row that something may have ended, for a process that is at rest


class Agent(Protocol):
    """The duty of one process. `duty` names its line in the positions file."""

    duty: ClassVar[Duty]

    def on_start(self, bell: Doorbell) -> None:
        """Open what the duty needs; called in the process that will do it. `bell` is what it sleeps on."""
        ...

    def do_work(self) -> int:
        """One cycle. Never blocks. Returns how many things it did; 0 means nothing to do."""
        ...

    def sleep_ms(self) -> int:
        """How long nothing is due by the clock. Two sleeps of SLEEP_MAX_MS or more may follow each other."""
        ...

    def wait(self, timeout_ms: int, rest: "IdleSleep | None") -> bool:
        """Sleep until the doorbell or, for an agent with sockets, a message. Whether the doorbell rang.

        With `rest` several sleeps of SLEEP_MAX_MS follow each other.
        """
        ...

    def drain(self) -> bool:
        """At a stop: finish what is promised. True when nothing is left or its own deadline has passed."""
        ...

    def on_close(self) -> None: ...


class DutyCycle:
    """The order of H12: work; with nothing to do arm the doorbell, work once more, sleep, drain the doorbell.

    An idle process blocks on its doorbell for up to 100 ms. The doorbell stays armed until work is found, so the
    process works once per sleep; a ring while it is awake costs the ringer one write. A cycle costs more than the
    sleep, so after a whole sleep without a ring or a message several sleeps follow each other without a cycle and
    without the interpreter (`IdleSleep`); a single event in between changes nothing.
    """

    def __init__(self, agent: Agent, bell: Doorbell, rest: "IdleSleep") -> None:
        self._agent = agent
        self._bell = bell
        self._rest = rest
        self._armed = False
        self._woken = ALONE + 1  # sleeps in a row that something ended

    def run_once(self, stopped: Callable[[], bool] | None = None) -> None:
        """One cycle. Several sleeps in a row need `stopped`, which ends them."""
        calm = self._woken <= ALONE
        if calm:
            self._rest.read_positions()
        if self._agent.do_work():
            if self._armed:
                self._bell.disarm()
                self._armed = False
        elif not self._armed:
            self._bell.arm()
            self._armed = True  # the next cycle is the second check of H12
        else:
            self._sleep(self._rest if calm and stopped is not None and not stopped() else None)

    def _sleep(self, rest: "IdleSleep | None") -> None:
        due_ms = self._agent.sleep_ms()
        timeout_ms = max(0, min(due_ms, SLEEP_MAX_MS))
        began_ns = time.monotonic_ns()
        self._woken += 1
        if self._agent.wait(timeout_ms, rest if rest is not None and rest.fits(due_ms) else None):
            self._bell.drain()
        elif timeout_ms == SLEEP_MAX_MS and time.monotonic_ns() - began_ns >= timeout_ms * NS_PER_MS:
            self._woken = 0


def run(
    agent: Agent,
    bell: Doorbell,
    line: DutyLine,
    rest: "IdleSleep",
    stopped: Callable[[], bool],
    between: Callable[[], None] = lambda: None,
) -> None:
    """The life of a process: start, cycles until `stopped`, drain, close. `on_close` always runs.

    `between` is called before each cycle.
    """
    cycle = DutyCycle(agent, bell, rest)
    try:
        agent.on_start(bell)
        line.state = State.RUNNING
        while not stopped():
            between()
            cycle.run_once(stopped)
            line.beat()
        line.state = State.STOPPING
        while not agent.drain():
            cycle.run_once()
            line.beat()
    finally:
        agent.on_close()
        line.state = State.STOPPED
