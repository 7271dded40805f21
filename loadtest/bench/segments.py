"""`towline bench segments`: what a segment switch costs, and what warm-up buys.

The first part is the writer alone: append turns over several segments made in different ways, which take their turns in
every round. The second is a whole node under a steady pipelined load on small segments, warmed and not: requests that
crossed a switch beside those that did not. Figures are medians over the rounds.
"""

import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Final

import numpy as np

from towline.limits import KIB, MIB
from towline.link.context import close_context, new_context

from .latency import TimedClient, Timings, figures
from .node import bench_node
from .shapes import Shape, load_of
from .switches import WAYS, Switches, run

ADDED_MAX_US: Final = 1000.0
RATE_ANY: Final = 1e6  # requests per second: more than any node takes
FILL: Final = 2000  # requests by which the rate is found, and caches are filled
Note = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Plan:
    """What one run does. The load is requests of `shape` for `seconds` in every round, at `share` of the rate that the
    node takes when they come as fast as they can: above that a queue is measured, not a switch."""

    rounds: int = 5
    switches: Switches = field(default=Switches())
    segment_size: int = 32 * MIB
    shape: Shape = field(default=Shape(32, KIB))
    share: float = 0.25
    rate_max: float = 3000.0
    seconds: float = 10.0


QUICK: Final = Plan(rounds=2, switches=Switches(32 * MIB, 2), segment_size=16 * MIB, seconds=2.0)


def measure(plan: Plan, note: Note = lambda _: None) -> dict[str, Any]:
    """The whole document. `note` is called with each step, for people who wait."""
    started, load = time.perf_counter(), os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="towline-bench-") as name:
        directory = Path(name)
        writer = _writer(directory, plan, note)
        cold = _node(directory, plan, None, note, warmed=False)
        nodes = [cold, _node(directory, plan, cold["rate"], note, warmed=True)]
    return {
        "writer": writer,
        "node": nodes,
        "goals": _goals(nodes),
        "machine": {"cpus": os.cpu_count(), "load_before": load},
        "seconds": time.perf_counter() - started,
    }


def _writer(directory: Path, plan: Plan, note: Note) -> dict[str, Any]:
    series: dict[str, list[dict[str, float]]] = {way.name: [] for way in WAYS}
    for number in range(plan.rounds + 1):  # the first only warms up
        for way in WAYS:
            note(f"the writer alone, {way.name}, round {number} of {plan.rounds}")
            series[way.name].append(run(directory, way, plan.switches))
    rows = [
        {"way": name} | {figure: median(each[figure] for each in rounds[1:]) for figure in rounds[0]}
        for name, rounds in series.items()
    ]
    return {"segment_size": plan.switches.segment_size, "request_size": plan.switches.request_size, "ways": rows}


def _node(directory: Path, plan: Plan, rate: float | None, note: Note, *, warmed: bool) -> dict[str, Any]:
    """One row; both have the rate that the first of them takes."""
    load = load_of(plan.shape)
    context = new_context()
    rounds: list[Timings] = []
    try:
        with bench_node(directory, plan.segment_size, warm_mapped_file_enable=warmed) as node:
            client = TimedClient(context, node.put_endpoint("ipc"))
            client.make_topic()
            taken = client.run(load, RATE_ANY, FILL / RATE_ANY)
            rate = rate or min(plan.rate_max, plan.share * FILL / taken.seconds)
            for number in range(1, plan.rounds + 1):
                note(f"a node, {'warmed' if warmed else 'not warmed'}, round {number} of {plan.rounds}")
                node.await_flushed()
                node.await_segments()
                rounds.append(client.run(load, rate, plan.seconds))
            client.close()
            waited, made = node.waits_for_segments()
    finally:
        close_context(context)
    return {
        "warmed": warmed,
        "segment_size": plan.segment_size,
        "request_size": len(load.records),
        "rate": rate,
        "waited_for": waited,
        "made_by_the_writer": made,
    } | _compared(rounds, plan.segment_size)


def _compared(rounds: list[Timings], segment_size: int) -> dict[str, Any]:
    """Requests that crossed a switch beside all others, over all rounds: a round has too few for a p99.99.

    Whatever makes requests wait has many of them on their way, so those that crossed are slower than others even if the
    switch costs nothing. What it costs typically is seen by the requests that began a segment.
    """
    crossed = np.concatenate([each.us[each.crossed(segment_size)] for each in rounds])
    others = np.concatenate([each.us[~each.crossed(segment_size)] for each in rounds])
    first = np.concatenate([each.us[each.switches(segment_size)] for each in rounds])
    with_switches, without = figures(np.concatenate([crossed, others])), figures(others)
    return {
        "switches": len(first),
        "crossed": figures(crossed),
        "others": without,
        "began": figures(first),
        "added_p50_us": float(np.median(first)) - without["p50_us"],
        "added_p99_99_us": figures(crossed)["p99_99_us"] - without["p99_99_us"],
        "all_p99_99_us": with_switches["p99_99_us"],
    }


def _goals(nodes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """At p99.99 and, as that of few requests says little on a machine that does something else too, typically."""
    warmed = next(row for row in nodes if row["warmed"])
    found = {name: warmed[name] for name in ("added_p99_99_us", "added_p50_us")}
    return [
        {"goal": name, "below": ADDED_MAX_US, "reached": value, "met": value < ADDED_MAX_US}
        for name, value in found.items()
    ]
