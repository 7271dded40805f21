"""The tables of `towline bench segments`."""

from typing import Any, Final

from rich.console import Console

from towline.limits import MIB

from .output import add_row, print_machine, table

WAYS: Final = {
    "nothing": "reserved only: each page faults",
    "fadvise": "posix_fadvise WILLNEED",
    "inline": "not warmed, populated by the writer",
    "populate": "warmed, and populated by the writer (ours)",
}
KINDS: Final = {"began": "began a segment", "crossed": "crossed a switch", "others": "others"}
GOAL_NAMES: Final = {
    "added_p99_99_us": "a switch under load adds at p99.99, warmed",
    "added_p50_us": "and to the request that begins the segment, medians",
}


def render_segments(console: Console, result: dict[str, Any]) -> None:
    writer, nodes = result["writer"], result["node"]
    console.print(_writer(writer))
    console.print("  A turn: room made, request copied and published; a roll belongs to the turn that needs it.\n")
    console.print(_nodes(nodes))
    console.print("  crossed: requests that began a segment or were on their way when one did, sending to answer.\n")
    for goal in result["goals"]:
        met = "met" if goal["met"] else "NOT met"
        reached = f"{goal['reached'] / 1000:.2f} ms"
        console.print(f"{GOAL_NAMES[goal['goal']]}: below {goal['below'] / 1000:.0f} ms, reached {reached}: {met}")
    print_machine(console, result)


def _writer(writer: dict[str, Any]) -> Any:
    title = f"append turns of {writer['request_size']} B over segments of {writer['segment_size'] // MIB} MiB"
    made = table(title, "#MB/s", "#p50 us", "#p99 us", "#p99.9 us", "#p99.99 us", "#max us", "#slowest switch us")
    for row in writer["ways"]:
        quantiles = (row[name] for name in ("p50_us", "p99_us", "p99_9_us", "p99_99_us", "max_us", "switch_max_us"))
        add_row(made, WAYS[row["way"]], f"{row['mb_per_s']:,.0f}", *map(_us, quantiles))
    return made


def _nodes(nodes: list[dict[str, Any]]) -> Any:
    first = nodes[0]
    title = f"a node, segments of {first['segment_size'] // MIB} MiB, {first['rate']:,.0f} requests/s"
    made = table(title, "#requests", "#p50 us", "#p99 us", "#p99.9 us", "#p99.99 us", "#max us")
    for node in nodes:
        name = "warmed" if node["warmed"] else "not warmed"
        for kind, words in KINDS.items():
            row = node[kind]
            label = f"{name}, {words}"
            quantiles = (row[quantile] for quantile in ("p50_us", "p99_us", "p99_9_us", "p99_99_us", "max_us"))
            add_row(made, label, f"{row['requests']:,.0f}", *map(_us, quantiles))
    return made


def _us(value: float) -> str:
    return f"{value:,.1f}" if value < 100 else f"{value:,.0f}"
