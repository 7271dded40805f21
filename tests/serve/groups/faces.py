"""What surrounds the groups in tests: a clock, queues, and peers that remember their answers or have gone."""

import logging
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from towline.errors import TowlineError
from towline.filter.bloom import Bloom
from towline.link.server import Sent
from towline.places import Store
from towline.runtime.settings import Settings
from towline.serve.groups.filters import GroupFilters
from towline.serve.groups.service import GroupService, Queues, ReplyChannel
from towline.serve.groups.watching import ReplyAddress

EXPIRES_MS = 10_000
LOG = logging.getLogger("serve")


class StillClock:
    def __init__(self) -> None:
        self.ms = 50_000

    def now_ms(self) -> int:
        return 1_700_000_000_000 + self.ms

    def monotonic_ms(self) -> int:
        return self.ms


@dataclass
class Room:
    """A service with its surroundings. `queues` of topics, `ends` of queues (lowest, end), `gone` peers.

    With a `bloom` reput computes bitmaps: by the file whose fingerprint is `evaluated`.
    """

    root: Path
    more: dict[str, Any] = field(default_factory=dict)
    queues: dict[str, int] = field(default_factory=lambda: {"t": 4, "u": 2})
    ends: dict[tuple[str, int], tuple[int, int]] = field(default_factory=dict)
    times: dict[int, int] = field(default_factory=dict)
    gone: set[bytes] = field(default_factory=set)
    settled: bool = True
    clock: StillClock = field(default_factory=StillClock)
    bloom: Bloom | None = None
    evaluated: int = 0
    newest: int = 0
    epoch: int = 256
    leads: bool = True
    succeeds: bool = False
    epoch_ends: dict[tuple[str, int], int] = field(default_factory=dict)  # of every epoch before

    def __post_init__(self) -> None:
        self.store = Store(self.root / "store")
        self.store.config.mkdir(parents=True, exist_ok=True)
        self.answers: dict[int, Mapping[str, Any]] = {}
        self.refused: dict[int, TowlineError] = {}
        self._next_id = 0
        self._made: GroupService | None = None
        self.begin()

    def begin(self) -> None:
        """A new process on the same files; the one before was stopped in order."""
        if self._made is not None:
            self._made.close()
        settings = Settings(store_path_root_dir=self.store.root, **self.more)
        queues = Queues(
            lambda topic: self.queues.get(topic, 0),
            lambda: self.queues or None,
            lambda topic, queue: self.ends.get((topic, queue), (0, 0)),
            lambda topic, queue, time: self.times[queue],
            lambda: self.settled,
            lambda: self.epoch,
            lambda topic, queue, epoch: self.epoch_ends.get((topic, queue)) if epoch < self.epoch else None,
            lambda: self.leads,
            lambda: self.succeeds,
        )
        line = ReplyChannel(self._send, self._refuse)
        filters = None
        if self.bloom is not None:
            filters = GroupFilters(self.bloom, self.clock, lambda: self.evaluated, lambda: self.newest)
        self._made = GroupService(self.store, settings, self.clock, LOG, queues, line, filters)
        self.service.load()
        self.service.cycle(self.clock.ms)

    @property
    def service(self) -> GroupService:
        assert self._made is not None
        return self._made

    def until_answered(self, number: int) -> dict[str, Any]:
        """For answers that wait for a file: the thread that writes it has real time."""
        deadline = time.monotonic() + 20.0
        while number not in self.answers:
            assert number not in self.refused, self.refused[number]
            assert time.monotonic() < deadline
            self.service.cycle(self.clock.ms)
        return dict(self.answers[number])

    def ask(self, op: str, peer: bytes = b"p", **facts: Any) -> int:
        """The number of the question, which `answers` or `refused` has when it was answered."""
        self._next_id += 1
        self.service.ask(peer, self._next_id, {"op": op, **facts})
        self.cycle()
        return self._next_id

    def cycle(self) -> None:
        if self.clock.ms >= self.service.due_ms:
            self.service.cycle(self.clock.ms)

    def advance(self, ms: int) -> None:
        """In steps, as the duty cycle looks."""
        end = self.clock.ms + ms
        while self.clock.ms < end:
            self.clock.ms = min(end, max(self.clock.ms + 1, self.service.due_ms))
            self.cycle()

    def told(self, op: str, peer: bytes = b"p", **facts: Any) -> dict[str, Any]:
        """The answer to a question that is answered at once. Raises what refuses it."""
        number = self.ask(op, peer, **facts)
        if number in self.refused:
            raise self.refused[number]
        return dict(self.answers[number])

    def join(self, member: str, group: str = "g", peer: bytes = b"", **facts: Any) -> dict[str, Any]:
        given = {"topics": {"t": {"expression": "*", "type": "TAG"}}, "instance": member, "from": "first"} | facts
        return self.told("group_join", peer or member.encode(), group=group, member=member, **given)

    def watch(self, member: str, generation: int, group: str = "g") -> int:
        facts = {"group": group, "member": member, "instance": member, "generation": generation}
        return self.ask("group_watch", member.encode(), **facts)

    def lock(
        self, member: str, queues: object, *, instance: str = "", claims: Iterable[object] = ()
    ) -> list[list[object]]:
        """Those that it has. The first answer of a group waits for a file."""
        facts = {"member": member, "instance": instance or member, "queues": queues, "claims": list(claims)}
        number = self.ask("group_lock", member.encode(), group="g", **facts)
        if number in self.refused:
            raise self.refused[number]
        return list(self.until_answered(number)["locked"])

    def configure(self, **settings: object) -> dict[str, Any]:
        return dict(self.until_answered(self.ask("group_configure", group="g", settings=settings))["settings"])

    def reset(self, to: object, topic: str = "t", **facts: object) -> dict[str, int]:
        number = self.ask("group_reset", group="g", topic=topic, to=to, **facts)
        return dict(self.until_answered(number)["offsets"])

    def commit(self, queues: dict[str, int], member: str = "", topic: str = "t", **facts: Any) -> dict[str, Any]:
        return self.told("group_commit", group="g", member=member, offsets={topic: queues}, **facts)

    def offsets(self, topic: str = "t", group: str = "g") -> dict[str, int]:
        return dict(self.told("group_offsets", group=group, topics=[topic])["offsets"][topic])

    def _send(self, reply_to: ReplyAddress, facts: Mapping[str, Any]) -> Sent:
        if reply_to.peer in self.gone:
            return Sent.GONE
        self.answers[reply_to.request_id] = facts
        return Sent.SENT

    def _refuse(self, reply_to: ReplyAddress, error: TowlineError) -> Sent:
        if reply_to.peer in self.gone:
            return Sent.GONE
        self.refused[reply_to.request_id] = error
        return Sent.SENT
