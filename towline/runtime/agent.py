"""One duty cycle for every process: work while there is work, else sleep on the doorbell."""

import time
from collections.abc import Callable
from typing import ClassVar, Final, Protocol

from towline.limits import SLEEP_MAX_MS

from .doorbell import Doorbell
from .positions import Duty, DutyLine, State

SLEEPS_MAX: Final = 5  # in a row; what an agent does by the clock alone may be late by so many
NS_PER_MS: Final = 1_000_000


class Agent(Protocol):
    """The duty of one process. `duty` names its line in the positions file."""

    duty: ClassVar[Duty]

    def on_start(self, bell: Doorbell) -> None:
        """Open what the duty needs; called in the process that will do it. `bell` is what it sleeps on."""
        ...

    def do_work(self) -> int:
        """One turn. Never blocks. Returns how many things it did; 0 means nothing to do."""
        ...

    def sleep_ms(self) -> int:
        """How long nothing can be due by the clock; the cycle never sleeps longer than SLEEP_MAX_MS."""
        ...

    def wait(self, timeout_ms: int) -> bool:
        """Sleep until the bell or, for an agent with sockets, a message. Whether the bell rang."""
        ...

    def drain(self) -> bool:
        """Told to stop: finish what is promised. True when nothing is left or its own deadline has passed."""
        ...

    def on_close(self) -> None: ...


class Idle:
    """The order of H12: work; with nothing to do arm the bell, look once more, sleep, drain the bell.

    The bell stays armed until work is found, so an idle process looks once per sleep; a ring while it is awake costs
    the ringer one write. A look costs more than the sleep, so after a whole sleep in which nothing rang or came, and no
    position of the node has moved, the next ones follow without one: a lost ring shows in the positions.
    """

    def __init__(self, agent: Agent, bell: Doorbell, line: DutyLine) -> None:
        self._agent = agent
        self._bell = bell
        self._line = line
        self._armed = False

    def turn(self, stopped: Callable[[], bool] | None = None) -> None:
        """Several sleeps follow each other only where it can be told that they are to end."""
        seen = self._line.positions() if self._armed else b""
        if self._agent.do_work():
            if self._armed:
                self._bell.disarm()
                self._armed = False
        elif not self._armed:
            self._bell.arm()
            self._armed = True  # the next turn is the second look
        else:
            for _ in range(SLEEPS_MAX):
                moved = not self._sleeps_through() or self._line.positions() != seen
                if moved or stopped is None or stopped():
                    break
                self._line.beat()

    def _sleeps_through(self) -> bool:
        """Whether nothing rang or came in the longest of sleeps."""
        timeout_ms = max(0, min(self._agent.sleep_ms(), SLEEP_MAX_MS))
        began_ns = time.monotonic_ns()
        if self._agent.wait(timeout_ms):
            self._bell.drain()
            return False
        return timeout_ms == SLEEP_MAX_MS and time.monotonic_ns() - began_ns >= timeout_ms * NS_PER_MS


def run(agent: Agent, bell: Doorbell, line: DutyLine, stopped: Callable[[], bool]) -> None:
    """The life of a process: start, turns until told to stop, drain, close. `on_close` runs whatever happens."""
    idle = Idle(agent, bell, line)
    try:
        agent.on_start(bell)
        line.state = State.RUNNING
        while not stopped():
            idle.turn(stopped)
            line.beat()
        line.state = State.STOPPING
        while not agent.drain():
            idle.turn()
            line.beat()
    finally:
        agent.on_close()
        line.state = State.STOPPED
