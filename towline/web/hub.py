"""One collector for all browsers: it asks the nodes while at least one of them looks, and tells each what is new.

Used by one thread, that of the event loop; the nodes are asked by others. What is told was encoded once, for everybody.
"""

import asyncio
import json
import logging
import time
from collections import deque
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from towline.client.looks import Look
from towline.errors import TowlineError

from .changes import Documents, Table
from .errors import TooManyBrowsers
from .shown import Sections, happened, label_of, sections_of
from .source import LISTS, Asked, Listed, Lists, odd

BROWSERS_MAX: Final = 32
QUEUED_MAX: Final = 64  # of one browser, that does not read; then it is told everything anew
EVENTS_MAX: Final = 100
THREADS: Final = 8
LINGER_S: Final = 2.0  # a browser that loads the page again finds the collector at work
SILENT_ROUNDS: Final = 3  # a node that does not answer is looked at in each third round

Told = dict[str, Any]

log = logging.getLogger(__name__)


def encode(event: str, document: Told) -> bytes:
    """A server-sent event: one line of JSON in ASCII, whatever the names in it are made of."""
    return b"event: %b\ndata: %b\n\n" % (event.encode(), json.dumps(document, separators=(",", ":")).encode())


class Subscription:
    """One browser: what it is to be told next. None is the end."""

    def __init__(self, parts: frozenset[str]) -> None:
        self.parts = parts
        self.queue: asyncio.Queue[bytes | None] = asyncio.Queue()

    def put(self, event: bytes | None) -> None:
        self.queue.put_nowait(event)


