"""The simulated network: requests that get lost, links that keep their order until they break, nodes cut off."""

from collections.abc import Callable
from typing import Any, Final

from .world import Action, World

ETCD: Final = -1  # the place of etcd in the network
CLIENT: Final = -2  # of the first client; further ones have lower numbers
BREAK_MS: Final = 3.0  # until the other end of a link that was closed knows


class Network:
    """Who reaches whom, and how long a message takes."""

    def __init__(self, world: World, *, loss: float, doubling: float, delay_ms: float) -> None:
        self.world = world
        self.loss, self.doubling, self.delay_ms = loss, doubling, delay_ms
        self.cut: set[tuple[int, int]] = set()  # in one direction
        self.slow: dict[tuple[int, int], float] = {}  # ms more, likewise

    def reaches(self, start: int, end: int) -> bool:
        return (start, end) not in self.cut

    def meet(self, one: int, other: int) -> bool:
        """Whether a question gets there and its answer back."""
        return self.reaches(one, other) and self.reaches(other, one)

    def delay_us(self, start: int, end: int) -> float:
        chance = self.world.random
        usual = chance.expovariate(1.0) * self.delay_ms
        rare = chance.uniform(10, 100) if chance.random() < 0.01 else 0.0
        return (0.05 + usual + rare + self.slow.get((start, end), 0.0)) * 1000

    def deliver(self, start: int, end: int, action: Action) -> None:
        """A message on a connection of its own: it may be lost, come twice, and pass others."""
        if not self.reaches(start, end) or self.world.chance(self.loss):
            return
        self.world.after(self.delay_us(start, end), action)
        if self.world.chance(self.doubling):
            self.world.after(self.delay_us(start, end), action)


class Link:
    """A connection of a slave to its master. What is sent comes in order; a frame may be dropped without a word (H20).

    `ends`: by node, what is called with a message, and what when the other end has closed it.
    """

    def __init__(self, network: Network, slave: int, master: int, generations: dict[int, int]) -> None:
        self.network, self.slave, self.master = network, slave, master
        self.generations = generations  # of the processes at both ends
        self.closed: set[int] = set()  # the ends that have closed it, or know
        self.facts: dict[str, Any] = {}
        self._ends: dict[int, tuple[Callable[[Any], None], Action]] = {}
        self._last_us = {slave: 0, master: 0}  # when the last message to that end arrives

    def attach(self, node: int, receive: Callable[[Any], None], closed: Action) -> None:
        self._ends[node] = receive, closed

    def other(self, node: int) -> int:
        return self.master if node == self.slave else self.slave

    def send(self, start: int, message: Any) -> None:
        """From that end to the other one."""
        end, world = self.other(start), self.network.world
        if start in self.closed or not self.network.reaches(start, end) or world.chance(self.network.loss / 20):
            return
        at = max(world.now_us + self.network.delay_us(start, end), self._last_us[end])
        if world.chance(self.network.doubling / 20):
            world.after(at - world.now_us + self.network.delay_us(start, end), lambda: self._arrive(end, message))
        self._last_us[end] = int(at)
        world.after(at - world.now_us, lambda: self._arrive(end, message))

    def close(self, node: int) -> None:
        """Closes that end; the other one hears of it where the network carries that."""
        if node in self.closed:
            return
        self.closed.add(node)
        end = self.other(node)
        if self.network.reaches(node, end):
            after = max(self._last_us[end] - self.network.world.now_us, 0) + BREAK_MS * 1000
            self.network.world.after(after, lambda: self._broken(end))

    def _arrive(self, node: int, message: Any) -> None:
        if node not in self.closed and node in self._ends:
            self._ends[node][0](message)

    def _broken(self, node: int) -> None:
        if node not in self.closed:
            self.closed.add(node)
            if node in self._ends:
                self._ends[node][1]()
