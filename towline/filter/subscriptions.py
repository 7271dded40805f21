"""SQL92 subscriptions of a node and the file config/consumerFilter.json (spec 7.3, RocketMQ's ConsumerFilterManager).

A record's bitmap is valid for a subscription only if reput evaluated the subscription when it dispatched the record,
which is: if the record was stored after `born_time`. So a new or changed subscription is PENDING until reput reports
that it evaluates it. A subscription that nobody uses any more is dead; reput evaluates it for another day, so that
consumers which come back within that day find valid bitmaps.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from towline.errors import MalformedFile
from towline.format.files.topics import loads_fastjson

from . import sql
from .bloom import Bloom, hash64, mark
from .errors import BadExpression

FILE: Final = "consumerFilter.json"
PENDING: Final = 2**63 - 1  # of a birth: later than every record, for a real broker too
DEAD_KEPT_MS: Final = 24 * 3600 * 1000
GENERATION: Final = "towlineGeneration"  # a member of the file that a real broker ignores
SILENT_MS: Final = 30 * 1000  # how long before a start its subscribers count as gone

_WORD: Final = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterData:
    """One subscription. Times in epoch ms; `bit_positions` in a bitmap of `bit_count` bits."""

    consumer_group: str
    topic: str
    expression: str
    bit_positions: tuple[int, ...]
    bit_count: int
    born_time: int = PENDING
    dead_time: int = 0
    client_version: int = 0
    expression_type: str = sql.TYPE

    @property
    def is_pending(self) -> bool:
        return self.born_time == PENDING

    @property
    def is_dead(self) -> bool:
        return self.dead_time > 0 and (self.is_pending or self.dead_time >= self.born_time)


_Evaluated = tuple[FilterData, sql.Expression]
Refused = tuple[FilterData, BadExpression]


class FilterTable:
    """The subscriptions of a node, one for each topic and group. The caller saves `content()` after a change."""

    def __init__(
        self, bloom: Bloom, entries: Iterable[FilterData] = (), generation: int = 0, refused: Iterable[Refused] = ()
    ) -> None:
        self.bloom = bloom
        self.refused = tuple(refused)  # what its file held and was left out
        self._generation = generation  # grows with each new expression: a table that comes back is not the old one
        self._entries = {(each.topic, each.consumer_group): each for each in entries}
        self._sorted: tuple[FilterData, ...] | None = None  # kept until the next change, as are the next two
        self._evaluated: dict[str, list[_Evaluated]] | None = None
        self._fingerprint: int | None = None

    def __iter__(self) -> Iterator[FilterData]:
        """By topic and group, dead ones too. A change meanwhile is not seen."""
        if self._sorted is None:
            self._sorted = tuple(self._entries[key] for key in sorted(self._entries))
        return iter(self._sorted)

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, topic: str, group: str) -> FilterData | None:
        return self._entries.get((topic, group))

    def of_topic(self, topic: str) -> list[FilterData]:
        """The subscriptions that reput evaluates for a record of the topic: dead ones too, by group."""
        return [each for each, _ in self._by_topic().get(topic, ())]

    def bitmaps(self, topic: str, properties: Sequence[bytes]) -> NDArray[np.uint8] | None:
        """A bitmap for each record of the topic, whose stored properties these are; None without subscriptions."""
        known = self._by_topic().get(topic)
        if not known:
            return None
        rows = self.bloom.rows(len(properties))
        for each, expression in known:
            mark(rows, expression.select(properties), each.bit_positions)
        return rows

    def _by_topic(self) -> dict[str, list[_Evaluated]]:
        """With the compiled expressions, of which there may be more than `sql.compile` keeps by itself."""
        if self._evaluated is None:
            found: dict[str, list[_Evaluated]] = {}
            for each in self:
                found.setdefault(each.topic, []).append((each, sql.compile(each.expression)))
            self._evaluated = found
        return self._evaluated

    @property
    def fingerprint(self) -> int:
        """A number in [0, 2**63) of what is to be evaluated. reput publishes that of the table which it uses.

        It does so between two batches and before the first record that it evaluates with the table.
        """
        if self._fingerprint is None:
            facts = [(each.topic, each.consumer_group, each.expression) for each in self]
            shape = (self.bloom.k, self.bloom.m)
            self._fingerprint = hash64(json.dumps([self._generation, shape, facts])) & _WORD
        return self._fingerprint

    def register(self, group: str, topic: str, expression: str, *, now: int, client_version: int | None = None) -> bool:
        """A subscriber says what it wants. True if the file should be saved. Raises BadExpression, changing nothing.

        A changed expression is a new subscription. `client_version` is the client's time of subscribing: one below the
        known version comes too late and is ignored. Without it, this call is the newest.
        """
        sql.compile(expression)
        known = self._entries.get((topic, group))
        latest = 0 if known is None else known.client_version
        version = max(now, latest) if client_version is None else client_version
        if version < latest:
            return False
        positions = self.bloom.positions(group, topic)
        if known is None or known.expression != expression:
            entry = FilterData(
                consumer_group=group,
                topic=topic,
                expression=expression,
                bit_positions=positions,
                bit_count=self.bloom.m,
                client_version=version,
            )
            self._generation = max(self._generation + 1, now)
        else:
            entry = replace(known, client_version=version, dead_time=0)
        self._put(entry)
        return known is None or known.expression != expression or known.is_dead

    def retire(self, group: str, *, now: int, still: Iterable[str] = ()) -> bool:
        """Marks subscriptions of a group as dead, all but those to the topics in `still`.

        True if the file should be saved.
        """
        kept = set(still)
        leaving = [
            each for each in self if each.consumer_group == group and each.topic not in kept and not each.is_dead
        ]
        for each in leaving:
            dead_time = now if each.is_pending else max(now, each.born_time)  # a clock may have gone back
            self._put(replace(each, dead_time=dead_time))
        return bool(leaving)

    def clean(self, now: int) -> bool:
        """Deletes what has been dead for a day. True if something was deleted."""
        old = [each for each in self if each.is_dead and now - each.dead_time >= DEAD_KEPT_MS]
        for each in old:
            self._drop(each)
        return bool(old)

    def confirm(self, fingerprint: int, born_time: int) -> list[FilterData]:
        """reput has published the fingerprint: what was pending is born, if it is this table's. Those are returned.

        `born_time` is now, or the store time of the newest dispatched record if that is later, read after the
        fingerprint: whatever is dispatched from now on is evaluated.
        """
        if fingerprint != self.fingerprint:
            return []
        born = [replace(each, born_time=born_time) for each in self if each.is_pending]
        for each in born:
            self._put(each)
        return born

    def restart(self, now: int) -> None:
        """The server of subscribers begins anew: all of them count as gone until they say that they are there.

        What was pending is forgotten: nothing has relied on it.
        """
        for each in self:
            if each.is_pending:
                self._drop(each)
            elif each.dead_time == 0:
                dead_time = max(now - SILENT_MS, each.born_time)
                self._put(replace(each, dead_time=dead_time))

    def content(self) -> dict[str, Any]:
        """The object that consumerFilter.json holds."""
        topics: dict[str, Any] = {}
        for each in self:
            topic = topics.setdefault(each.topic, {"groupFilterData": {}, "topic": each.topic})
            topic["groupFilterData"][each.consumer_group] = _members(each)
        return {"filterDataByTopic": topics, GENERATION: self._generation}

    def _put(self, entry: FilterData) -> None:
        self._entries[entry.topic, entry.consumer_group] = entry
        self._sorted = self._evaluated = self._fingerprint = None

    def _drop(self, entry: FilterData) -> None:
        del self._entries[entry.topic, entry.consumer_group]
        self._sorted = self._evaluated = self._fingerprint = None


def read(content: dict[str, Any], bloom: Bloom, path: str) -> FilterTable:
    """The table in the object of the file at `path`, by Towline or RocketMQ. Raises MalformedFile, with the path.

    Empty if any of its bitmaps have another shape than `bloom`: all of the file is then out of date. Left out are
    expressions that cannot be compiled here (`refused`): their bits would be missing in what is dispatched from now on.
    """
    try:
        groups = [
            members
            for topic in content.get("filterDataByTopic", {}).values()
            for members in topic.get("groupFilterData", {}).values()
        ]
        entries = [_entry(members) for members in groups]
        generation = int(content.get(GENERATION, 0))
    except (AttributeError, KeyError, TypeError, ValueError) as problem:
        raise MalformedFile(path, f"it does not hold subscriptions ({problem!r})") from problem
    if any((len(each.bit_positions), each.bit_count) != (bloom.k, bloom.m) for each in entries):
        return FilterTable(bloom, generation=generation)
    sql_entries = [each for each in entries if each.expression_type == sql.TYPE]
    refused = [(each, error) for each in sql_entries if (error := _refusal(each.expression)) is not None]
    left_out = {(each.topic, each.consumer_group) for each, _ in refused}
    kept = [each for each in sql_entries if (each.topic, each.consumer_group) not in left_out]
    return FilterTable(bloom, kept, generation, refused)


def loads(text: str, bloom: Bloom, path: str) -> FilterTable:
    """As `read`, from the text of the file."""
    return read(loads_fastjson(text, path), bloom, path)


def without_births(content: Any) -> Any:
    """The content of another node's file for this node: every subscription is pending here.

    A birth speaks of the bitmaps that one node's reput has made. This node may have others from when it was a master,
    for expressions that have changed since. What is no table stays as it is.
    """
    match content:
        case {"filterDataByTopic": dict(topics)}:
            return content | {"filterDataByTopic": {name: _pending_again(each) for name, each in topics.items()}}
        case _:
            return content


def _pending_again(topic: Any) -> Any:
    match topic:
        case {"groupFilterData": dict(groups)}:
            pending = {"bornTime": PENDING}
            found = {group: each | pending if isinstance(each, dict) else each for group, each in groups.items()}
            return topic | {"groupFilterData": found}
        case _:
            return topic


def _refusal(expression: str) -> BadExpression | None:
    try:
        sql.compile(expression)
    except BadExpression as error:
        return error
    return None


def _members(entry: FilterData) -> dict[str, object]:
    return {
        "bloomFilterData": {"bitNum": entry.bit_count, "bitPos": list(entry.bit_positions)},
        "bornTime": entry.born_time,
        "clientVersion": entry.client_version,
        "consumerGroup": entry.consumer_group,
        "dead": entry.is_dead,
        "deadTime": entry.dead_time,
        "expression": entry.expression,
        "expressionType": entry.expression_type,
        "topic": entry.topic,
    }


def _entry(members: dict[str, Any]) -> FilterData:
    bits = members.get("bloomFilterData") or {}
    return FilterData(
        consumer_group=str(members["consumerGroup"]),
        topic=str(members["topic"]),
        expression=str(members["expression"]),
        expression_type=str(members["expressionType"]),
        born_time=int(members.get("bornTime", PENDING)),
        dead_time=int(members.get("deadTime", 0)),
        client_version=int(members.get("clientVersion", 0)),
        bit_positions=tuple(map(int, bits.get("bitPos", ()))),
        bit_count=int(bits.get("bitNum", 0)),
    )
