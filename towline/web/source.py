"""Asks the nodes: looks at each, and reads the lists of topics, groups and segments. By threads, none twice at once."""

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from towline.client.admin import AdminClient
from towline.client.looks import Look, Watched, look_at, nodes_of
from towline.errors import TowlineError

from .changes import Row

LOOK_MS: Final = 1_000
LIST_MS: Final = 3_000
WHOLE_MS: Final = 5_000
WHOLE_S: Final = 30.0  # between two answers with what takes a node long
COUNTED_MAX: Final = 1_000  # topics whose counters a node tells: those with the most messages
NAME: Final = "towline web"

Where = Callable[[], dict[str, str]]  # the endpoint of each node -> the name of its group, "" where one has none
Counters = tuple[int, int, int]  # messages put, their bytes, messages read


@dataclass(frozen=True, slots=True)
class Asked:
    """What nodes a list is asked of: group -> endpoint of its master, and every node that answers by its label."""

    masters: Mapping[str, str]
    nodes: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Listed:
    """The rows of a list, and why some of them are those of before."""

    rows: list[Row]
    why: list[str]


class Lists(Protocol):
    """What a collector needs of who asks."""

    def names(self) -> dict[str, str]:
        """The nodes as they are known now, with their groups; other nodes than at the last call may be among them."""
        ...

    def look(self, name: str) -> Look:
        """One look at a node."""
        ...

    def read(self, part: str, asked: Asked) -> Listed:
        """One of the lists in LISTS."""
        ...

    def close(self) -> None:
        """Ends every connection; whoever asks next opens them anew."""
        ...


@dataclass
class _Asker:
    """Asks a node for its status, briefly, so that it is soon known whether it answers; then, each half minute and when
    it has processes that it had not before, for what takes it long, as their memory."""

    admin: AdminClient
    patient: AdminClient
    whole_at: float | None = None  # when all of it is due; None before the first answer
    known: frozenset[int] = frozenset()  # processes at the last whole answer

    def __call__(self) -> dict[str, Any]:
        status = self.admin.node_status(brief=True)
        now = time.monotonic()
        if self.whole_at is None:
            self.whole_at = now  # what is known at once is shown at once
            return status
        pids = frozenset(each["pid"] for each in status["processes"])
        if now >= self.whole_at or not pids <= self.known:
            self.whole_at, self.known = now + WHOLE_S, pids
            with suppress(TowlineError):
                return self.patient.node_status()
        return status

    def close(self) -> None:
        self.admin.close()
        self.patient.close()


@dataclass
class _Counted:
    """Counters of a group's topics at one moment."""

    at: float
    topics: dict[str, Counters]