class Hub:
    """Browsers subscribe to the nodes and to lists; nothing runs while there are none."""

    def __init__(self, source: Lists, *, interval_s: float = 1.0, list_interval_s: float = 5.0) -> None:
        self._source, self._interval_s, self._list_interval_s = source, interval_s, list_interval_s
        self._browsers: set[Subscription] = set()
        self._events: deque[list[Any]] = deque(maxlen=EVENTS_MAX)
        self._task: asyncio.Task[None] | None = None
        self._news = asyncio.Event()  # a list is wanted that nobody wanted before
        self._over = False
        self._forget()

    def _forget(self) -> None:
        self._nodes = Documents()
        self._groups: dict[str, str] = {}
        self._tables = {part: Table() for part in LISTS}
        self._why: dict[str, list[str]] = {}
        self._asked_at: dict[str, float] = {}
        self._looking: dict[str, asyncio.Future[Look]] = {}
        self._reading: dict[str, asyncio.Future[Listed]] = {}
        self._trouble = ""

    @property
    def runs(self) -> bool:
        """Whether nodes are asked."""
        return self._task is not None and not self._task.done()

    def subscribe(self, parts: Iterable[str]) -> Subscription:
        """What is known is told first. Raises TooManyBrowsers."""
        if len(self._browsers) >= BROWSERS_MAX:
            raise TooManyBrowsers(BROWSERS_MAX)
        made = Subscription(frozenset(parts) & LISTS.keys())
        if self._over:
            made.put(None)
            return made
        self._browsers.add(made)
        if not self.runs:
            self._begin()
        else:
            self._tell_state(made)
            self._news.set()
        return made

    def _begin(self) -> None:
        self._forget()
        for browser in self._browsers:
            self._tell_state(browser)
        self._task = asyncio.get_running_loop().create_task(self._collect())
        self._task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """A browser may have come while the collector was at its end."""
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("the collector of the live page failed, and begins anew", exc_info=error)
        asyncio.get_running_loop().call_later(0.0 if task.cancelled() else LINGER_S, self._go_on)

    def _go_on(self) -> None:
        if self._browsers and not self._over and not self.runs:
            self._begin()

    def leave(self, browser: Subscription) -> None:
        """The last one ends the collector, a moment later."""
        self._browsers.discard(browser)
        if not self._browsers:
            asyncio.get_running_loop().call_later(LINGER_S, self._rest)

    def _rest(self) -> None:
        if not self._browsers and self._task is not None:
            self._task.cancel()

    async def end(self) -> None:
        """Every browser is told that there is no more."""
        self._over = True
        for browser in self._browsers:
            browser.put(None)
        self._browsers.clear()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    # --- what browsers are told

    def _tell_state(self, browser: Subscription) -> None:
        document = {"nodes": self._nodes.state(), "groups": self._groups, "happened": list(self._events)}
        browser.put(encode("state", document | {"now_ms": _now_ms(), "trouble": self._trouble}))
        for part in browser.parts:
            if part in self._why:
                browser.put(encode(part, self._tables[part].state() | {"why": self._why.get(part, [])}))

    def _tell(self, event: str, document: Told) -> None:
        said = encode(event, document)
        for browser in self._browsers:
            if event in LISTS and event not in browser.parts:
                continue
            if browser.queue.qsize() < QUEUED_MAX:
                browser.put(said)
                continue
            while not browser.queue.empty():
                browser.queue.get_nowait()
            self._tell_state(browser)

    # --- the collector

    async def _collect(self) -> None:
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(THREADS, "towline web") as pool:
            number = 0
            try:
                while True:
                    due = loop.time() + self._interval_s
                    await self._round(pool, number)
                    await self._read_lists(pool, due)
                    number += 1
            finally:
                if left := self._under_way():
                    await asyncio.wait(left)
                await loop.run_in_executor(pool, self._source.close)

    def _under_way(self) -> list[asyncio.Future[Any]]:
        return [*self._looking.values(), *self._reading.values()]

    async def _round(self, pool: ThreadPoolExecutor, number: int) -> None:
        """Looks at every node, and tells what is there soon. Who takes longer is not asked again before."""
        loop = asyncio.get_running_loop()
        if number % round(max(1.0, self._list_interval_s / self._interval_s)) == 0 or not self._groups:
            await self._find(pool)
        for name in self._groups:
            silent = not self._nodes[name].get("reach", {"answers": True})["answers"]
            if name not in self._looking and not (silent and number % SILENT_ROUNDS):
                self._looking[name] = loop.run_in_executor(pool, self._source.look, name)
        if self._looking:
            await asyncio.wait(self._looking.values(), timeout=0.8 * self._interval_s)
        self._take_looks()

    async def _read_lists(self, pool: ThreadPoolExecutor, until: float) -> None:
        """Those that are due, one after the other, and those that a new browser is the first to want."""
        loop = asyncio.get_running_loop()
        while (left := until - loop.time()) > 0:
            self._begin_list(pool, loop)
            news: asyncio.Future[Any] = loop.create_task(self._news.wait())
            await asyncio.wait([news, *self._reading.values()], timeout=left)
            news.cancel()
            self._news.clear()
            self._take_lists()

    async def _find(self, pool: ThreadPoolExecutor) -> None:
        """Which nodes there are."""
        try:
            found = await asyncio.get_running_loop().run_in_executor(pool, self._source.names)
            trouble = ""
        except TowlineError as error:
            found, trouble = self._groups, error.describe()
        except Exception as error:  # as of a cluster file that is no text: those that are known are looked at
            found, trouble = self._groups, f"{type(error).__name__}: {error}"
        if found != self._groups or trouble != self._trouble:
            self._groups, self._trouble = found, trouble
            self._tell("names", {"groups": found, "trouble": trouble})

    def _begin_list(self, pool: ThreadPoolExecutor, loop: asyncio.AbstractEventLoop) -> None:
        """Of those that somebody looks at the one that was asked longest ago, once there is a node to ask."""
        if self._reading:
            return
        asked = self._whom()
        if not asked.nodes:
            return
        wanted = frozenset().union(*(browser.parts for browser in self._browsers))
        now = loop.time()
        due = [
            part for part in wanted if now - self._asked_at.get(part, -self._list_interval_s) >= self._list_interval_s
        ]
        if due:
            part = min(due, key=lambda each: self._asked_at.get(each, 0.0))
            self._asked_at[part] = now
            self._reading[part] = loop.run_in_executor(pool, self._source.read, part, asked)

    def _whom(self) -> Asked:
        masters: dict[str, tuple[int, str]] = {}
        nodes = {}
        for name in self._nodes:
            sections = self._nodes[name]
            head = sections.get("head")
            if head is None or not sections["reach"]["answers"]:
                continue
            nodes[label_of(name, sections)] = name
            if head["role"] == "master":
                group, epoch = head["broker_name"], sections["positions"]["epoch"]
                masters[group] = max(masters.get(group, (-1, "")), (epoch, name))
        return Asked({group: name for group, (_, name) in masters.items()}, nodes)

    def _take_looks(self) -> None:
        changed, events = {}, []
        for name, looking in list(self._looking.items()):
            if not looking.done():
                continue
            del self._looking[name]
            before = dict(self._nodes[name])
            sections = _seen(name, looking, before)
            if found := self._nodes.change(name, sections):
                changed[name] = found
            events += [[_now_ms(), sentence] for sentence in happened(name, before, self._nodes[name])]
        self._events.extend(events)
        self._tell("nodes", {"now_ms": _now_ms(), "nodes": changed} | ({"happened": events} if events else {}))

    def _take_lists(self) -> None:
        for part, reading in list(self._reading.items()):
            if not reading.done():
                continue
            del self._reading[part]
            self._take_list(part, reading.result())

    def _take_list(self, part: str, listed: Listed) -> None:
        table, rows = self._tables[part], listed.rows
        first = not len(table)
        change = table.change(rows)
        if change or listed.why != self._why.get(part) or first:
            self._why[part] = listed.why
            self._tell(part, (table.state() if first else change) | {"why": listed.why})


def _seen(name: str, looking: asyncio.Future[Look], before: Sections) -> Sections:
    """What a look has found. A node whose answer nobody expected is told as one that does not answer, with the reason;
    the others are told as ever."""
    try:
        return sections_of(looking.result(), before, _now_ms())
    except Exception as error:
        why = odd(error)
        if before.get("reach", {}).get("why") != why:
            log.warning("what %s answers cannot be shown", name, exc_info=error)
        return sections_of(Look(name, None, why), before, _now_ms())


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
