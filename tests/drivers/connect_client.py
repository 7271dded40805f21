"""A program that is a client of Spark Connect: rows go through the sink, in a batch and by a stream, and are read back.

Arguments: the server, the node's endpoint, its store, a directory for the stream's checkpoint. Prints the bodies.
"""

import json
import sys

from pyspark.sql import SparkSession


def main(server: str, endpoint: str, store: str, checkpoint: str) -> None:
    spark = SparkSession.builder.remote(server).getOrCreate()
    rows = spark.range(100).selectExpr("CAST(id AS STRING) AS body", "'red' AS tags")
    rows.write.format("towline").option("endpoint", endpoint).option("topic", "batch").mode("append").save()
    stored = spark.readStream.format("towline").option("subscribe", "batch").option("startingOffsets", "earliest")
    copied = (
        stored.load(store)
        .select("body", "tags")
        .writeStream.format("towline")
        .option("endpoint", endpoint)
        .option("topic", "streamed")
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    copied.awaitTermination()
    found = {}
    for topic in ("batch", "streamed"):
        read = spark.read.format("towline").option("subscribe", topic).load(store).where("tags = 'red'")
        found[topic] = sorted(int(row.body) for row in read.select("body").collect())
    print(json.dumps(found))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
