"""Members of a group as processes, what they wrote down, and the rules that it has to keep."""

import json
import os
import signal
import subprocess
import sys
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from .waiting import Watch

ROOT: Final = Path(__file__).resolve().parents[2]
Queue = tuple[str, int]


@dataclass(slots=True)
class Tenure:
    """A queue in the hands of one member, from `start` on. `offsets` are those it was given, `times` when (ns)."""

    member: str
    queue: Queue
    start: int
    offsets: list[int] = field(default_factory=list)
    times: list[int] = field(default_factory=list)
    given_up: bool = False

    @property
    def next(self) -> int:
        return self.start + len(self.offsets)


class Process:
    """One member."""

    def __init__(self, endpoint: str, group: str, topics: Any, directory: Path, name: str, **settings: Any) -> None:
        self.name = name
        self.journal = directory / f"{group}-{name}"
        facts = {"endpoint": endpoint, "group": group, "topics": topics, "member": name, "journal": str(self.journal)}
        given = {"start": "first", "commit_interval_ms": 200} | settings | facts
        command = [sys.executable, "-m", "tests.processes.group_member", json.dumps(given)]
        self._process = subprocess.Popen(command, cwd=ROOT)
        self.killed = False

    def kill(self) -> None:
        self.killed = True
        self._end(signal.SIGKILL)

    def freeze(self) -> None:
        os.kill(self._process.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        os.kill(self._process.pid, signal.SIGCONT)

    def stop(self) -> None:
        if not self.killed and self._process.poll() is None:
            self._end(signal.SIGTERM)
            assert self._process.returncode == 0

    def clean_up(self) -> None:
        if self._process.poll() is None:
            self._end(signal.SIGKILL)

    def lines(self) -> list[str]:
        """Without a last one that was cut off."""
        if not self.journal.exists():
            return []
        return self.journal.read_text().rpartition("\n")[0].splitlines()

    def keys(self) -> Counter[str]:
        return Counter(line.split(" ")[-1] for line in self.lines() if line[0] not in "+-")

    def has_read(self) -> bool:
        lines = self.lines()
        return bool(lines) and lines[-1][0] not in "+-"

    def tenures(self) -> list[Tenure]:
        """Fails when a message came of a queue that was not this member's, or out of order, or after a gap.

        The queue may go, or begin anew, after a message was given and before it is written down.
        """
        found: list[Tenure] = []
        current: dict[Queue, Tenure] = {}
        ended: dict[Queue, Tenure] = {}
        for line in self.lines():
            words = line.split(" ")
            if words[0] == "+":
                queue = words[1], int(words[2])
                if queue in current:
                    current[queue].given_up = True  # it began anew
                    ended[queue] = current[queue]
                current[queue] = Tenure(self.name, queue, int(words[3]))
                found.append(current[queue])
            elif words[0] == "-":
                tenure = current.pop((words[1], int(words[2])), None)
                if tenure is not None:
                    tenure.given_up = True
                    ended[tenure.queue] = tenure
            else:
                queue, offset = (words[0], int(words[1])), int(words[2])
                now, before = current.get(queue), ended.pop(queue, None)
                tenure = before if before is not None and (now is None or offset != now.next) else now
                assert tenure is not None, f"{self.name} got {line} of a queue that was not its own"
                assert offset == tenure.next, f"{self.name} got {line} where offset {tenure.next} was next"
                tenure.offsets.append(offset)
                tenure.times.append(int(words[3]))
        return found

    def _end(self, number: int) -> None:
        watch = Watch([self._process.pid])
        os.kill(self._process.pid, number)
        watch.await_gone(20.0)
        self._process.wait()


def by_queue(members: list[Process]) -> dict[Queue, list[Tenure]]:
    """Those in which messages came, by their first."""
    found: dict[Queue, list[Tenure]] = defaultdict(list)
    for member in members:
        for tenure in member.tenures():
            if tenure.offsets:
                found[tenure.queue].append(tenure)
    for tenures in found.values():
        tenures.sort(key=lambda tenure: tenure.times[0])
    return found


def explained_doubles(members: list[Process]) -> Counter[str]:
    """How many deliveries were not the first of their message, by why. "unexplained" are those nothing accounts for.

    A message comes again only to another tenure of its queue, and only when the one before ended: its member was
    killed, or gave the queue up with the message in hand or not committed yet.
    """
    killed = {member.name for member in members if member.killed}
    causes: Counter[str] = Counter()
    for tenures in by_queue(members).values():
        before: dict[int, Tenure] = {}
        for tenure in tenures:
            for offset in tenure.offsets:
                first = before.get(offset)
                if first is None:
                    continue
                if first.member in killed:
                    causes["its first reader was killed"] += 1
                elif first.given_up:
                    causes["its first reader gave the queue up before it was committed"] += 1
                else:
                    causes["unexplained"] += 1
            before |= dict.fromkeys(tenure.offsets, tenure)
    return causes
