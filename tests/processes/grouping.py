"""Members of a group as processes, what they wrote down, and the rules that it has to keep."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from towline.client.admin import AdminClient
from towline.log.files.config_file import ConfigFile

from .nodes import TestNode
from .stopping import stopped
from .waiting import Watch, await_

ROOT: Final = Path(__file__).resolve().parents[2]
DEADLINE_S: Final = 60.0
Queue = tuple[str, int]


def serve_of(node: TestNode) -> str:
    return str(node.facts["endpoints"]["serve"][0])


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
        self._read = 0  # bytes of the journal
        self._lines: list[str] = []
        self._keys: Counter[str] = Counter()
        self._tenures: list[Tenure] = []
        self._current: dict[Queue, Tenure] = {}
        self._ended: dict[Queue, Tenure] = {}

    @property
    def runs(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        self.killed = True
        self._end(signal.SIGKILL)

    def frozen(self) -> AbstractContextManager[None]:
        """It stands still within the block."""
        return stopped(self._process.pid)

    def stop(self) -> None:
        if not self.killed and self._process.poll() is None:
            self._end(signal.SIGTERM)
            assert self._process.returncode == 0

    def clean_up(self) -> None:
        if self._process.poll() is None:
            self._end(signal.SIGKILL)

    def lines(self) -> list[str]:
        """Without a last one that was cut off."""
        self._read_on()
        return self._lines

    def keys(self) -> Counter[str]:
        self._read_on()
        return self._keys

    def has_read(self) -> bool:
        lines = self.lines()
        return bool(lines) and lines[-1][0] not in "+-"

    def tenures(self) -> list[Tenure]:
        """Fails when a message came of a queue that was not this member's, or out of order, or after a gap."""
        self._read_on()
        return self._tenures

    def holds(self, queue: Queue) -> Tenure | None:
        """As far as it has written down."""
        self._read_on()
        return self._current.get(queue)

    def _read_on(self) -> None:
        if not self.journal.exists():
            return
        with self.journal.open("rb") as opened:
            opened.seek(self._read)
            whole = opened.read().rpartition(b"\n")[0]
        if whole:
            self._read += len(whole) + 1
        for line in whole.decode().splitlines():
            self._lines.append(line)
            self._take(line)

    def _take(self, line: str) -> None:
        """The queue may go, or begin anew, after a message was given and before it is written down."""
        words = line.split(" ")
        if words[0] == "+":
            queue = words[1], int(words[2])
            if queue in self._current:
                self._give_up(self._current[queue])  # it began anew
            self._current[queue] = Tenure(self.name, queue, int(words[3]))
            self._tenures.append(self._current[queue])
        elif words[0] == "-":
            tenure = self._current.pop((words[1], int(words[2])), None)
            if tenure is not None:
                self._give_up(tenure)
        else:
            self._keys[words[-1]] += 1
            queue, offset = (words[0], int(words[1])), int(words[2])
            now, before = self._current.get(queue), self._ended.pop(queue, None)
            tenure = before if before is not None and (now is None or offset != now.next) else now
            assert tenure is not None, f"{self.name} got {line} of a queue that was not its own"
            assert offset == tenure.next, f"{self.name} got {line} where offset {tenure.next} was next"
            tenure.offsets.append(offset)
            tenure.times.append(int(words[3]))

    def _give_up(self, tenure: Tenure) -> None:
        tenure.given_up = True
        self._ended[tenure.queue] = tenure

    def _end(self, number: int) -> None:
        watch = Watch([self._process.pid])
        os.kill(self._process.pid, number)
        watch.await_gone(60.0)
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


@dataclass(frozen=True, slots=True)
class Mark:
    """Offsets that the group had committed at a moment, and how many tenures each member had begun by then."""

    committed: dict[Queue, int]
    begun: dict[str, int]


class Marks:
    """What the node knew to be finished before each thing that was done to a group: from there on, at most, it rereads.

    `members` is the list that the test adds to.
    """

    def __init__(self, node: TestNode, topic: str, group: str, members: list[Process]) -> None:
        self._node, self._topic, self._group, self._members = node, topic, group, members
        self._taken: list[Mark] = []

    def take(self, *, saved: bool = False) -> None:
        """Under load, with all members at work: waits until everything that was read by now is committed.

        `saved`: in the node's file, which it goes on with when serve is killed.
        """
        began = time.monotonic_ns()
        read: dict[Queue, int] = defaultdict(int)
        for tenure in self._all():
            read[tenure.queue] = max(read[tenure.queue], tenure.next)
        committed = self._saved if saved else self._live

        def known() -> dict[Queue, int]:
            found = committed()
            behind = [queue for queue, offset in read.items() if found.get(queue, 0) < offset]
            return {} if behind or not self._is_settled(set(found), began) else found

        found = await_(known, DEADLINE_S, f"what {self._group} has read of {self._topic} is committed")
        self._taken.append(Mark(found, {member.name: len(member.tenures()) for member in self._members}))

    def check(self) -> None:
        """Every tenure began where the group stood, or later: what was committed is not read again."""
        for member in self._members:
            for number, tenure in enumerate(member.tenures()):
                before = [mark for mark in self._taken if mark.begun.get(member.name, 0) <= number]
                floor = before[-1].committed.get(tenure.queue, 0) if before else 0
                assert tenure.start >= floor, f"{tenure.queue}: {member.name} began at {tenure.start}, not at {floor}"

    def _all(self) -> list[Tenure]:
        return [tenure for member in self._members for tenure in member.tenures()]

    def _is_settled(self, queues: set[Queue], began: int) -> bool:
        """Of every queue a message came since, to the member that has it: so nobody begins one without our knowing."""
        with AdminClient(serve_of(self._node)) as admin:
            rows = admin.describe_group(self._group)["queues"]
        owners = {(row["topic"], row["queue"]): row["owner"] for row in rows if row["topic"] == self._topic}
        return owners.keys() == queues and all(self._reads(owner, queue, began) for queue, owner in owners.items())

    def _reads(self, owner: str | None, queue: Queue, began: int) -> bool:
        member = next((member for member in self._members if member.name == owner and not member.killed), None)
        tenure = member.holds(queue) if member is not None else None
        return tenure is not None and bool(tenure.times) and tenure.times[-1] > began

    def _live(self) -> dict[Queue, int]:
        with AdminClient(serve_of(self._node)) as admin:
            return {
                (self._topic, queue): at
                for queue, at in admin.group_offsets(self._group, self._topic)[self._topic].items()
            }

    def _saved(self) -> dict[Queue, int]:
        content = ConfigFile(self._node.store.config / "consumerOffset.json").load() or {"offsetTable": {}}
        table = content["offsetTable"].get(f"{self._topic}@{self._group}", {})
        return {(self._topic, int(queue)): int(at) for queue, at in table.items()}


def check_order(members: list[Process]) -> None:
    """Each queue's messages come to the group in their order, doubles only behind those that they are doubles of."""
    for queue, tenures in by_queue(members).items():
        following = 0
        for _, offset in sorted(pair for each in tenures for pair in zip(each.times, each.offsets, strict=True)):
            assert offset <= following, f"{queue}: {offset} came before {following}"
            following = max(following, offset + 1)


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
