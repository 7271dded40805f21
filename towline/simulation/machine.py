"""A simulated machine: a disk, a clock, and the processes of one node, which a fault may end or hold up."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

from towline.clock import Clock
from towline.format.files.epochs import IMPLIED, node_of
from towline.log.state.role_file import MASTER, SLAVE
from towline.node.peers.peer_client import PeerAnswers
from towline.node.process.context import Node
from towline.node.roles.agreement import Report
from towline.node.roles.roles import as_role
from towline.node.store.confirmed import confirmed_parts
from towline.places import Runtime
from towline.runtime.positions import SIZE, Duty, Position, Positions
from towline.runtime.settings import Settings

from .disk import CHECKPOINT, EPOCHS, QUEUES, ROLE, Disk
from .etcd import Keys, SimulatedEtcd
from .history import History
from .network import Network
from .plan import Plan
from .world import US, Action, World

ASK_MS: Final = 1000  # of a question to all peers


class Killed(Exception):
    """The processes of a machine end at this step."""


class Processes(Protocol):
    """What runs on a machine: a start, a master or a slave."""

    role: str

    def answer(self, question: dict[str, Any]) -> dict[str, Any] | None:
        """What it says to a peer; None where nobody listens."""
        ...

    def stop(self) -> None:
        """An orderly end, in which it still says to others what there is to say."""
        ...

    def gone(self) -> None:
        """It was killed: its links break."""
        ...


class MachineClock:
    """Clocks of one machine: one that somebody sets, one that goes a little fast or slow."""

    def __init__(self, world: World, rate: float) -> None:
        self._world, self.rate, self.step_ms = world, rate, 0

    def now_ms(self) -> int:
        return 1_800_000_000_000 + self._world.now_ms + self.step_ms

    def monotonic_ms(self) -> int:
        return int(self._world.now_us * self.rate / US) + 1

    def ahead_ms(self) -> int:
        return 0

    def boottime_ns(self) -> int:
        return int(self._world.now_us * self.rate * 1000) + 1


class Words:
    """Memory in place of the positions file."""

    def __init__(self) -> None:
        self.path = Path("/simulated/positions")
        self.words = memoryview(bytearray(SIZE)).cast("q")

    def close(self) -> None:
        pass


class Sentences:
    """What processes log, for the trace."""

    def __init__(self, world: World, who: str) -> None:
        self._world, self._who = world, who

    def info(self, sentence: str, *values: object) -> None:
        if self._world.traced:
            self._world.say(self._who, sentence % values)

    warning = error = info


class NoBell:
    def ring(self) -> bool:
        return False


class View(Node):
    """A process's view of the simulated node."""

    def ringer(self, *duties: Duty) -> Any:
        return NoBell()


class Flagfile:
    """A file that is there or not."""

    def __init__(self, disk: Disk, name: str) -> None:
        self._disk, self._name = disk, name

    def exists(self) -> bool:
        return self._name in self._disk.files

    def unlink(self, *, missing_ok: bool = True) -> None:
        self._disk.files.pop(self._name, None)


class Files:
    """The part of a store that handshakes look at themselves."""

    root = Path("/simulated")

    def __init__(self, disk: Disk) -> None:
        self.doubt, self.accept_loss = Flagfile(disk, "doubt"), Flagfile(disk, "accept_loss")


@dataclass(frozen=True, slots=True)
class Left:
    """What a node whose processes have gone left in memory: its confirmed end, the end of its log."""

    confirmed: int
    end: int


@dataclass(eq=False)
class Group:
    """All that the machines of one group share."""

    world: World
    plan: Plan
    network: Network
    keys: Keys
    history: History
    machines: list["Machine"] = field(default_factory=list)
    promoted: list[Callable[["Machine"], None]] = field(default_factory=list)  # told of each new master


