"""Describes groups in answers."""

from collections.abc import Callable, Mapping
from typing import Any

from towline.format.wire.allocation import allocate

from .locks import Queue
from .members import Group
from .offsets import NONE, Bounds, Offsets


def membership_facts(group: Group, member: str, resets: Mapping[str, int]) -> dict[str, Any]:
    """The facts by which a member divides the queues. `subscribers` names the topics that not every member reads."""
    own = group.members[member].topics
    summary = group.summary()
    facts = {
        "generation": group.generation,
        "members": summary.names,
        "queues": {topic: group.queues.get(topic, 0) for topic in own},
        "model": group.model,
        "strategy": group.strategy,
        "resets": dict(resets),
    }
    partly = {topic: names for topic in own if len(names := summary.subscribers[topic]) != len(summary.names)}
    return facts | ({"subscribers": partly} if partly else {})


def listed(
    name: str,
    group: Group | None,
    topics: set[str],
    offsets: Offsets,
    read_queues: Callable[[str], int],
    bounds: Bounds,
    *,
    lag: bool,
) -> dict[str, Any]:
    """A row of the answer to `group_list`. The lag needs a check of every queue, so it is computed only on request."""
    live = group is not None and bool(group.members)
    row = {
        "group": name,
        "model": group.model if group is not None and live else None,
        "members": len(group.members) if group is not None else 0,
        "topics": sorted(topics),
    }
    if lag:
        behind = (_behind(offsets.get(t, name, q), *bounds(t, q)) for t in topics for q in range(read_queues(t)))
        row["lag"] = sum(behind)
    return row


def describe(
    name: str,
    group: Group | None,
    settings: Mapping[str, Any],
    offsets: Offsets,
    read_queues: Callable[[str], int],
    bounds: Bounds,
    now_ms: int,
    warnings: Callable[[Group, str], list[str]] = lambda group, member: [],
) -> dict[str, Any]:
    """The answer to `group_describe`; `warnings` are those of a member."""
    topics = {topic: read_queues(topic) for topic in offsets.topics_of(name)}
    if group is not None:
        topics |= group.queues
    owners = _owners(group, now_ms) if group is not None else {}
    rows = []
    for topic in sorted(topics):
        for queue in range(topics[topic]):
            low, end = bounds(topic, queue)
            at = offsets.get(topic, name, queue)
            rows.append(
                {
                    "topic": topic,
                    "queue": queue,
                    "min": low,
                    "max": end,
                    "offset": at,
                    "lag": _behind(at, low, end),
                    "owner": owners.get((topic, queue)),
                }
            )
    return {
        "group": name,
        "generation": group.generation if group is not None else 0,
        "model": group.model if group is not None and group.members else None,
        "strategy": group.strategy if group is not None and group.members else None,
        "members": _members(group, now_ms) if group is not None else [],
        "settings": dict(settings),
        "warnings": _warnings(group, warnings) if group is not None else [],
        "queues": rows,
        "lag": sum(row["lag"] for row in rows),
    }


def _behind(at: int, low: int, end: int) -> int:
    """The lag in messages. Without a stored offset it counts from the queue's first message."""
    return max(0, end - (low if at == NONE else at))


def _warnings(group: Group, warnings: Callable[[Group, str], list[str]]) -> list[dict[str, str]]:
    return [{"member": name, "warning": each} for name in sorted(group.members) for each in warnings(group, name)]


def _members(group: Group, now_ms: int) -> list[dict[str, Any]]:
    return [
        {
            "member": name,
            "topics": {topic: {"expression": of.expression, "type": of.kind} for topic, of in member.topics.items()},
            "heard_ms_ago": now_ms - member.heard_ms,
        }
        for name, member in sorted(group.members.items())
    ]


def _owners(group: Group, now_ms: int) -> dict[Queue, str]:
    """The holder of each queue's lock, else its member when all have divided; nobody where everybody reads
    everything."""
    found: dict[Queue, str] = {}
    if group.model == "broadcasting":
        return found
    for topic, count in group.queues.items():
        members = group.summary().subscribers.get(topic, [])
        for member in members:
            for queue in allocate(group.strategy, range(count), members, member):
                found[topic, queue] = group.locks.holder((topic, queue), now_ms) or member
    return found
