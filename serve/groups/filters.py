"""SQL92 subscriptions of groups, kept in config/consumerFilter.json for reput's bitmaps (spec 7.3).

A bitmap counts for a subscription from when reput has confirmed that it evaluates it; until then every record is
evaluated when it is pulled, so no message is missed.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from towline.clock import Clock
from towline.filter import sql, tags
from towline.filter.bloom import Bloom
from towline.filter.subscriptions import FilterData, FilterTable, read

from .errors import GroupRefused, Refusal
from .members import Group, Subscription
from .questions import SQL92

CLEAN_MS: Final = 60_000  # between two checks of what has been dead for long


def check(topics: Mapping[str, Subscription], *, enabled: bool) -> None:
    """Raises BadExpression with the position, GroupRefused FILTER_DISABLED."""
    for topic, each in topics.items():
        if each.kind != SQL92:
            tags.parse(each.expression)
        elif not enabled:
            sentence = f"{topic!r} is subscribed by SQL92, and this node does not filter by properties"
            raise GroupRefused(Refusal.FILTER_DISABLED, sentence)
        else:
            sql.compile(each.expression)


class GroupFilters:
    """The subscriptions. `evaluated` returns the fingerprint that reput published, `newest` the newest dispatched store
    time.

    `changes` counts changes that the file should hold.
    """

    def __init__(self, bloom: Bloom, clock: Clock, evaluated: Callable[[], int], newest: Callable[[], int]) -> None:
        self._bloom, self._clock, self._evaluated, self._newest = bloom, clock, evaluated, newest
        self._table = FilterTable(bloom)
        self._clean_ms = clock.monotonic_ms()
        self.changes = 0

    def read(self, content: dict[str, Any], path: str) -> FilterTable:
        return read(content, self._bloom, path)

    def load(self, table: FilterTable) -> None:
        """Adopts the table of an earlier serve process: its subscribers count as gone until they join again."""
        self._table = table
        self._table.restart(self._clock.now_ms())
        self.changes += 1

    def content(self) -> dict[str, Any]:
        return self._table.content()

    def get(self, topic: str, group: str) -> FilterData | None:
        """What the bits of a group stand for, or will when reput has read the newest file."""
        return self._table.get(topic, group)

    @property
    def waiting(self) -> bool:
        """Whether reput has not confirmed some subscription yet."""
        return any(each.is_pending for each in self._table)

    def subscribed(self, group: Group, topics: Mapping[str, Subscription]) -> None:
        """Adopts the expressions of a member that joined or changed them: they are the group's newest."""
        now = self._clock.now_ms()
        for topic, each in sorted(topics.items()):
            if each.kind == SQL92:
                self.changes += self._table.register(group.name, topic, each.expression, now=now)
        self.left(group.name, still_filtered(group))

    def left(self, name: str, still: Iterable[str]) -> None:
        """Keeps the group's filters only for topics in `still`."""
        self.changes += self._table.retire(name, now=self._clock.now_ms(), still=still)

    def cycle(self, now_ms: int) -> None:
        if self.waiting:
            fingerprint = self._evaluated()
            born_time = max(self._clock.now_ms(), self._newest())  # read after the fingerprint
            self.changes += bool(self._table.confirm(fingerprint, born_time))
        if now_ms >= self._clean_ms:
            self._clean_ms = now_ms + CLEAN_MS
            self.changes += self._table.clean(self._clock.now_ms())


def still_filtered(group: Group | None) -> list[str]:
    """The topics that some member filters by SQL92."""
    if group is None:
        return []
    subscriptions = [item for member in group.members.values() for item in member.topics.items()]
    return [topic for topic, each in subscriptions if each.kind == SQL92]
