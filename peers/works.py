"""The works of a run, by group, in the quick form and in the full one; which are done together; how long they take."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from towline.limits import KIB

from .plan import JAVA as BY_JAVA
from .plan import PYTHON, Durability, Kind, Replica, Setup, Work
from .systems import JAVA, OURS, PYTHONS, SYSTEMS

SIZES: Final = (100, KIB, 16 * KIB)
RATE: Final = 5000.0
MILLION: Final = 1_000_000
RING_KINDS: Final = (Kind.PUT, Kind.SINGLE, Kind.RATE, Kind.TAIL)
TCP_KINDS: Final = (Kind.PUT, Kind.SINGLE, Kind.RATE, Kind.TAIL, Kind.REPLAY)
REMOTING_KINDS: Final = (Kind.PUT, Kind.SINGLE)
JAVAS: Final = ("towline-remoting", "rocketmq")  # with a port for RocketMQ's own clients
HOLDERS: Final = ("towline-remoting", "nats", "redis")  # of connections that say nothing
ORDER: Final = (
    Kind.TAIL,
    Kind.RATE,
    Kind.SINGLE,
    Kind.PUT,
    Kind.SEND,
    Kind.SEND_ASYNC,
    Kind.SEND_BODIES,
    Kind.JAVA_SYNC,
    Kind.JAVA_BATCH,
    Kind.JAVA_ASYNC,
)  # on one server: first what waits, last what fills disks
MORE: Final = "-more"  # ends the name of works of a group that are done in fewer rounds
MANY: Final = 1000  # queues: what has more is done last
BESIDE: Final = (1, 4)  # clients of the works that are compared in every round

# Guesses, until a turn has been measured: seconds of a start and an end, of what is around a work, of a warming.
START_S: Final = {"rocketmq": 6.0, "kafka": 6.0, **dict.fromkeys(OURS, 2.5)}
OTHERS_START_S: Final = 0.5
AROUND_S: Final = 1.0
WARM_MAX_S: Final = 3.0
FILL_PER_S: Final = 300_000  # messages
FILL_BYTES_PER_S: Final = 200_000_000
READ: Final = 0.4  # of the time that filling takes
AGAIN_S: Final = {"rocketmq": 6.0, "kafka": 13.0}  # after a kill
OTHERS_AGAIN_S: Final = 1.5


@dataclass(frozen=True, slots=True)
class Task:
    """A work, and in how many rounds it is done at most. `late`: at the end, if there is time for it."""

    work: Work
    rounds: int
    late: bool = False


@dataclass(frozen=True, slots=True)
class Comparison:
    """In each round every system does every work that has so many rounds; no turn begins that would end after
    `within_s` (as far as is known)."""

    systems: tuple[str, ...] = tuple(SYSTEMS)
    tasks: tuple[Task, ...] = ()
    limit_s: float = 0.5  # of each limit of the machine, each time it is taken
    within_s: float = math.inf

    @property
    def rounds(self) -> int:
        return max((task.rounds for task in self.tasks), default=0)

    def sittings(self) -> list[tuple[int, tuple[Work, ...]]]:
        """All that is done, in its order, each with the number of its round, from 0: round after round, then what is
        late. Works of a sitting are done one after the other on one server; one that reads what it filled, or kills,
        has a server for itself."""
        found = []
        for number in range(self.rounds):
            found += _together(number, (task.work for task in self.tasks if not task.late and task.rounds > number))
        return found + _together(0, (task.work for task in self.tasks if task.late))


def _together(number: int, works: Iterable[Work]) -> list[tuple[int, tuple[Work, ...]]]:
    found: dict[tuple[Setup, Work | None], list[Work]] = {}
    for work in works:
        found.setdefault((work.setup, None if work.kind in ORDER else work), []).append(work)
    return [
        (number, tuple(some if alone else sorted(some, key=lambda work: (ORDER.index(work.kind), work.body))))
        for (_, alone), some in found.items()
    ]


@dataclass(frozen=True, slots=True)
class Extent:
    """What the quick form and the full one differ in. `fewer`: rounds of the groups that have fewer than `rounds`."""

    seconds: float
    rounds: int
    clients: tuple[int, ...]
    delays_ms: tuple[int, ...]
    replayed: tuple[int, int]
    stored: tuple[tuple[int, int], ...]  # messages, bytes of a body
    queues: tuple[int, ...]
    connections: int
    full: bool
    fewer: Mapping[str, int] = field(default_factory=dict)


QUICK: Final = Extent(
    seconds=1.0,
    rounds=1,
    clients=(1, 4),
    delays_ms=(1,),
    replayed=(512_000, 128_000),
    stored=((256_000, KIB),),
    queues=(100,),
    connections=2_000,
    full=False,
)
FULL: Final = Extent(
    seconds=1.0,
    rounds=5,
    clients=(1, 2, 4),
    delays_ms=(1, 5),
    replayed=(1_024_000, 512_000),
    stored=((MILLION, KIB), (10 * MILLION, SIZES[0])),
    queues=(100, 10_000),
    connections=10_000,
    full=True,
    fewer={
        "put-more": 1,
        "single": 3,
        "tail": 2,
        "slow-sync": 1,
        "stored": 2,
        "queues": 1,
        **dict.fromkeys(BY_JAVA, 2),
        "idle": 1,
    },
)


def groups(extent: Extent) -> dict[str, tuple[Task, ...]]:
    """The names are those of `--works`."""
    found: dict[str, tuple[Task, ...]] = {}
    for name, works in _works(extent).items():
        rounds, group = extent.fewer.get(name, extent.rounds), name.removesuffix(MORE)
        tasks = tuple(Task(work, 1, late=True) if _is_large(work) else Task(work, rounds) for work in works)
        found[group] = found.get(group, ()) + tasks
    return found


def _works(extent: Extent) -> dict[str, tuple[Work, ...]]:
    """By the names that `fewer` knows."""
    seconds, sync = extent.seconds, Durability.SYNC
    beside = BESIDE if extent.full else BESIDE[:1]
    twice, idle_s = 2 * seconds, (10 if extent.full else 2) * seconds
    small = [(body, clients) for body in SIZES[:2] for clients in extent.clients]
    put = [Work(kind=Kind.PUT, body=body, clients=clients, seconds=seconds) for body, clients in small]
    synced = Work(kind=Kind.PUT, body=KIB, seconds=seconds, durability=sync)
    in_sync = replace(synced, durability=Durability.ASYNC, replica=Replica.IN_SYNC)
    return {
        "put": tuple(work for work in put if work.clients in BESIDE),
        f"put{MORE}": (
            *(work for work in put if work.clients not in BESIDE),
            *(Work(kind=Kind.PUT, body=SIZES[-1], clients=clients, seconds=seconds) for clients in beside),
        ),
        "single": tuple(Work(kind=Kind.SINGLE, body=KIB, clients=clients, seconds=seconds) for clients in beside),
        "tail": (Work(kind=Kind.TAIL, body=KIB, rate=RATE, seconds=twice),),
        "rate": tuple(
            Work(kind=Kind.RATE, body=KIB, rate=RATE, seconds=twice, durability=durability) for durability in Durability
        ),
        "sync": tuple(replace(synced, body=body, clients=BESIDE[-1]) for body in SIZES[:2]),
        "replay": tuple(
            Work(kind=Kind.REPLAY, body=body, count=count)
            for body, count in zip(SIZES[:2], extent.replayed, strict=True)
        ),
        "python": (
            Work(kind=Kind.SEND, body=KIB, seconds=seconds),
            Work(kind=Kind.SEND_ASYNC, body=SIZES[0], seconds=seconds),
            Work(kind=Kind.SEND_BODIES, body=SIZES[0], seconds=seconds),
            Work(kind=Kind.OBJECTS, body=SIZES[0], count=extent.replayed[0]),
        ),
        Kind.JAVA_SYNC: (Work(kind=Kind.JAVA_SYNC, body=KIB, seconds=seconds),),
        Kind.JAVA_BATCH: (Work(kind=Kind.JAVA_BATCH, body=KIB, seconds=seconds),),
        Kind.JAVA_ASYNC: (Work(kind=Kind.JAVA_ASYNC, body=KIB, seconds=seconds, window=1000),),
        Kind.JAVA_PUSH: (Work(kind=Kind.JAVA_PUSH, body=KIB, count=extent.replayed[1] // 2),),
        "idle": (Work(kind=Kind.IDLE, body=0, clients=BESIDE[-1], count=extent.connections, seconds=idle_s),),
        "replica": (replace(in_sync, replica=Replica.BEHIND), in_sync, replace(in_sync, durability=sync)),
        "slow-sync": tuple(replace(synced, sync_delay_ms=delay) for delay in extent.delays_ms),
        "stored": tuple(Work(kind=Kind.STORED, body=body, count=count) for count, body in extent.stored),
        "queues": tuple(Work(kind=Kind.PUT, body=KIB, seconds=seconds, queues=queues) for queues in extent.queues),
    }


def _is_large(work: Work) -> bool:
    return work.count > 2 * MILLION or work.queues > MANY


def takes_part(system: str, work: Work) -> bool:
    """A replica is Towline's own matter; ring, tcp and remoting are ways to put."""
    if work.kind in PYTHON:
        return system in PYTHONS and (work.kind is not Kind.SEND_BODIES or system == "towline")
    if work.kind in BY_JAVA:
        return system in JAVAS
    if work.kind is Kind.IDLE:
        return system in HOLDERS
    if system == "towline-remoting":
        return work.kind in REMOTING_KINDS and work.setup == Setup()
    if system == "towline-tcp":
        return work.kind in TCP_KINDS and replace(work.setup, durability=Durability.ASYNC) == Setup()
    if system == "towline-ring":
        return work.kind in RING_KINDS and work.queues == 1 and work.replica is Replica.NONE
    return work.replica is Replica.NONE or system in OURS


def guess_s(system: str, works: Iterable[Work]) -> float:
    """About how long a sitting takes, of which nothing is known yet."""
    taken = START_S.get(system, OTHERS_START_S)
    warm = set()
    for work in works:
        filling = work.count / FILL_PER_S + work.count * work.body / FILL_BYTES_PER_S
        taken += AROUND_S + (work.seconds if work.kind is Kind.IDLE or not work.count else filling * (1 + READ))
        if (system in JAVA or work.kind in BY_JAVA) and work.kind not in warm:
            taken += min(2 * work.seconds, WARM_MAX_S)
            warm.add(work.kind)
        if work.kind is Kind.STORED:
            taken += AGAIN_S.get(system, OTHERS_AGAIN_S)
    return taken
