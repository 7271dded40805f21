"""A sitting: a system does works of one setup, one after the other, on a server of its own."""

import os
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from towline.errors import BenchFailed

from .client_process import Client
from .plan import Durability, Kind, Work
from .systems import SYSTEMS, Server, client_of
from .usage import cpu_s, memory_of

US: Final = 1e6
STORE_PAGES: Final = "store_pages_mb"
AFTER_KILL: Final = "replay_per_s"


class Sitting:
    """Used as a context manager: at its end server and clients have gone, with all they wrote below `root`.

    What fails takes the server with it; the next work has a new one.
    """

    def __init__(self, system: str, root: Path) -> None:
        self._system, self._root = system, root
        self._directory = root
        self._server: Server | None = None
        self._clients: dict[tuple[str, ...], list[Client]] = {}  # by their command

    def __enter__(self) -> "Sitting":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._end()

    def measure(self, work: Work) -> dict[str, Any]:
        """The figures of one work. Raises Missing, BenchFailed."""
        try:
            server = self._started(work)
            os.sync()  # what the disk owes for the work before, or for the start, is not this one's
            match work.kind:
                case Kind.STORED:
                    return self._stored(server, work)
                case Kind.REPLAY | Kind.OBJECTS | Kind.JAVA_PUSH:
                    return self._replay(server, work)
                case Kind.IDLE:
                    return self._idle(server, work)
                case _:
                    return self._run(server, work)
        except BaseException:
            self._end()
            raise

    def restart_s(self, work: Work) -> float:
        """The server, which did that work, is killed and started on what it stored: seconds until it acknowledges
        again, to a client that stands ready."""
        assert self._server is not None
        with Client(SYSTEMS[self._system].client()) as first:
            first.prepare(self._server.address, replace(work, kind=Kind.FIRST, count=1))
            first.await_ready()
            self._server.kill()
            began = time.perf_counter()
            self._server.again()
            first.go()
            first.answer()
            return time.perf_counter() - began

    def _started(self, work: Work) -> Server:
        if self._server is None:
            self._directory = Path(tempfile.mkdtemp(dir=self._root, prefix=self._system))
            self._server = SYSTEMS[self._system].start(self._directory, work.setup)
        self._server.await_segments()
        return self._server

    def _end(self) -> None:
        """What one of them meets at its end does not keep the others."""
        server, clients = self._server, [client for some in self._clients.values() for client in some]
        self._server, self._clients = None, {}
        with ExitStack() as stack:
            if server is not None:
                stack.callback(server.end)
            for client in clients:
                stack.callback(client.end)

    def _ready(self, server: Server, work: Work) -> list[Client]:
        command = client_of(self._system, work)
        clients = self._clients.setdefault(tuple(command), [])
        while len(clients) < work.clients:
            clients.append(Client(command))
        some = clients[: work.clients]
        for client in some:
            client.prepare(server.address, work)
        for client in some:
            client.await_ready()
        return some

    def _run(self, server: Server, work: Work) -> dict[str, Any]:
        """All clients begin at once. CPU is the server's, until it owes nothing."""
        clients = self._ready(server, work)
        before = cpu_s(server.pids())
        for client in clients:
            client.go()
        answers = [client.answer() for client in clients]
        began = time.perf_counter()
        server.await_dispatched()
        behind_s = time.perf_counter() - began
        after = cpu_s(server.pids())
        count = sum(answer["count"] for answer in answers)
        by_process = {name: US * (seconds - before.get(name, 0.0)) / max(1, count) for name, seconds in after.items()}
        return {
            "count": count,
            "per_s": count / max(answer["seconds"] for answer in answers),
            "quantiles_us": [max(each) for each in zip(*(answer["quantiles_us"] for answer in answers), strict=True)],
            "by_time": _summed([answer["by_time"] for answer in answers]),
            "behind_s": behind_s,
            "cpu_us": sum(by_process.values()),
            "cpu_us_by_process": {name: us for name, us in by_process.items() if us > 0},
        }

    def _replay(self, server: Server, work: Work) -> dict[str, Any]:
        self._run(server, replace(work, kind=Kind.FILL, clients=1))
        server.await_segments()
        found = self._run(server, work)
        if found["count"] < work.count:
            raise BenchFailed(f"{found['count']} of {work.count} messages came")
        return found

    def _idle(self, server: Server, work: Work) -> dict[str, Any]:
        """What those processes take that hold connections which say nothing."""
        bare = memory_of(server.front_pids(), self._directory).own
        clients = self._ready(server, work)
        front = server.front_pids()
        began, before = time.perf_counter(), sum(cpu_s(front).values())
        time.sleep(work.seconds)
        share = (sum(cpu_s(front).values()) - before) / (time.perf_counter() - began)
        memory = memory_of(front, self._directory).own
        for client in clients:
            client.go()
        answers = [client.answer() for client in clients]
        count = sum(answer["count"] for answer in answers)
        return {
            "count": count,
            "per_s": count / max(answer["seconds"] for answer in answers),
            "idle_mb": memory / US,
            "idle_bytes_each": (memory - bare) / count,
            "idle_cpu_percent": 100 * share,
        }

    def _stored(self, server: Server, work: Work) -> dict[str, Any]:
        """Fills; what the server takes for it; kill -9, and how long until it acknowledges again; what is lost."""
        found = self._run(server, replace(work, kind=Kind.FILL))
        memory = memory_of(server.pids(), self._directory)
        disk = server.disk_bytes()
        first_ack_s = self.restart_s(work)
        server.await_dispatched()
        acknowledged = found["count"]
        replayed = self._run(server, replace(work, kind=Kind.REPLAY, count=acknowledged, durability=Durability.ASYNC))
        return found | {
            "memory_mb": memory.own / US,
            STORE_PAGES: memory.store / US,
            "disk_per_byte": disk / (found["count"] * work.body),
            "first_ack_s": first_ack_s,
            AFTER_KILL: replayed["per_s"],
            "lost": max(0, acknowledged - replayed["count"]),
        }


def _summed(curves: Sequence[list[int]]) -> list[int]:
    """Of all clients; the shorter ones have ended."""
    longest = max((len(curve) for curve in curves), default=0)
    return [sum(curve[at] for curve in curves if at < len(curve)) for at in range(longest)]