class Machine:
    """One machine. `generation` counts the starts of its node: what an earlier one was about to do is not done."""

    def __init__(self, group: Group, number: int) -> None:
        self.group, self.world, self.network, self.plan = group, group.world, group.network, group.plan
        self.number, self.name = number, f"node {number}"
        self.disk = Disk()
        self.clock = MachineClock(self.world, 1 + self.world.random.uniform(-0.02, 0.02))
        self.etcd = SimulatedEtcd(group.keys, group.network, number)
        self.generation = 0
        self.processes: Processes | None = None
        self.positions = Positions(Words())  # type: ignore[arg-type]
        self.settings: Settings = self.plan.settings(number, changed=False)
        self.changed = False  # the settings, from the next start on
        self.left: Left | None = Left(0, 0)
        self.paused_until_us = 0
        self.stall_ms = 0.0  # of the disk
        self.begin: Callable[[Machine, dict[str, Any] | None, bool], Processes] | None = None

    # --- time

    @property
    def up(self) -> bool:
        return self.processes is not None

    @property
    def is_master(self) -> bool:
        return self.processes is not None and self.processes.role == MASTER

    @property
    def paused(self) -> bool:
        return self.world.now_us < self.paused_until_us

    def after(self, delay_us: float, action: Action) -> None:
        """Has this start of the node do something later: when the machine is not paused any more."""
        self.world.after(delay_us, self.guarded(action))

    def guarded(self, action: Action, generation: int | None = None) -> Action:
        """The action for whatever calls it later, of this start of the node alone, or of that `generation`."""
        generation = self.generation if generation is None else generation

        def act() -> None:
            if generation != self.generation:
                return
            if self.paused:
                self.world.after(self.paused_until_us - self.world.now_us + 1, act)
                return
            try:
                action()
            except Killed:
                self.kill("at a step of its own")

        return act

    def receiver(self, handle: Callable[[Any], None]) -> Callable[[Any], None]:
        """Takes messages for this start of the node."""
        generation = self.generation

        def receive(message: Any) -> None:
            self.guarded(lambda: handle(message), generation)()

        return receive

    @property
    def shown(self) -> int:
        """Up to where its readers see its log now."""
        return self.positions.get(Position.DISPATCHED) if self.processes is not None and self.processes.role else 0

    # --- the node's life

    def start(self, order: dict[str, Any] | None = None, *, running: bool = False) -> None:
        """Begins a start of the node, which carries the order out."""
        assert self.begin is not None
        self.generation += 1
        self.settings = self.plan.settings(self.number, changed=self.changed)
        self.processes = self.begin(self, order, running)

    def order(self, order: dict[str, Any]) -> None:
        """The supervisor is told something: it stops the processes and starts them again."""
        self.after(self.world.between(1, 20), lambda: self._execute(order))

    def _execute(self, order: dict[str, Any]) -> None:
        if self.world.traced:
            self.world.say(self.name, f"is ordered to {order['order']}")
        self.stop()
        self.start(order, running=True)

    def stop(self) -> None:
        """An orderly stop: all is on the disk then, and memory says what was confirmed."""
        processes = self._end()
        if processes is not None:
            processes.stop()
            self.disk.flushed = self.disk.log.end

    def kill(self, how: str = "kill -9") -> None:
        """The processes end. What the page cache holds stays."""
        if self.world.traced:
            self.world.say(self.name, f"ends: {how}")
        processes = self._end()
        if processes is not None:
            processes.gone()

    def power_cut(self) -> None:
        """The machine ends, and all that was not synced."""
        self.kill("power cut")
        before = self.disk.log.end
        self.disk.power_cut(self.world.random)
        self.left = None
        files = self.disk.files
        role, epochs = files.get(ROLE), files.get(EPOCHS) or IMPLIED
        sole = role is not None and role.sole and node_of(epochs[-1].number) == self.number
        known, took = max(files.get(CHECKPOINT, 0), files.get(QUEUES, 0)), self.disk.log.end < before
        self.group.history.power_cut(self, known, sole=sole, took=took)
        if self.world.traced:
            self.world.say(self.name, f"has a log up to {self.disk.log.end}")

    def _end(self) -> Processes | None:
        processes, self.processes = self.processes, None
        self.generation += 1
        self.paused_until_us = 0
        if processes is not None and processes.role in (MASTER, SLAVE):
            settings = as_role(self.settings, processes.role)
            confirmed = min(self.positions.get(part) for part in confirmed_parts(settings, self.positions))
            self.left = Left(confirmed, self.disk.log.end)
        return processes

    def fresh_positions(self) -> Positions:
        self.positions = Positions(Words())  # type: ignore[arg-type]
        return self.positions

    def view(self, duty: Duty, role: str) -> View:
        """The node as one of its processes sees it."""
        log: Any = Sentences(self.world, f"{self.name} {duty.label}")
        clock: Clock = self.clock
        files: Any = Files(self.disk)
        settings = as_role(self.settings, role)
        runtime = Runtime(Path("/simulated/run"))
        return View(files, runtime, settings, self.positions, duty, self.generation, log, clock)

    # --- peers

    def peers(self) -> list["Machine"]:
        return [each for each in self.group.machines if each is not self]

    def ask_all(self, question: dict[str, Any], then: Callable[[PeerAnswers], None]) -> None:
        """Asks all peers at once, and goes on when all have answered or refused, or ASK_MS are over."""
        answers: dict[int, Report] = {}
        granted: set[int] = set()
        waited = {peer.number for peer in self.peers()}

        def end() -> None:
            waited.clear()
            silent = {str(peer.number): "no answer" for peer in self.peers() if peer.number not in answers}
            then(PeerAnswers(answers, frozenset(granted), silent))

        def heard(number: int, said: dict[str, Any] | None) -> None:
            if number not in waited:
                return
            waited.discard(number)
            if said is not None:
                answers[number] = said["report"]
                granted.update({number} if said.get("granted") else ())
            if not waited:
                end()

        for peer in self.peers():
            self.ask(peer, question, heard)
        self.after(ASK_MS * US, lambda: end() if waited else None)

    def ask(
        self, peer: "Machine", question: dict[str, Any], heard: Callable[[int, dict[str, Any] | None], None]
    ) -> None:
        """Asks one peer; None is heard where nobody listens, a lost question or answer is silence."""
        generation = self.generation

        def arrive() -> None:
            if peer.up:
                peer.guarded(answer)()
            else:
                answer()

        def answer() -> None:
            said = None if peer.processes is None else peer.processes.answer(question)
            told = self.guarded(lambda: heard(peer.number, said), generation)
            self.network.deliver(peer.number, self.number, told)

        self.network.deliver(self.number, peer.number, arrive)
