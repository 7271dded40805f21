"""The demo's figures: a table for people, one JSON line for programs."""

from typing import Any

from rich.console import Console

from . import flights
from .demo_check import Compared, Read
from .demo_load import Sent
from .output import add_row, sized, table

_MB = 1e6
_LATEST = 5


def figures(
    sent: Sent, read: Read, compared: Compared, aircraft: dict[str, Any], carrier: dict[str, Any], more: dict[str, Any]
) -> dict[str, Any]:
    """The JSON line. Counts are of distinct unique keys."""
    figures = {
        "sent": len(sent.crcs),
        "acked": sent.acked,
        "read_from_slave": read.distinct,
        "doubled": read.doubled,
        "lost": read.lost,
        "changed": read.changed,
        "foreign": read.foreign,
        "commitlog_identical": compared.identical,
        "commitlog_bytes_compared": compared.compared,
        "commitlog_differs_at": compared.differs_at,
        "aircraft": aircraft,
        "carrier": carrier,
        "messages_per_s": round(len(sent.crcs) / sent.seconds),
        "mb_per_s": round(sent.record_bytes / _MB / sent.seconds, 2),
        "body_bytes": sent.body_bytes,
        "record_bytes": sent.record_bytes,
        "put_latency_ms": sent.latency_ms,
        "read_messages_per_s": round(read.records / max(read.seconds, 1e-9)),
        "slave_lag_bytes_max": sent.slave_lag_bytes_max,
        "statuses": dict(sent.statuses),
    }
    figures |= more
    return {"ok": holds(figures)} | figures


def holds(figures: dict[str, Any]) -> bool:
    """Whether everything the demo promises is true."""
    same = figures["sent"] == figures["acked"] == figures["read_from_slave"]
    nothing_wrong = not any(figures[name] for name in ("doubled", "lost", "changed", "foreign"))
    found = figures["aircraft"]["right"] and figures["carrier"]["right"]
    stores = figures["commitlog_identical"] and figures["clean_stop"]
    return bool(same and nothing_wrong and found and stores and _spark_holds(figures["spark"]))


def _spark_holds(spark: dict[str, Any]) -> bool:
    """What was skipped breaks nothing."""
    return spark["skipped"] is not None or (spark["right"] and spark["verify"]["ok"])


def print_table(console: Console, figures: dict[str, Any]) -> None:
    console.print("\nThe flights that left New York in 2013, through a master and a slave", style="bold")
    made = table("figure", "#value", "#")
    latency, dispatch = figures["put_latency_ms"], figures["dispatch_lag_ms"]
    aircraft, carrier = figures["aircraft"], figures["carrier"]
    rows = [
        ("sent / acknowledged", f"{figures['sent']:,}", f"{figures['acked']:,}"),
        (
            "read from the slave / doubled / lost",
            f"{figures['read_from_slave']:,}",
            f"{figures['doubled']} / {figures['lost']}",
        ),
        ("bodies that differ", figures["changed"], ""),
        (
            "CommitLogs identical",
            "yes" if figures["commitlog_identical"] else "NO",
            sized(figures["commitlog_bytes_compared"]),
        ),
        (f"by key {aircraft['key']}", f"{aircraft['found']:,}", f"of {aircraft['expected']:,}"),
        (f"by tag {carrier['tag']}", f"{carrier['found']:,}", f"of {carrier['expected']:,}"),
        ("put", f"{figures['messages_per_s']:,} msg/s", f"{figures['mb_per_s']} MB/s"),
        ("put latency p50 / p99", f"{latency['p50']} ms", f"{latency['p99']} ms"),
        ("read from the slave", f"{figures['read_messages_per_s']:,} msg/s", ""),
        ("last ack until dispatched, master / slave", f"{dispatch['master']} ms", f"{dispatch['slave']} ms"),
        ("slave behind the master, at most", sized(figures["slave_lag_bytes_max"]), ""),
    ]
    for row in (*rows, *_spark_rows(figures["spark"])):
        add_row(made, *row)
    console.print(made)
    if figures["spark"]["skipped"] is None:
        _print_delays(console, figures["spark"])
    _print_nodes(console, figures["nodes"])


def _spark_rows(spark: dict[str, Any]) -> list[tuple[str, str, str]]:
    if spark["skipped"] is not None:
        return [("Spark", "skipped", spark["skipped"])]
    return [
        ("Spark: read from the slave's store", f"{spark['read']:,}", "right" if spark["right"] else "WRONG"),
        (
            "Spark: start, query, verify",
            f"{spark['session_s']:.1f} s",
            f"{spark['query_s']:.1f}, {spark['verify_s']:.1f} s",
        ),
        ("Spark: master against slave", "sound" if spark["verify"]["ok"] else "DAMAGED", ""),
    ]


def _print_delays(console: Console, spark: dict[str, Any]) -> None:
    """The carriers that left latest, by origin."""
    by_carrier: dict[str, dict[str, dict[str, Any]]] = {}
    for row in spark["delays"]:
        if row["departed"]:
            by_carrier.setdefault(row["carrier"], {})[row["origin"]] = row
    mean = {
        carrier: sum(row["minutes"] for row in rows.values()) / sum(row["departed"] for row in rows.values())
        for carrier, rows in by_carrier.items()
    }
    made = table(f"minutes late, mean; all in {spark['plot']}", *(f"#{origin}" for origin in (*flights.ORIGINS, "all")))
    for carrier in sorted(mean, key=lambda each: -mean[each])[:_LATEST]:
        rows = by_carrier[carrier]
        cells = (f"{rows[o]['minutes'] / rows[o]['departed']:.1f}" if o in rows else "-" for o in flights.ORIGINS)
        add_row(made, carrier, *cells, f"{mean[carrier]:.1f}")
    console.print(made)


def _print_nodes(console: Console, nodes: dict[str, Any]) -> None:
    disk = table("on disk", *(f"#{name}" for name in nodes))
    for part in ("commitlog", "consumequeue", "index"):
        add_row(disk, part, *(sized(node["disk"][part]["allocated"]) for node in nodes.values()))
    console.print(disk)
    memory = table("memory (PSS)", *(f"#{name}" for name in nodes))
    by_node = [{process["duty"]: process["pss"] for process in node["processes"]} for node in nodes.values()]
    for duty in dict.fromkeys(duty for node in by_node for duty in node):
        add_row(memory, duty, *(sized(node[duty]) if duty in node else "" for node in by_node))
    add_row(memory, "together", *(sized(node["pss"]) for node in nodes.values()))
    console.print(memory)
