"""Puts a load into a layout: groups one after the other, each acknowledged when it is as durable as the policy says."""

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from threading import Event, Thread
from typing import Final, Protocol

import numpy as np

from .load import Load, Numbers
from .log_per_queue import LogPerQueue
from .one_log import OneLog

ONE_LOG, PER_QUEUE, PER_QUEUE_WHOLE = "one-log", "log-per-queue", "log-per-queue-syncfs"
SYNC, ASYNC = "SYNC_FLUSH", "ASYNC_FLUSH"
FLUSH_EVERY_S: Final = 0.5  # flush_interval_commit_log, of RocketMQ and ours
DERIVE_EVERY: Final = 32  # groups

Group = tuple[Numbers, Numbers]  # queues, and which batch each of them gets


class Layout(Protocol):
    """A store that is written; see OneLog and LogPerQueue."""

    @property
    def room(self) -> bool: ...
    def prepare(self, queues: Numbers, rows: Numbers) -> None: ...
    def append(self) -> None: ...
    def sync(self) -> int: ...
    def derive(self) -> None: ...


def layout_of(name: str, directory: Path, load: Load) -> Layout:
    if name == ONE_LOG:
        return OneLog(directory, load)
    return LogPerQueue(directory, load, whole=name == PER_QUEUE_WHOLE)


class Put:
    """A process that appends. Every queue has its first batch before anything is timed."""

    def __init__(self, layout: Layout, load: Load, flush: str) -> None:
        self._layout, self._load, self._sync = layout, load, flush == SYNC
        self._groups = load.then()
        self._pause = Event()  # never set: to wait until a group is due
        self.messages = 0  # with the first ones
        self._begin()
        self._run(load.first())
        self._layout.derive()
        self._flusher.stop()
        self._layout.sync()

    def burst(self, count: int, seconds: float) -> dict[str, float]:
        """As fast as it goes until so many messages were put, or so much time was spent on it; then the rest is synced,
        which takes `rest_s`.

        Rates are of the time of appends, of syncs that were waited for, and of queues that were derived. Latency is of
        a group, from its arrival to its acknowledgement.
        """
        self._begin()
        before, cpu_s = self.messages, time.process_time()
        while self.messages - before < count and self._busy_s < seconds and self._layout.room:
            self._run(self._some(DERIVE_EVERY))
            self._derive()
        syncs = self._syncs + self._flusher.stop()
        done, cpu_s = self.messages - before, time.process_time() - cpu_s
        began = time.perf_counter()
        self._layout.sync()
        return {
            "messages": done,
            "per_s": done / self._busy_s,
            "mb_s": done * self._load.body / self._busy_s / 1e6,
            **self._latencies(),
            "syncs_per_s": syncs / self._busy_s,
            "syncs_per_group": syncs / len(self._us),
            "sync_share": self._sync_s / self._busy_s,
            "derive_share": self._derive_s / self._busy_s,
            "cpu_us": cpu_s * 1e6 / done,
            "rest_s": time.perf_counter() - began,
        }

    def steady(self, rate: int, seconds: float) -> dict[str, float]:
        """Groups that are due at that rate of messages; latency is from when each was due. `rate` as it was reached."""
        self._begin()
        before, began = self.messages, time.perf_counter()
        self._paced(rate, int(rate * seconds))
        reached = (self.messages - before) / (time.perf_counter() - began)
        syncs = self._flusher.stop()
        return {"rate": reached, **self._latencies(), "syncs_per_s": syncs / seconds}

    def go_on(self, rate: int, said: Path) -> None:
        """Appends at that rate until somebody kills this process; how many messages were acknowledged so far stands
        in the file, 8 bytes."""
        self._begin()
        with said.open("wb", buffering=0) as file:
            self._paced(rate, sys.maxsize, lambda: os.pwrite(file.fileno(), self.messages.to_bytes(8, "little"), 0))
        Event().wait()

    def _begin(self) -> None:
        self._us: list[float] = []
        self._busy_s = self._sync_s = self._derive_s = 0.0
        self._syncs = 0
        self._flusher = _Flusher(self._layout)
        if not self._sync:
            self._flusher.start()

    def _latencies(self) -> dict[str, float]:
        us = np.array(self._us)
        return {"p50_us": float(np.median(us)), "p99_us": float(np.quantile(us, 0.99)), "max_us": float(us.max())}

    def _paced(self, rate: int, count: int, each: Callable[[], object] = lambda: None) -> None:
        """`each` is called when a group is acknowledged."""
        began, before = time.perf_counter(), self.messages
        while (done := self.messages - before) < count and self._layout.room:
            due = began + done / rate
            late_s = time.perf_counter() - due
            if late_s < 0:
                self._pause.wait(-late_s)
                late_s = time.perf_counter() - due
            self._run(self._some(1))
            self._us[-1] += late_s * 1e6
            each()
            if len(self._us) % DERIVE_EVERY == 0:
                self._derive()

    def _some(self, count: int) -> Iterator[Group]:
        return (next(self._groups) for _ in range(count) if self._layout.room)

    def _run(self, groups: Iterable[Group]) -> None:
        layout, clock = self._layout, time.perf_counter
        for queues, rows in groups:
            layout.prepare(queues, rows)
            began = clock()
            layout.append()
            if self._sync:
                appended = clock()
                self._syncs += layout.sync()
                self._sync_s += clock() - appended
            took_s = clock() - began
            self._us.append(took_s * 1e6)
            self._busy_s += took_s
            self.messages += len(queues) * self._load.together

    def _derive(self) -> None:
        began = time.perf_counter()
        self._layout.derive()
        took_s = time.perf_counter() - began
        self._derive_s += took_s
        self._busy_s += took_s


class _Flusher:
    """Syncs at its interval on a thread of its own, as the flush process of a node does beside put."""

    def __init__(self, layout: Layout) -> None:
        self._layout, self._over, self._done = layout, Event(), 0
        self._error: BaseException | None = None
        self._thread = Thread(target=self._run, name="flush", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> int:
        """How many syncs there were, none where it was not started. Raises what went wrong."""
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()
        if self._error is not None:
            raise self._error
        return self._done

    def _run(self) -> None:
        try:
            while not self._over.wait(FLUSH_EVERY_S):
                self._done += self._layout.sync()
        except BaseException as error:
            self._error = error
