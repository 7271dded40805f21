"""The tables of `towline bench put`."""

from typing import Any, Final

from rich.console import Console

from .output import add_row, print_machine, table

GOAL_NAMES: Final = {
    "plain_of_copy": "kernel without the CRC check, of memory copy",
    "checked_of_crc": "kernel with the CRC check, of the CRC kernel alone",
    "put_of_raw": "client to acknowledgement with 500 records, a burst, of raw pyzmq",
    "whole_node_of_raw": "the same while queues and index are written",
}


def render_put(console: Console, result: dict[str, Any]) -> None:
    console.print(_kernel(result["kernel"]))
    console.print("  of CRC: record bytes a second of the append, of body bytes a second of the CRC kernel alone over")
    console.print("  the bodies of the same request; same bodies: records a second of both. CPU time of one thread.\n")
    console.print(_put(result["put"]))
    console.print("  burst: queues and index are written afterwards; whole node: while it lasts. MB of records.\n")
    for goal in result["goals"]:
        met = "met" if goal["met"] else "NOT met"
        name = GOAL_NAMES[goal["goal"]]
        console.print(f"{name}: at least {_percent(goal['at_least'])}, worst {_percent(goal['reached'])}: {met}")
    print_machine(console, result)


def _kernel(rows: list[dict[str, Any]]) -> Any:
    made = table(
        "append and stamp alone", "#ns/record", "#GB/s", "#of copy", "#of CRC", "#same bodies", "#CRC check's share"
    )
    for row in rows:
        name, checked, limits = f"{row['records']} x {row['body']} B", row["crc_checked"], row["limits"]
        add_row(made, f"{name}, no CRC check", f"{row['ns']:.1f}", f"{row['gb_s']:.2f}", _percent(row["of_copy"]))
        add_row(
            made,
            f"{name}, CRC check",
            f"{checked['ns']:.1f}",
            f"{checked['gb_s']:.2f}",
            _percent(checked["of_copy"]),
            _percent(checked["of_crc"]),
            _percent(checked["of_crc_same_bodies"]),
            _percent(checked["share_of_crc_check"]),
        )
        add_row(made, f"{name}, CRC kernel alone", f"{limits['crc_ns']:.1f}", f"{limits['crc_gb_s']:.2f}")
    if rows:
        add_row(made, "memory copy", "", f"{rows[0]['limits']['copy_gb_s']:.2f}")
    return made


def _put(rows: list[dict[str, Any]]) -> Any:
    made = table(
        "client to acknowledgement",
        "#burst k msgs/s",
        "#MB/s",
        "#of raw",
        "#whole node k msgs/s",
        "#MB/s",
        "#of raw",
        "#put CPU ns/msg",
        "#raw k msgs/s",
        "#raw MB/s",
        "#copy MB/s",
    )
    for row in rows:
        burst, whole, limits = row["burst"], row["whole_node"], row["limits"]
        add_row(
            made,
            f"{row['transport']} {row['records']} x {row['body']} B, window {row['window']}",
            *(_thousands(burst["msgs_per_s"]), f"{burst['mb_per_s']:,.0f}", _percent(burst["of_raw"])),
            *(_thousands(whole["msgs_per_s"]), f"{whole['mb_per_s']:,.0f}", _percent(whole["of_raw"])),
            f"{burst['put_cpu_ns_per_msg']:,.0f}",
            _thousands(limits["raw_msgs_per_s"]),
            f"{limits['raw_mb_per_s']:,.0f}",
            f"{1000 * limits['copy_gb_s']:,.0f}",
        )
    return made


def _thousands(value: float) -> str:
    return f"{value / 1000:,.0f}"


def _percent(share: float) -> str:
    return f"{100 * share:.0f}%"
