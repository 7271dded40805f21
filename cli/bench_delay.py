"""The tables of `towline bench delay`."""

from typing import Any, Final

from rich.console import Console

from .output import add_row, print_machine, table

NAMES: Final = {
    "times": "with times of their own",
    "level": "of level 1 (1 s)",
    "burst": "due in one second",
}


def render_delay(console: Console, result: dict[str, Any]) -> None:
    made = table("delayed messages of 100 B", "#messages", "#a second", "#late p50", "#p99", "#worst", "#early")
    for row in result["rows"]:
        times = (f"{row[name]:,.0f} ms" for name in ("p50_ms", "p99_ms", "max_ms"))
        add_row(made, NAMES[row["kind"]], f"{row['messages']:,}", f"{row['per_s']:,.0f}", *times, f"{row['early']:,}")
    console.print(made)
    for goal in result["goals"]:
        met = "met" if goal["met"] else "NOT met"
        console.print(
            f"{NAMES[goal['goal']]}: at most {goal['bound_ms']} ms late, the worst {goal['max_ms']:,.0f}: {met}"
        )
    print_machine(console, result)
