"""`python -m towline.cli.demo_spark_work` is the demo's Spark process. Its last line is one JSON object."""

import argparse
import math
import os
import time
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from towline.parent import die_with_parent
from towline.pipeline.job import Plot
from towline.pipeline.report import png
from towline.pipeline.running import execute
from towline.pipeline.session import end, java_missing, session

from . import flights
from .output import write_json

BODY: Final = "carrier STRING, origin STRING, dep_delay INT"
DELAYS: Final = f"""
SELECT flight.carrier, flight.origin, count(*) AS flights, count(flight.dep_delay) AS departed,
       coalesce(sum(flight.dep_delay), 0) AS minutes
FROM (SELECT from_json(string(body), '{BODY}') AS flight FROM flights)
GROUP BY ALL ORDER BY ALL
"""
QUICK_TO_START: Final = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"  # for some seconds of work that is the faster JVM
Rows = list[dict[str, Any]]


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("--master", "--slave", "--plot", "--scratch"):
        parser.add_argument(name, type=Path, required=True)
    parser.add_argument("--parent", type=int, required=True)
    asked = parser.parse_args()
    die_with_parent(asked.parent)
    missing = java_missing()
    write_json({"skipped": missing} if missing else work(asked.master, asked.slave, asked.plot, asked.scratch))


def work(master: Path, slave: Path, plot: Path, scratch: Path) -> dict[str, Any]:
    """Delays by carrier and origin from the slave's store, their picture, and the master verified against the slave."""
    laps = [time.monotonic()]
    settings = {"spark.local.dir": str(scratch), "spark.sql.warehouse.dir": str(scratch / "warehouse")}
    settings["spark.driver.extraJavaOptions"] = QUICK_TO_START
    spark = session(name="towline demo", **settings)
    try:
        laps.append(time.monotonic())
        frame = spark.read.format("towline").schema("body BINARY")
        frame = frame.option("subscribe", flights.TOPIC).option("minPartitions", os.cpu_count() or 1)
        frame.load(str(slave)).createOrReplaceTempView("flights")
        delays = [row.asDict() for row in spark.sql(DELAYS).collect()]
        laps.append(time.monotonic())
        verified = execute("verify", {"store": str(master), "against": str(slave)}).result
        laps.append(time.monotonic())
    finally:
        end(spark)
    plot.write_bytes(png(picture(delays)))
    seconds = [round(later - earlier, 3) for earlier, later in pairwise(laps)]
    return {
        "read": sum(row["flights"] for row in delays),
        "delays": delays,
        "verify": {"ok": verified.status == 0, "sentence": verified.sentence, "compared": verified.summary["compared"]},
        **dict(zip(("session_s", "query_s", "verify_s"), seconds, strict=True)),
    }


def picture(delays: Rows) -> Plot:
    """Mean minutes of delay: carriers side by side, a bar for each origin that they fly from."""
    carriers = sorted({row["carrier"] for row in delays})
    means = {(row["carrier"], row["origin"]): row["minutes"] / row["departed"] for row in delays if row["departed"]}
    return Plot(
        title="Departure delay of the flights that left New York in 2013, by carrier and origin",
        kind="bars",
        x=carriers,
        series={origin: [means.get((each, origin), math.nan) for each in carriers] for origin in flights.ORIGINS},
        x_label="carrier",
        y_label="minutes, mean",
    )


if __name__ == "__main__":
    main()
