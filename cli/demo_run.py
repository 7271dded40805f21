"""Runs `towline demo`, step by step."""

from pathlib import Path
from typing import Any, Final

from towline.client.admin import AdminClient

from . import demo_check, flights
from .demo_load import send_flights
from .demo_nodes import RunningNode, await_true, store_directory, two_nodes
from .demo_report import figures, print_table
from .demo_spark import read_with_spark
from .interrupts import Interrupts
from .output import FAILED, people, progress_console, write_json

FOLLOW_MAX_S: Final = 20.0
NOT_ASKED: Final = "--no-spark"


def run(store: Path | None, limit: int | None, out: Path | None, as_json: bool) -> int:
    """Exit status 0 only if everything holds. Ctrl-C at any moment leaves no process and no temporary directory.

    `out` is where Spark's picture goes; None leaves the Spark step out.
    """
    flights.data_file()
    with (
        Interrupts() as interrupts,
        store_directory(store, interrupts) as root,
        two_nodes(root, interrupts) as (master, slave),
    ):
        result = _run(master, slave, limit, out, interrupts)
    if not as_json:
        print_table(people(), result)
    write_json(result)
    return 0 if result["ok"] else FAILED


def _run(
    master: RunningNode, slave: RunningNode, limit: int | None, out: Path | None, interrupts: Interrupts
) -> dict[str, Any]:
    remark = progress_console().print
    remark(f"master {master.launched.pid} and slave {slave.launched.pid} run below {master.store.root.parent}")
    _create_topic(master, slave)
    sent = send_flights(master, slave, limit)
    read = demo_check.read_back(slave, sent)
    aircraft = demo_check.find_aircraft(slave, sent)
    carrier = demo_check.count_carrier(slave, sent)
    compared = demo_check.compare_commitlogs(master, slave)
    nodes = {name: _shortened(node.status()) for name, node in (("master", master), ("slave", slave))}
    spark: dict[str, Any] = {"skipped": NOT_ASKED}
    if out is not None:
        remark("Spark reads the slave's store, and verifies the master against the slave")
        spark = read_with_spark(master, slave, sent, out, interrupts)
    clean = [node.launched.stop() for node in (master, slave)]
    more = {"dispatch_lag_ms": sent.dispatched_ms, "clean_stop": all(clean), "nodes": nodes, "spark": spark}
    return figures(sent, read, compared, aircraft, carrier, more)


def _create_topic(master: RunningNode, slave: RunningNode) -> None:
    """On the master; the slave follows within its metadata interval, and knows the topic when this returns."""
    with (
        AdminClient(master.endpoint("put"), name="towline demo") as put,
        AdminClient(slave.endpoint("serve"), name="towline demo") as serve,
    ):
        put.create_topic(flights.TOPIC, len(flights.ORIGINS))

        def known() -> bool:
            return any(row["topic"] == flights.TOPIC for row in serve.topics())

        await_true(known, FOLLOW_MAX_S, "the slave does not know the topic", step_s=0.02)


def _shortened(status: dict[str, Any]) -> dict[str, Any]:
    processes = [
        {name: process[name] for name in ("duty", "pid", "pss", "uss", "cpu_s")} for process in status["processes"]
    ]
    return {"processes": processes, "pss": status["pss"], "disk": status["disk"]}
