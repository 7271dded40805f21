"""Bodies of what RocketMQ's tools ask about a broker as a whole: producers, entries of a queue, counts (spec 11.3)."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .consumers import SubscriptionData
from .routes import Broker


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


@dataclass(frozen=True, slots=True)
class SlaveFacts:
    """A connected slave. `address`: `host:port` of its ha service; `appended`: the end of its log; `behind`: bytes that
    it lacks; `per_second`: bytes that it got in a second."""

    address: str
    appended: int
    behind: int
    in_sync: bool
    per_second: int

    @property
    def members(self) -> dict[str, Any]:
        return {
            "addr": self.address,
            "diff": self.behind,
            "inSync": self.in_sync,
            "slaveAckOffset": self.appended,
            "transferFromWhere": self.appended,
            "transferredByteInSecond": self.per_second,
        }


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


def subscription_of_group(group: str, topic: str, said: SubscriptionData | None) -> bytes:
    """What a group subscribes to of a topic; without a subscription none is named."""
    found = {} if said is None else {"subscriptionData": subscription_members(topic, said)}
    return _json({"group": group, **found, "topic": topic})


def correction_offsets(offsets: Mapping[int, int]) -> bytes:
    """By queue."""
    return _json({"correctionOffsets": {str(queue): offset for queue, offset in sorted(offsets.items())}})


def ha_status(end: int, slaves: Sequence[SlaveFacts]) -> bytes:
    """Of a master whose log ends at `end`."""
    return _json(
        {
            "haConnectionInfo": [each.members for each in slaves],
            "inSyncSlaveNums": sum(each.in_sync for each in slaves),
            "master": True,
            "masterCommitLogMaxOffset": end,
        }
    )


def member_group(broker: Broker) -> bytes:
    """The brokers of one name: master and slaves."""
    members = {name: value for name, value in broker.members.items() if name != "enableActingMaster"}
    return _json({"brokerMemberGroup": members})


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
