"""A driver that is killed: copies a store into a topic with one AvailableNow query, and ends when all is there.

python -m tests.drivers.stream_driver STORE TARGET TOPIC CHECKPOINT LIMIT SETTINGS

SETTINGS are those of the session, as JSON. It starts Spark, and begins when a line comes to its standard input.
"""

import json
import sys

from pyspark.sql import functions as f

from towline.pipeline.session import running


def main(store: str, target: str, topic: str, checkpoint: str, limit: str, settings: str) -> None:
    """The body of each message is the place of the one that it copies, which no other has."""
    with running("local[2]", "copy", json.loads(settings)) as spark:
        source = spark.readStream.format("towline").option("columns", "commitLogOffset")
        source = source.options(startingOffsets="earliest", maxMessagesPerTrigger=limit, splitBytes="64m")
        rows = source.load(store).select(f.col("commitLogOffset").cast("string").alias("body"))
        sink = rows.writeStream.format("towline").options(path=target, topic=topic, checkpointLocation=checkpoint)
        sink = sink.option("replayWaitMs", "1200")  # who kills a driver waits until its workers have gone
        if not sys.stdin.readline():
            return
        query = sink.trigger(availableNow=True).start()
        query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
