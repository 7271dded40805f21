"""The tables of `towline bench reput`."""

from typing import Any, Final

from rich.console import Console

from .output import add_row, print_machine, table

GOAL_NAMES: Final = {
    "queues_per_s": "records a second of a core, queues alone: at least",
    "with_index_per_s": "with the index: at least",
    "few_of_many": "times as fast with few queues as with many, index included: at most",
    "few_of_many_queues": "the same, queues alone: at most",
    "lag_p99_ms": "ms behind the writer of a node under load, p99: at most",
}


def render_reput(console: Console, result: dict[str, Any]) -> None:
    rows = result["rows"]
    title = f"reput, records of {rows[0]['record_size']} B with TAGS and UNIQ_KEY, {rows[0]['records']:,} of them"
    columns = ("#records/s of a core", "#ns/record", "#GB/s of log", "#records/s", "#new queues/s", "#descriptors")
    made = table(title, *columns)
    for row in rows:
        add_row(
            made,
            f"{row['queues']:,} queues{' and the index' if row['index'] else ''}",
            f"{row['per_core_s']:,.0f}",
            f"{row['ns']:.0f}",
            f"{row['gb_s']:.2f}",
            f"{row['per_s']:,.0f}",
            f"{row['new_queues_per_s']:,.0f}",
            f"{row['descriptors']:,}",
        )
    console.print(made)
    console.print(f"  of a core: CPU time, system included. At most {result['descriptors']:,} descriptors.\n")
    lag = result["lag"]
    quantiles = ", ".join(f"{name[:-3]} {lag[name]:,.1f}" for name in ("p50_ms", "p99_ms", "max_ms"))
    console.print(
        f"a node under {lag['reached']:,.0f} messages/s for {lag['seconds']:.0f} s: behind, in ms: {quantiles}"
    )
    halves = (
        f"median of the first half {lag['first_half_p50_ms']:,.1f} ms, of the second {lag['second_half_p50_ms']:,.1f}"
    )
    console.print(f"  {halves}; {lag['caught_up_s']:.3f} s afterwards until all was dispatched\n")
    for goal in result["goals"]:
        met = "met" if goal["met"] else "NOT met"
        number = "{:,.0f}" if goal["bound"] > 100 else "{:.2f}"
        name, bound, reached = GOAL_NAMES[goal["goal"]], number.format(goal["bound"]), number.format(goal["reached"])
        console.print(f"{name} {bound}, reached {reached}: {met}")
    print_machine(console, result)
