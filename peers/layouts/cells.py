"""The cells of the comparison: a layout, a number of queues, a policy of flushes; and the plan of a run."""

import math
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from peers.plan import Durability, Kind, Work
from towline.limits import GIB, KIB, MIB

from .load import Load
from .putting import ASYNC, ONE_LOG, PER_QUEUE, PER_QUEUE_WHOLE, SYNC

FEW: Final = 1000  # queues: cells with more have fewer rounds
LAYOUTS: Final = {
    (SYNC, ONE_LOG): "one CommitLog and ConsumeQueues",
    (SYNC, PER_QUEUE): "a log per partition",
    (SYNC, PER_QUEUE_WHOLE): "the same, one sync of the file system in place of one a partition",
    (ASYNC, ONE_LOG): "one CommitLog and ConsumeQueues",
    (ASYNC, PER_QUEUE): "a log per partition",
}
SERVERS: Final = ("towline", "rocketmq", "kafka")
_NO_FACTS: Final = ("servers", "drop_caches", "within_s")
_DURABILITY: Final = {SYNC: Durability.SYNC, ASYNC: Durability.ASYNC}


@dataclass(frozen=True, slots=True)
class Cell:
    """`system` is a layout that is driven in this process, or a server."""

    system: str
    queues: int
    flush: str

    @property
    def name(self) -> str:
        return f"{self.queues:,} queue{'s' if self.queues != 1 else ''}, {self.flush}"

    @property
    def is_server(self) -> bool:
        return self.system in SERVERS

    def guess_s(self) -> float:
        """About how long it takes, of which nothing is known yet."""
        if self.is_server:
            return 20.0 + self.queues / 100
        each = {SYNC: 0.001, ASYNC: 0.004 if self.system == ONE_LOG else 0.012}
        return (6.0 if self.flush == SYNC else 10.0) + self.queues * each[self.flush]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What one run does.

    seconds    of a burst under SYNC_FLUSH; under ASYNC_FLUSH it ends with `count` messages
    count      messages of a burst at most
    segment    bytes of a CommitLog segment, which takes all that is put
    rate       messages a second of the steady load under ASYNC_FLUSH, for `steady_s`; then the process is killed
    settles    the machine's disk has nothing left to write when a cell begins
    within_s   no cell begins that would end later
    """

    queues: tuple[int, ...] = (1, 10, 100, 1000, 10_000)
    server_queues: tuple[int, ...] = (1, 100, 1000)
    servers: tuple[str, ...] = SERVERS
    rounds: int = 3
    rounds_many: int = 2
    seconds: float = 2.0
    count: int = 300_000
    rate: int = 100_000
    steady_s: float = 2.0
    body: int = KIB
    segment: int = GIB
    settles: bool = True
    drop_caches: bool = False
    within_s: float = field(default=math.inf)

    def load(self, cell: Cell) -> Load:
        return Load(queues=cell.queues, body=self.body, segment=self.segment)

    def turns(self) -> list[tuple[int, Cell]]:
        """Round by round, in each the layouts of a cell one after the other; then the servers."""
        found = []
        for number in range(max(self.rounds, self.rounds_many)):
            for queues in self.queues:
                if number < (self.rounds if queues <= FEW else self.rounds_many):
                    found += [(number, Cell(layout, queues, flush)) for flush, layout in LAYOUTS]
        for queues in self.server_queues:
            found += [(0, Cell(name, queues, flush)) for flush in (SYNC, ASYNC) for name in self.servers]
        return found

    def facts(self) -> dict[str, Any]:
        """What makes two runs the same one, and what the page says of a run."""
        load = Load(queues=1, body=self.body)
        return {
            **{name: value for name, value in asdict(self).items() if name not in _NO_FACTS},
            "together": load.together,
            "group": load.group,
            "cold": "drop_caches" if self.drop_caches else "posix_fadvise",
        }


QUICK: Final = Plan(
    queues=(20,),
    server_queues=(),
    servers=(),
    rounds=1,
    rounds_many=1,
    seconds=0.2,
    count=10_000,
    rate=20_000,
    steady_s=0.3,
    segment=64 * MIB,
    settles=False,
)


def work_of(cell: Cell, plan: Plan) -> Work:
    """What a server does: as many messages on their way as its client holds, for so long as a burst takes."""
    return Work(
        kind=Kind.PUT,
        body=plan.body,
        seconds=plan.seconds,
        queues=cell.queues,
        durability=_DURABILITY[cell.flush],
    )
