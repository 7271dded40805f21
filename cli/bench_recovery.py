"""The tables of `towline bench recovery`."""

from typing import Any, Final

import typer
from rich.console import Console

from towline.limits import GIB, MIB

from .output import add_row, sized, table

GOAL_NAMES: Final = {
    "killed_first_ack_s": "kill -9 to the first acknowledgement",
    "clean_first_ack_s": "start of a cleanly closed store to the first acknowledgement",
    "walk_of_read": "a full walk, of a plain read of the same files",
    "many_queues_first_ack_s": "start of a store of many queues, clean or killed",
}
STAGES: Final = {
    "imported": "supervisor",
    "prepared": "",
    "recovered": "recovered",
    "zygote": "loaded",
    "agreed": "agreed",
    "running": "running",
    "first_ack": "first ack",
}


def sizes_of(text: str) -> tuple[int, ...]:
    """`1,4,16` as bytes."""
    try:
        sizes = tuple(int(float(each) * GIB) for each in text.split(","))
    except ValueError:
        raise typer.BadParameter(f"{text!r} is no list of GiB, like 1,4,16") from None
    if not sizes or min(sizes) < MIB:
        raise typer.BadParameter("a store has at least 0.001 GiB")
    return sizes


def render_recovery(console: Console, result: dict[str, Any]) -> None:
    unflushed = result["unflushed"]
    console.print(_starts(result))
    rate = sized(unflushed["bytes_per_s"])
    console.print(
        f"  killed: after {unflushed['seconds']:g} s of load at {rate}/s while flush was held. Stages follow one"
    )
    console.print("  another; recovery runs while the processes are loaded. Medians (fastest, slowest); starved:")
    console.print("  how long supervisor or zygote waited for a CPU that ran something else.\n")
    console.print(_walks(result["sizes"]))
    console.print("  every mark deleted; the cache was dropped before both.\n")
    for goal in result["goals"]:
        met = "met" if goal["met"] else "NOT met"
        unit = "x" if goal["goal"] == "walk_of_read" else " s"
        name = GOAL_NAMES[goal["goal"]]
        console.print(f"{name}: at most {goal['at_most']:g}{unit}, worst {goal['reached']:.2f}{unit}: {met}")
    machine = result["machine"]
    loads = f"load {machine['load_before']:.1f} before, {machine['load_after']:.1f} after"
    console.print(f"{machine['cpus']} CPUs, {loads}; {result['seconds']:.0f} s")


def _starts(result: dict[str, Any]) -> Any:
    made = table(
        "start to first acknowledgement",
        "#seconds",
        *(f"#{name}" for name in STAGES.values() if name),
        "#starved",
        "recovery is",
    )
    for row in result["sizes"]:
        name = sized(row["size"])
        if "skipped" in row:
            add_row(made, name, "skipped", row["skipped"])
            continue
        _start(made, f"{name}, clean", row["clean"])
        _start(made, f"{name}, killed, {sized(row['killed']['unflushed'])} unflushed", row["killed"])
    queues = result["queues"]
    _start(made, f"{queues['queues']:,} queues, clean", queues["clean"])
    _start(made, f"{queues['queues']:,} queues, killed", queues["killed"])
    return made


def _start(made: Any, name: str, start: dict[str, Any]) -> None:
    times = f"{start['first_ack_s']:.2f} ({start['least_s']:.2f}-{start['most_s']:.2f})"
    stages: dict[str, float] = {}
    for stage, seconds in start["stages"].items():
        title = STAGES[stage] or STAGES["imported"]
        stages[title] = stages.get(title, 0.0) + seconds
    parts = ", ".join(f"{part} {1000 * seconds:.0f}" for part, seconds in start["recovery"].items() if seconds > 0.0005)
    figures = [f"{seconds:.3f}" for seconds in (*stages.values(), start["starved_s"])]
    way = f"{start['resumed']} of {start['starts']} resumed"
    add_row(made, name, times, *figures, f"{way}: {parts} ms" if parts else way)


def _walks(rows: list[dict[str, Any]]) -> Any:
    made = table("full walk", "#seconds", "#GB/s", "#plain read", "#GB/s", "#of read")
    for row in rows:
        if "skipped" not in row:
            walk = row["walk"]
            rates = [f"{walk['bytes'] / walk[key] / 1e9:.2f}" for key in ("walk_s", "read_s")]
            times = [f"{walk[key]:.2f}" for key in ("walk_s", "read_s")]
            add_row(made, sized(row["size"]), times[0], rates[0], times[1], rates[1], f"{walk['of_read']:.2f}x")
    return made
