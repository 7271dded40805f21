"""The tables of `towline bench consume` and `towline bench filter`."""

from typing import Any, Final

from rich.console import Console

from towline.limits import GIB

from .output import add_row, print_machine, sized, table

WAYS: Final = {
    "answers": "answers alone, nothing done with them",
    "columns": "columns",
    "objects": "Python objects, bodies and properties decoded",
    "unfiltered": "everything, nothing compared",
    "client": "everything, tags compared at the client",
    "tag": "by tag at the node",
    "sql": "by SQL92 at the node, every message evaluated",
    "bitmap": "by SQL92 at the node, with bitmaps",
}
GOAL_NAMES: Final = {
    "columns": "one columnar consumer",
    "objects": "one consumer of Python objects",
    "tag_of_client": "by tag at the node, of comparing at the client",
    "bitmap_of_sql": "by SQL92 with bitmaps, of evaluating every message",
}
RATES: Final = ("columns", "objects")
LATENCIES: Final = ("p50_us", "p99_us", "p99_9_us", "max_us")


def render_consume(console: Console, result: dict[str, Any]) -> None:
    console.print(
        _rates(f"{result['messages']:,} messages of {result['body']} B, one queue, from memory", result["read"])
    )
    console.print("  Medians, the slowest and fastest round beside them. Objects are read from a part of the queue.\n")
    if "replay" in result:
        console.print(_replay(result["replay"]))
        read = result["replay"]["replay"]
        most = sized(result["replay"]["cold_in_memory_most"])
        console.print(f"  read at {read['mb_per_s']:,.0f} MB/s; of what was read at most {most} stayed in memory.\n")
    _end(console, result)


def render_filter(console: Console, result: dict[str, Any]) -> None:
    title = f"a filter that keeps one of {result['kept_of']}, {result['messages']:,} messages"
    console.print(_rates(title, result["read"]))
    ratio = result["tag_of_unfiltered"]
    console.print(
        f"  Messages gone over per second. By tag, of reading everything and comparing nothing: {ratio:.1f}x\n"
    )
    _end(console, result)


def _rates(title: str, rows: dict[str, dict[str, float]]) -> Any:
    made = table(title, "#k msgs/s", "#least", "#most")
    for name, row in rows.items():
        add_row(made, WAYS[name], *(f"{row[key] / 1000:,.0f}" for key in ("msgs_per_s", "least", "most")))
    return made


def _replay(replay: dict[str, Any]) -> Any:
    request = replay["request"]
    title = (
        f"{replay['rate']} puts/s of {request['records']} x {request['body']} B, {replay['size'] / GIB:g} GiB replayed"
    )
    made = table(title, *(f"#{name}" for name in ("p50 us", "p99 us", "p99.9 us", "max us")))
    for name, words in (("quiet", "without a replay"), ("during", "during the replay")):
        add_row(made, words, *(f"{replay[name][key]:,.0f}" for key in LATENCIES))
    return made


def _end(console: Console, result: dict[str, Any]) -> None:
    for goal in result["goals"]:
        met = "met" if goal["met"] else "NOT met"
        least, reached = goal["at_least"], goal["reached"]
        if goal["goal"] in RATES:
            shown = f"at least {least:,.0f} messages/s, reached {reached:,.0f}"
        else:
            shown = f"at least {least:g}x, reached {reached:.1f}x"
        console.print(f"{GOAL_NAMES[goal['goal']]}: {shown}: {met}")
    print_machine(console, result)
