"""The tables of `towline bench spark`."""

from typing import Any, Final

from rich.console import Console

from .output import add_row, print_machine, sized, table

GOAL_NAMES: Final = {
    "decode_all_per_s": "records a second of a core, all columns: at least",
    "decode_narrow_per_s": "the same, columns of the head: at least",
    "all_of_plain": "times as fast as a decoder that goes record by record, all columns: at least",
    "narrow_of_plain": "the same, columns of the head: at least",
    "rebuild_shuffle_of_direct": "times as fast as a rebuild of the queues that shuffles: at least",
    "rebuild_of_decode": "rebuild of a large log, end to end, of the decode alone times the cores: at least",
    "archive_source_of_fused": "times as fast as df.write.parquet when tasks write their own Parquet: at least",
    "scan_all_of_parquet": "times as fast as Spark reads the same rows from Parquet, all columns: at least",
    "scan_three_of_parquet": "the same, three columns, grouped: at least",
    "endpoint_of_path": "times as fast through an endpoint as by the node's path: at least",
    "stream_p99_s": "s from put to a stream's sink at 1,000 messages/s, p99: at most",
    "stream_lost_or_doubled": "messages of the stream lost or doubled: at most",
}


def render_spark(console: Console, result: dict[str, Any]) -> None:
    decode, rebuild, archive, scan = (result[name] for name in ("decode", "rebuild", "archive", "scan"))
    made = table(f"records of {result['record_size']} B, {result['records']:,} of them", "#records/s", "#times as fast")
    rows = (
        ("decode, all columns, of a core", decode["all_per_s"], decode["all_of_plain"]),
        ("decode, columns of the head, of a core", decode["narrow_per_s"], decode["narrow_of_plain"]),
        ("record by record, of a core", decode["plain_per_s"], 1.0),
        ("rebuild of the queues", result["records"] / rebuild["direct_s"], rebuild["shuffle_of_direct"]),
        ("the same with a shuffle", result["records"] / rebuild["shuffle_s"], 1.0),
        ("archive, tasks write Parquet", result["records"] / archive["fused_s"], archive["source_of_fused"]),
        ("df.write.parquet", result["records"] / archive["source_s"], 1.0),
        (
            "the same by topic and day",
            result["records"] / archive["parted_s"],
            archive["source_s"] / archive["parted_s"],
        ),
    )
    scans = (
        ("Spark reads all columns", scan["scan_all_per_s"], scan["scan_all_of_parquet"]),
        ("the same from Parquet", scan["parquet_all_per_s"], 1.0),
        ("Spark groups by three columns", scan["scan_three_per_s"], scan["scan_three_of_parquet"]),
        ("the same from Parquet", scan["parquet_three_per_s"], 1.0),
        ("Spark reads through an endpoint", scan["endpoint_per_s"], scan["endpoint_of_path"]),
        ("the same by the node's path", scan["path_per_s"], 1.0),
    )
    for name, rate, times in (*rows, *scans):
        add_row(made, name, f"{rate:,.0f}", f"{times:.2f}")
    console.print(made)
    large, stream = result["large"], result["stream"]
    console.print(
        f"  rebuild of {sized(large['bytes'])} in {large['seconds']:.1f} s, {large['gb_s']:.2f} GB/s; the decode alone "
        f"{decode['queue_gb_s']:.2f} GB/s of a core, the rebuild's own scan {large['grouped_gb_s']:.2f}: "
        f"{large['of_decode']:.0%} and {large['of_scan']:.0%} of all cores"
    )
    console.print(
        f"  its tasks took {large['queues_s']:.2f} s, checks and sync {large['finish_s']:.2f}, renames "
        f"{large['exchange_s']:.2f}"
    )
    console.print(
        f"  stream of {stream['received']:,} messages, from put to the sink, in s: p50 {stream['p50_s']:.3f}, "
        f"p99 {stream['p99_s']:.3f}, max {stream['max_s']:.3f}; lost {stream['lost']}, doubled {stream['doubled']}; "
        f"a micro-batch took {stream['triggerExecution_ms']:.0f} ms"
    )
    console.print(f"  with {', '.join(f'{name}={value}' for name, value in result['stream_settings'].items())}\n")
    for goal in result["goals"]:
        met = "met" if goal["met"] else "NOT met"
        number = "{:,.0f}" if goal["bound"] > 100 else "{:g}"
        reached = "{:,.0f}" if goal["bound"] > 100 else "{:.2f}"
        name = GOAL_NAMES[goal["goal"]]
        console.print(f"{name} {number.format(goal['bound'])}, reached {reached.format(goal['reached'])}: {met}")
    print_machine(console, result)
