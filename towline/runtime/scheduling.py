"""How the system's scheduler treats each process of a node: the setting `process_scheduling`."""

import logging
import os
import re
from dataclasses import dataclass
from typing import Final

from .positions import Duty

POLICIES: Final = {"other": os.SCHED_OTHER, "batch": os.SCHED_BATCH, "idle": os.SCHED_IDLE}
_FORM: Final = re.compile(r"(?P<duty>[a-z]+)=(?P<policy>[a-z]+)(:(?P<nice>-?\d{1,2}))?(@(?P<cpus>\d+(\+\d+)*))?")
_EXAMPLE: Final = "allocate=batch, reput=other:5, put=other@0+1"


@dataclass(frozen=True, slots=True)
class Scheduling:
    """`policy` is one of POLICIES; `nice` is -20 to 19; `cpus` the only ones it may run on, none for any."""

    policy: str
    nice: int = 0
    cpus: frozenset[int] = frozenset()

    def apply(self, log: logging.Logger) -> None:
        """Of the calling process, before it has other threads. What the system refuses is logged, and left as it is."""
        try:
            os.sched_setscheduler(0, POLICIES[self.policy], os.sched_param(0))
            if self.nice:
                os.setpriority(os.PRIO_PROCESS, 0, self.nice)
            if self.cpus:
                os.sched_setaffinity(0, self.cpus)
        except OSError as error:
            log.warning("process_scheduling: the system refuses %s: %s", self, error)


def parse_scheduling(text: str) -> dict[str, Scheduling]:
    """`allocate=batch, put=other:-5@0+1` -> by process: policy, nice, CPUs. Raises ValueError."""
    found: dict[str, Scheduling] = {}
    names = {duty.label for duty in Duty}
    for word in filter(None, (part.strip() for part in text.split(","))):
        match = _FORM.fullmatch(word)
        if match is None:
            raise ValueError(f"{word!r} is no process=policy[:nice][@cpu+cpu], as in {_EXAMPLE}")
        if match["duty"] not in names:
            raise ValueError(f"there is no process {match['duty']!r}; there are {', '.join(sorted(names))}")
        if match["policy"] not in POLICIES:
            raise ValueError(f"{match['policy']!r} is none of {', '.join(POLICIES)}")
        nice = int(match["nice"] or 0)
        if not -20 <= nice <= 19:
            raise ValueError(f"nice is -20 to 19, not {nice}")
        cpus = frozenset(int(cpu) for cpu in (match["cpus"] or "").split("+") if cpu)
        found[match["duty"]] = Scheduling(match["policy"], nice, cpus)
    return found
