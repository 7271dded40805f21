"""State of a drill that runs: the cluster, the load on it, and what was observed."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from .errors import DrillFailed
from .ground import Ground
from .load import VerifiedLoad
from .nodes import MASTER
from .waiting import await_, pause
from .watch import Fault, Watch

SERVICE_MAX_S: Final = 60.0
AFTER: Final = 50  # acknowledgements by which the service is believed to be back
Say = Callable[[str], None]


@dataclass
class Drill:
    """`facts` is what a drill reports beside the figures that every drill has; `wrong` what it saw that must not be."""

    ground: Ground
    load: VerifiedLoad
    watch: Watch
    directory: Path
    draw: random.Random
    say: Say
    seconds: float  # how long a fault lasts that has a length
    target: str  # process, or role of the node, where a drill may choose
    facts: dict[str, Any]
    wrong: list[str]

    def run_for(self, seconds: float) -> None:
        """The load goes on meanwhile. Raises DrillFailed when it does not."""
        pause(seconds)
        self.load.check()

    def fault(self, what: str, **facts: Any) -> Fault:
        self.say(what)
        return self.watch.fault(what, **facts)

    def await_acknowledged(self, more: int, seconds: float = SERVICE_MAX_S) -> None:
        """Until so many more messages are acknowledged than now. Raises DrillFailed."""
        before = self.load.acknowledged
        await_(lambda: self.load.acknowledged >= before + more, seconds, f"{more} more messages are acknowledged")
        self.load.check()

    def served(self, fault: Fault) -> None:
        """The service is there again, or still."""
        self.await_acknowledged(AFTER)
        fault.service = self.watch.now()

    def heal(self, fault: Fault, act: Callable[[], object], what: str) -> None:
        """The drill takes the fault back; until all nodes are in sync again."""
        fault.healed = self.watch.now()
        act()
        self.say(what)
        self.ground.await_in_sync()
        fault.end = self.watch.now()

    def master(self) -> int:
        return self.ground.await_master()

    def slave(self) -> int:
        """One of them, by the drill's seed. Raises DrillFailed."""
        slaves = self.ground.slaves()
        if not slaves:
            raise DrillFailed("the cluster has no slave")
        return self.draw.choice(sorted(slaves))

    def expect(self, holds: bool, otherwise: str) -> None:
        if not holds:
            self.wrong.append(otherwise)

    def must_be_slave(self, number: int) -> None:
        seen = self.ground.node(number).observe()
        self.expect(seen is not None and seen.role != MASTER, f"node {number} came back as a master")