@dataclass
class Source:
    """The nodes that `where` names, each with a connection for looks and one for lists."""

    where: Where
    _looks: dict[str, tuple[Watched, _Asker]] = field(default_factory=dict)
    _clients: dict[str, AdminClient] = field(default_factory=dict)
    _names: dict[str, str] = field(default_factory=dict)
    _counted: dict[str, _Counted] = field(default_factory=dict)
    _listed: dict[str, dict[str, list[Row]]] = field(default_factory=dict)

    def names(self) -> dict[str, str]:
        """Those of before where nobody says now which they are."""
        try:
            self._names |= self.where()
        except TowlineError:
            if not self._names:
                raise
        return dict(self._names)

    def look(self, name: str) -> Look:
        """Opens the connection where there is none."""
        if name not in self._looks:
            asker = _Asker(_client_of(name, LOOK_MS), _client_of(name, WHOLE_MS))
            self._looks[name] = Watched(name, asker), asker
        return look_at(self._looks[name][0])

    def read(self, part: str, asked: Asked) -> Listed:
        """Of a node that does not answer the rows of before, and why."""
        ask, by_node = LISTS[part]
        known = self._listed.setdefault(part, {})
        places = asked.nodes if by_node else asked.masters
        why = []
        for place, endpoint in places.items():
            try:
                known[place] = ask(self, place, self._client(endpoint))
            except TowlineError as error:
                why.append(f"{place or endpoint}: {error.describe()}")
            except Exception as error:  # of one node: the others have their rows all the same
                why.append(f"{place or endpoint}: {odd(error)}")
        return Listed([row for rows in known.values() for row in rows], why)

    def _client(self, endpoint: str) -> AdminClient:
        if endpoint not in self._clients:
            self._clients[endpoint] = _client_of(endpoint, LIST_MS)
        return self._clients[endpoint]

    def topics(self, group: str, admin: AdminClient) -> list[Row]:
        """key, group, topic, write queues, read queues, perm, ordered, system, messages put, put a second, bytes put a
        second, messages read, read a second. Rates are since the list of before, None without one; counters are None
        of a topic that is not among the busiest."""
        topics = admin.topics()
        now, counted = time.monotonic(), _counters(admin)
        before, self._counted[group] = self._counted.get(group), _Counted(now, counted)
        rows: list[Row] = []
        for topic in topics:
            name = topic["topic"]
            facts = [topic[key] for key in ("write_queues", "read_queues", "perm", "order", "system")]
            put, _, get = counted.get(name, (None, None, None))
            rates = _rates(counted.get(name), before, name, now)
            rows.append([f"{group}/{name}", group, name, *facts, put, rates[0], rates[1], get, rates[2]])
        return rows

    def groups(self, group: str, admin: AdminClient) -> list[Row]:
        """key, group of nodes, consumer group, model, members, lag in messages, topics."""
        return [
            [f"{group}/{row['group']}", group, row["group"], row["model"], row["members"], row["lag"], row["topics"]]
            for row in admin.groups(lag=True)
        ]

    def segments(self, node: str, admin: AdminClient) -> list[Row]:
        """A row for each node: its label, what `AdminClient.node_segments` answers, without its clock."""
        found = admin.node_segments()
        return [[node, {key: value for key, value in found.items() if key != "now_ms"}]]

    def close(self) -> None:
        clients: list[AdminClient | _Asker] = [*self._clients.values(), *(asker for _, asker in self._looks.values())]
        self._looks, self._clients, self._counted, self._listed, self._names = {}, {}, {}, {}, {}
        for client in clients:
            client.close()


def odd(error: Exception) -> str:
    """Why an answer of a node is not shown that lacks what it should have, or has it otherwise."""
    said = f"{type(error).__name__}: {error}".removesuffix(": ")
    return f"what it answers is not as nodes of this version answer ({said}); run it with the version of `towline web`"


# part -> how it is asked, and whether of every node or of masters alone
LISTS: Final[Mapping[str, tuple[Callable[[Source, str, AdminClient], list[Row]], bool]]] = {
    "topics": (Source.topics, False),
    "groups": (Source.groups, False),
    "segments": (Source.segments, True),
}


def _client_of(endpoint: str, timeout_ms: int) -> AdminClient:
    return AdminClient(endpoint, name=NAME, timeout_ms=timeout_ms)


def _counters(admin: AdminClient) -> dict[str, Counters]:
    """Since the node was started. Rates are taken here, so that the node need not wait between two readings."""
    rows = admin.node_stats(1, top=COUNTED_MAX)["topics"]
    return {row["topic"]: (row["put"]["messages"], row["put"]["bytes"], row["get"]["messages"]) for row in rows}


def _rates(now: Counters | None, before: _Counted | None, topic: str, at: float) -> tuple[float | None, ...]:
    """Per second; none for a node that was started anew in between."""
    if now is None or before is None:
        return None, None, None
    old, seconds = before.topics.get(topic, (0, 0, 0)), max(at - before.at, 1e-9)
    return tuple(round(max(0, new - was) / seconds, 1) for new, was in zip(now, old, strict=True))


def of_endpoint(endpoint: str) -> Where:
    """The nodes that an endpoint names, also those that a cluster file names later. Raises what `nodes_of` raises."""
    nodes_of(endpoint)  # what cannot be is refused before anything is served
    return lambda: nodes_of(endpoint)
