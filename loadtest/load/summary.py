"""The result of a load test as JSON, and the bounds that it broke. Knows nothing of Locust."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

WAITS: Final = frozenset({"PULL"})  # their time is mostly that in which no message came


@dataclass(frozen=True, slots=True)
class Row:
    """One kind of request. Times in ms. `messages` is 0 where requests are not made of messages."""

    kind: str
    name: str
    requests: int
    failures: int
    messages: int
    p50: float
    p95: float
    p99: float
    longest: float
    per_s: float

    def facts(self, seconds: float) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "name": self.name,
            "requests": self.requests,
            "failures": self.failures,
            "messages": self.messages,
            "p50_ms": self.p50,
            "p95_ms": self.p95,
            "p99_ms": self.p99,
            "max_ms": self.longest,
            "requests_per_s": self.per_s,
            "messages_per_s": self.messages / seconds if seconds else 0.0,
        }


def broken(rows: list[Row], max_p99: float, max_fail: float) -> list[str]:
    """A sentence for each bound that a kind of request broke; `max_p99` in ms, `max_fail` a share of its requests.

    `max_p99` says nothing of a pull, whose time holds the wait for messages. Bounds of 0, for `max_fail` below 0, are
    none. A test in which nothing was asked breaks every bound there is.
    """
    found = []
    if (max_p99 > 0 or max_fail >= 0) and not any(row.requests for row in rows):
        found.append("nothing was asked, so no bound can be kept")
    for row in rows:
        if max_p99 > 0 and row.p99 > max_p99 and row.kind not in WAITS:
            found.append(f"{row.kind} {row.name}: p99 is {row.p99:,.1f} ms, above --max-p99 {max_p99:g}")
        share = row.failures / row.requests if row.requests else 0.0
        if max_fail >= 0 and share > max_fail:
            found.append(f"{row.kind} {row.name}: {share:.4f} of the requests failed, above --max-fail {max_fail:g}")
    return found


def summary_of(rows: list[Row], errors: Mapping[str, int], seconds: float, bounds: list[str]) -> dict[str, Any]:
    return {
        "rows": [row.facts(seconds) for row in rows],
        "errors": dict(errors),
        "seconds": seconds,
        "broken": bounds,
    }
