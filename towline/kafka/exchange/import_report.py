"""What an import did, in numbers: per topic, and what of the source did not cross."""

from typing import Any

from .import_plan import Counted, Plan
from .importing import Imported


def topic_rows(plan: Plan) -> list[dict[str, Any]]:
    """Of each topic what `document_of` says of all of them, in the order of names."""
    found: dict[tuple[str, str], tuple[Counted, int, int]] = {}
    for part, count in zip(plan.parts, plan.counts, strict=True):
        before, left_open, torn = found.get((part.topic, part.source), (Counted(), 0, 0))
        found[part.topic, part.source] = before + count, left_open + part.left_open, torn + part.torn
    queues = plan.topics()
    return [
        {"topic": topic, "source": source, "queues": queues[topic]} | _numbers(count, left_open, torn)
        for (topic, source), (count, left_open, torn) in sorted(found.items())
    ]


def document_of(done: Imported, seconds: float) -> dict[str, Any]:
    """The result of the command and of the job, as JSON has it."""
    plan = done.plan
    total = sum(plan.counts, Counted())
    left_open, torn = sum(part.left_open for part in plan.parts), sum(part.torn for part in plan.parts)
    size = sum(part.size for part in plan.parts)
    return {
        "source": plan.source,
        "store": plan.store,
        "partitions": len(plan.parts),
        **_numbers(total, left_open, torn),
        "source_bytes": size,
        "log_bytes": total.log_bytes,
        "segments": plan.segments,
        "from": plan.base,
        "end": plan.new_end,
        "verified": True,
        "resumed": done.resumed,
        "seconds": round(seconds, 3),
        "stages": done.seconds,
        "bytes_per_second": round(size / seconds),
        "topics": topic_rows(plan),
    }


def _numbers(count: Counted, left_open: int, torn: int) -> dict[str, int]:
    return {
        "messages": count.records,
        "body_bytes": count.body_bytes,
        "holes": count.holes,
        "control": count.control,
        "aborted": count.aborted,
        "tombstones_dropped": count.tombstones,
        "left_out": count.left_out,
        "left_open": left_open,
        "torn": torn,
    }
