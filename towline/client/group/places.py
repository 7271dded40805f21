"""Where a member begins that has no offset of its own."""

from collections.abc import Callable, Generator
from datetime import datetime
from typing import Any

from towline.client.link.rpc import Reply
from towline.client.read.reader import Start, to_ms

from .coordinator_rpc import Question

Places = dict[tuple[str, int], int]


def first_offsets(keys: list[tuple[str, int]], start: Start) -> Generator[Question, Reply, Places]:
    """Asks the node for the offset at which each of these queues begins."""
    found: Places = {}
    if isinstance(start, str):
        name = "min" if start == "first" else "max"
        for topic in sorted({topic for topic, _ in keys}):
            reply = yield Question("bounds", {"topic": topic})
            rows: dict[int, Any] = {int(row["queue"]): row for row in reply.facts["queues"]}
            found |= {key: int(rows[key[1]][name]) if key[1] in rows else 0 for key in keys if key[0] == topic}
        return found
    for topic, queue_id in keys:
        facts = {"topic": topic, "queue": queue_id, "time": to_ms(start), "boundary": "lower"}
        reply = yield Question("offset_by_time", facts)
        found[topic, queue_id] = int(reply.facts["offset"])
    return found


def first_offset(
    ask: Callable[[str, dict[str, Any], int], Reply], topic: str, queue_id: int, when: datetime | int, timeout_ms: int
) -> int:
    """Of the queue's messages the first that was stored at or after `when`."""
    facts = {"topic": topic, "queue": queue_id, "time": to_ms(when), "boundary": "lower"}
    return int(ask("offset_by_time", facts, timeout_ms).facts["offset"])
