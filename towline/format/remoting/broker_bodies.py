"""Bodies of what RocketMQ's tools ask about a broker as a whole: producers, entries of a queue, counts (spec 11.3)."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .consumers import SubscriptionData


@dataclass(frozen=True, slots=True)
class ProducerFacts:
    """A connected producer. `address`: `/host:port` from which it connects; `heard_ms`: of its last heartbeat."""

    client_id: str
    address: str
    language: str
    version: int
    heard_ms: int

    @property
    def members(self) -> dict[str, Any]:
        return {
            "clientId": self.client_id,
            "language": self.language,
            "lastUpdateTimestamp": self.heard_ms,
            "remoteIP": self.address,
            "version": self.version,
        }


@dataclass(frozen=True, slots=True)
class Counts:
    """Messages of a span of time, messages a second, messages of one count."""

    messages: int
    per_second: float
    each: float = 1.0

    @property
    def members(self) -> dict[str, Any]:
        return {"avgpt": self.each if self.messages else 0.0, "sum": self.messages, "tps": round(self.per_second, 6)}


def producer_table(groups: Mapping[str, Sequence[ProducerFacts]]) -> bytes:
    return _json({"data": {group: [each.members for each in members] for group, members in groups.items()}})


def stats_data(minute: Counts, hour: Counts, day: Counts) -> bytes:
    return _json({"statsDay": day.members, "statsHour": hour.members, "statsMinute": minute.members})


def queue_entries(
    low: int,
    end: int,
    entries: Sequence[tuple[int, int, int]],
    group: str,
    topic: str,
    subscription: SubscriptionData | None,
) -> bytes:
    """Entries of a queue [low, end): offset of the log, size, tag hash. Without a `group` none is named."""
    rows = [
        {"eval": False, "physicOffset": offset, "physicSize": size, "tagsCode": tags} for offset, size, tags in entries
    ]
    found: dict[str, Any] = {"maxQueueIndex": end, "minQueueIndex": low, "queueData": rows}
    if group and subscription is None:
        found["filterData"] = f"{group}@{topic} is not online!"
    elif subscription is not None:
        found["filterData"] = "null"  # of SQL92 a broker shows its bitmap
        found["subscriptionData"] = subscription_members(topic, subscription)
    return _json(found)


def subscription_members(topic: str, said: SubscriptionData) -> dict[str, Any]:
    """A subscription in a broker's words, as far as they are kept."""
    return {
        "classFilterMode": False,
        "codeSet": [],
        "expressionType": said.kind,
        "subString": said.expression,
        "subVersion": said.version,
        "tagsSet": [],
        "topic": topic,
    }


def _json(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
