"""Members of a group are killed, frozen, leave and come, and the reading process dies, for minutes under load.

TOWLINE_SEED=<number> repeats a run's choices; the moments within the load are the machine's, of course.
"""

import os
import random
import signal
import time
from typing import Any, Final

import pytest

from tests.processes.consumer_groups.test_groups import (
    Endless,
    await_committed,
    await_members,
    await_read,
    check_all_was_read,
    check_doubles,
    check_one_reader_at_a_time,
    create,
    members_of,
    node,
    start,
)
from tests.processes.grouping import DEADLINE_S, Marks, Process, check_order
from tests.processes.nodes import TestNode
from tests.processes.waiting import await_

__all__ = ["node", "start"]  # the fixtures

ROUNDS: Final = 16
LEAST, MOST = 3, 6  # members
RATE: Final = 1_500.0


class Group:
    """One group, and what happens to it. Each thing happens under a load of its own, to a group that is at rest."""

    def __init__(self, node: TestNode, start: Any, name: str, seed: int, **settings: Any) -> None:
        self.node, self.name, self.settings = node, name, settings
        self.members: list[Process] = []
        self.living: dict[str, Process] = {}
        self.frozen: list[str] = []
        self.acked: set[str] = set()
        self._start = start
        self._random = random.Random(seed)
        self.marks = Marks(node, name, name, self.members)
        create(node, name)
        for _ in range(LEAST):
            self._add()
        self._await()

    def round(self, number: int) -> None:
        thing = self._random.choice([self.kill, self.kill, self.leave, self.freeze, self.kill_reader])
        print(thing.__name__, end=" ", flush=True)
        with Endless(self.node, self.name, number, rate=RATE) as load:
            self.marks.take(saved=thing == self.kill_reader)
            thing()
            for _ in range(self._random.randint(max(0, LEAST - len(self.living)), min(2, MOST - len(self.living)))):
                self._add()
            self._await()
            self.marks.take()
            self.acked |= load.stop()

    def kill(self) -> None:
        for name in self._random.sample(sorted(self.living), self._random.randint(1, len(self.living) - 1)):
            self.living.pop(name).kill()

    def leave(self) -> None:
        self.living.pop(self._any()).stop()

    def freeze(self) -> None:
        name = self._any()
        self.frozen.append(name)
        with self.living[name].frozen():
            await_members(self.node, self.name, *(self.living.keys() - {name}))

    def kill_reader(self) -> None:
        before = self.node.pids()
        os.kill(before["serve"], signal.SIGKILL)
        self.node.await_restarted("serve", before)

    def finish(self) -> None:
        await_read(self.members, self.acked)
        await_committed(self.node, self.name, self.name)
        for member in self.living.values():
            member.stop()

    def _any(self) -> str:
        return self._random.choice(sorted(self.living))

    def _add(self) -> None:
        name = f"m{len(self.members):03d}"
        self.members.append(self._start(self.name, self.name, name, max_count=50, **self.settings))
        self.living[name] = self.members[-1]

    def _await(self) -> None:
        def joined() -> bool:
            assert not (died := [name for name, member in self.living.items() if not member.runs]), f"{died} died"
            return members_of(self.node, self.name) == sorted(self.living)

        await_(joined, DEADLINE_S, f"the members are {sorted(self.living)}")


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("ordered", [False, True], ids=["in any order", "ordered"])
@pytest.mark.parametrize("strategy", ["average", "circle"])
def test_every_message_is_seen_in_order_and_what_is_seen_again_was_not_committed(
    node: TestNode, start: Any, strategy: str, ordered: bool
):
    seed = int(os.environ.get("TOWLINE_SEED") or random.SystemRandom().getrandbits(32))
    print(f"\nTOWLINE_SEED={seed}")
    started = time.monotonic()
    name = f"{strategy}-{'ordered' if ordered else 'plain'}"
    group = Group(node, start, name, seed, strategy=strategy, ordered=ordered)
    for number in range(ROUNDS):
        group.round(number)
    group.finish()
    print(f"\n{len(group.members)} members, {len(group.acked)} messages in {time.monotonic() - started:.0f} s")
    check_all_was_read(node, name, name, group.members)
    check_order(group.members)
    check_doubles(group.members, group.marks, group.acked)
    if ordered:
        check_one_reader_at_a_time(group.members, group.frozen)
