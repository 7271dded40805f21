"""Looks at the nodes of a cluster, one after the other: what each says of itself, and rates between two answers.

`towline top` and `towline web` show what is found here.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from towline.errors import TowlineError

from .link.endpoints import several
from .link.routes import group_routes

Ask = Callable[[], dict[str, Any]]


@dataclass
class Watched:
    """A node that is looked at. `ask` reads its status; `before` is when it answered last, and what it said."""

    name: str
    ask: Ask
    before: tuple[float, dict[str, Any]] | None = None


@dataclass(frozen=True)
class Look:
    """One look at a node. `status` is None where it does not answer, for the reason `why`; rates are since the look
    before, and none without one."""

    name: str
    status: dict[str, Any] | None
    why: str = ""
    rates: dict[str, float] = field(default_factory=dict)
    cpu: dict[int, float] = field(default_factory=dict)  # percent of a core, by process id

    def document(self) -> dict[str, Any]:
        cpu = {str(pid): share for pid, share in self.cpu.items()}
        return {"node": self.name, "why": self.why, "rates": self.rates, "cpu": cpu, "status": self.status}


def nodes_of(endpoint: str) -> dict[str, str]:
    """The endpoint of each node by itself -> the name of its group, "" for a single group. Raises what `group_routes`
    raises."""
    return {
        each: way.name
        for way in group_routes(endpoint)
        for each in several(way.endpoints() if callable(way.endpoints) else way.endpoints)
    }


def look_at(node: Watched) -> Look:
    """Asks it once. A node that was started anew begins without rates."""
    try:
        status = node.ask()
    except TowlineError as error:
        node.before = None
        return Look(node.name, None, error.describe())
    now, before = time.monotonic(), node.before
    node.before = now, status
    if before is None or before[1]["generation"] != status["generation"]:
        return Look(node.name, status)
    return Look(node.name, status, "", *_since(before[1], status, now - before[0]))


def _since(before: dict[str, Any], status: dict[str, Any], seconds: float) -> tuple[dict[str, float], dict[int, float]]:
    """Rates a second, and percents of a core."""

    def rate(part: str, key: str) -> float:
        return float(status[part][key] - before[part][key]) / seconds

    rates = {
        "put": rate("statistics", "put_messages"),
        "get": rate("statistics", "get_messages"),
        "bytes": rate("positions", "appended"),
        "refused": rate("refused", "total"),
    }
    spent = {each["pid"]: each["cpu_s"] for each in before["processes"]}
    cpu = {
        each["pid"]: 100 * (each["cpu_s"] - spent[each["pid"]]) / seconds
        for each in status["processes"]
        if each["pid"] in spent
    }
    return rates, cpu
