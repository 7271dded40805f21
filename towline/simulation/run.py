"""One seed from beginning to end, and many of them on all cores."""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Final

from towline.runtime.settings_model import FlushDiskType

from .clients import Consumer, Producer
from .etcd import Keys
from .faults import Faults, Operator
from .history import RULES, AllCopiesLost, Broken, History
from .idempotent import IdempotentProducer
from .machine import Group, Machine
from .master import Master
from .network import Network
from .plan import PRODUCERS, Plan, plan_of
from .starting import begin
from .world import World

CHUNK: Final = 20  # seeds that a process takes at once
BLOCK: Final = 10_000  # seeds that wait for a process

Said = Callable[[int, str, str], None]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one seed. `rule` names the invariant that broke, `what` says how; both are empty where all hold.

    `at_ms` and `step`: when it broke, in simulated time and in events. `repeats`: batches of idempotent producers that
    were answered by the place where they stood. `lost`: every copy of something was
    lost with the power of its machines, where the settings allow that, and the history ended there.
    """

    seed: int
    steps: int
    acknowledged: int
    epochs: int
    cuts: int
    repeats: int
    lost: bool
    rule: str = ""
    what: str = ""
    at_ms: int = 0

    @property
    def held(self) -> bool:
        return not self.rule


class Simulation:
    """A group, its clients, its faults, and the invariants, of one seed."""

    def __init__(self, seed: int, said: Said | None = None, plan: Plan | None = None) -> None:
        self.seed = seed
        self.plan = plan = plan_of(seed) if plan is None else plan
        self.world = world = World(seed, said)
        network = Network(world, loss=plan.loss, doubling=plan.doubling, delay_ms=plan.delay_ms)
        self.history = History(world, keeps_all=plan.keeps_all, on_disk=plan.flush is FlushDiskType.SYNC_FLUSH)
        self.group = group = Group(world, plan, network, Keys(world), self.history)
        group.machines += [Machine(group, number) for number in range(plan.nodes)]
        for machine in group.machines:
            machine.begin = begin
            world.after(world.between(0, 100), machine.start)
        for number in range(PRODUCERS):
            (IdempotentProducer if number < plan.sequences.producers else Producer)(group, number)
        Consumer(group)
        Operator(group)
        Faults(group)
        world.checks.append(self._check)

    def _check(self) -> None:
        for machine in self.group.machines:
            self.history.look(machine)
            if isinstance(machine.processes, Master):
                master = machine.processes
                self.history.look_at_offset(machine, master.stored_offset, len(machine.disk.log.ends))

    def run(self) -> Outcome:
        """Runs to the end, or to the first invariant that does not hold."""
        rule, what, lost = "", "", False
        try:
            self.world.run(self.plan.duration_ms)
        except AllCopiesLost:
            lost = True
            self.world.say("end", "every copy of something was lost: what follows is another history")
        except Broken as broken:
            rule, what = broken.rule, broken.what
            self.world.say("broken", f"{RULES[rule]}: {what}")
        history, world = self.history, self.world
        return Outcome(
            seed=self.seed,
            steps=world.steps,
            acknowledged=history.acknowledgements,
            epochs=history.promotions,
            cuts=history.cuts,
            repeats=history.repeats,
            lost=lost,
            rule=rule,
            what=what,
            at_ms=world.now_ms,
        )


def run_seed(seed: int, said: Said | None = None) -> Outcome:
    """Also a failure of the decisions themselves, as an assertion, says of which seed it is."""
    try:
        return Simulation(seed, said).run()
    except Exception as error:
        error.add_note(f"in seed {seed}: `towline simulate --seed {seed}`")
        raise


def run_seeds(first: int, count: int, processes: int | None = None) -> Iterator[Outcome]:
    """The outcomes of `count` seeds from `first` on, in their order, from as many processes as there are cores."""
    processes = min(processes or len(os.sched_getaffinity(0)), -(-count // CHUNK))
    if processes == 1:
        yield from map(run_seed, range(first, first + count))
        return
    with ProcessPoolExecutor(processes) as pool:
        for begin in range(first, first + count, BLOCK):
            block = range(begin, min(begin + BLOCK, first + count))
            yield from pool.map(run_seed, block, chunksize=CHUNK)
