"""Nodes that are made up: statuses as nodes answer them, and a source that counts how often it is asked."""

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from towline.client.looks import Look
from towline.web.hub import Hub, Subscription
from towline.web.source import Asked, Listed

_STATUS: dict[str, Any] = {
    "role": "master",
    "broker_name": "a",
    "broker_id": 0,
    "broker_role": "SYNC_MASTER",
    "flush_disk_type": "ASYNC_FLUSH",
    "store": "/var/a",
    "pid": 1,
    "started_ms": 1,
    "generation": 7,
    "read_only": False,
    "ready": True,
    "not_ready": [],
    "transient_pool": "off",
    "queues": 4,
    "positions": {"appended": 900, "flushed": 800, "replicated": 700, "dispatched": 700, "log_min": 0, "epoch": 256},
    "visible_end": 700,
    "lag": {"flush": 100},
    "slaves": [],
    "in_sync": {"members": [0], "degraded": False, "wanted": 1, "least": 1, "epoch": 256, "promised": 0},
    "held_back": None,
    "agreed": None,
    "master": None,
    "seeding": None,
    "lease": None,
    "delayed": None,
    "processes": [{"duty": "put", "pid": 2, "state": "RUNNING", "pss": 5 << 20}],
    "pss": 5 << 20,
    "space": {"used_percent": 10, "available": 1 << 40, "warning_level_percent": 90, "full_in_s": None},
    "disk": {},
    "archive": None,
    "dispatch_stopped": None,
    "damaged": {"count": 0},
    "flags": [],
    "refused": {"total": 0, "causes": []},
    "remoting": None,
}


def status(**changed: Any) -> dict[str, Any]:
    """What a node answers, with other members; `epoch` is that of its positions."""
    made = deepcopy(_STATUS)
    epoch = changed.pop("epoch", None)
    if epoch is not None:
        made["positions"]["epoch"] = epoch
    return made | changed


@dataclass
class MadeUp:
    """A source: `answers` are statuses by name, None for a node that is silent, an exception for one whose answer has
    what nobody expected; `rows` those of each list."""

    answers: dict[str, dict[str, Any] | Exception | None] = field(default_factory=lambda: {"tcp://one": status()})
    rows: dict[str, list[Any]] = field(default_factory=dict)
    asked: Counter[str] = field(default_factory=Counter)
    closed: int = 0

    def names(self) -> dict[str, str]:
        self.asked["names"] += 1
        return dict.fromkeys(self.answers, "a")

    def look(self, name: str) -> Look:
        self.asked[name] += 1
        found = self.answers[name]
        if isinstance(found, Exception):
            raise found
        return Look(name, found, "nobody listens there" if found is None else "")

    def read(self, part: str, asked: Asked) -> Listed:
        self.asked[part] += 1
        return Listed(deepcopy(self.rows.get(part, [])), [])

    def close(self) -> None:
        self.closed += 1


class Listening:
    """A browser that has subscribed to a hub."""

    def __init__(self, hub: Hub, *parts: str) -> None:
        self.subscription: Subscription = hub.subscribe(parts)
        self.heard: list[tuple[str, dict[str, Any]]] = []

    async def hear(self, wanted: Callable[[str, dict[str, Any]], bool], seconds: float = 10.0) -> dict[str, Any]:
        """The first event from here on for which that is true."""
        async with asyncio.timeout(seconds):
            while True:
                said = await self.subscription.queue.get()
                assert said is not None, "the hub has ended"
                for event, document in events(said):
                    self.heard.append((event, document))
                    if wanted(event, document):
                        return document


async def passing(seconds: float) -> None:
    """While nothing is waited for but that this time has passed: what does not happen has no event."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await asyncio.Event().wait()


def events(said: bytes) -> Iterator[tuple[str, dict[str, Any]]]:
    """What a stream of server-sent events holds."""
    for event in said.decode().strip().split("\n\n"):
        name, data = event.split("\n")
        yield name.removeprefix("event: "), json.loads(data.removeprefix("data: "))
