"""The tables of `towline bench steps`."""

from typing import Any

from rich.console import Console

from .output import add_row, print_machine, table


def render_steps(console: Console, result: dict[str, Any]) -> None:
    for one in result["rates"]:
        title = f"{one['rate']:,} messages of {result['body']:,} B a second, {result['transport']}: us since `send`"
        made = table(title, "#p50", "#p99", "#max")
        for row in one["steps"]:
            add_row(made, row["step"], *(f"{row[name]:,.0f}" for name in ("p50_us", "p99_us", "max_us")))
        console.print(made)
        shares = ", ".join(f"{label} {share:.1f}" for label, share in one["cpu_percent"].items())
        console.print(f"CPU of the processes, % of a core: {shares}")
    print_machine(console, result)
