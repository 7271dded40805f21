"""Reads the files of an Apache RocketMQ broker: how many messages each topic has, and the newest of each.

    python examples/rocketmq_store.py /data/rocketmq/store

The directory is the broker's `storePathRootDir`, or a copy of it. No broker is asked, and nothing is written. A store
that a broker has open is read as far as that says, or refused: stop the broker, or read a copy. Needs Java 17 and the
extra `spark`.
"""

import sys

from pyspark.sql import SparkSession, functions


def main(store: str) -> None:
    spark = SparkSession.builder.master("local[2]").appName("store").getOrCreate()
    messages = spark.read.format("towline").load(store)
    newest = functions.max_by("body", "commitLogOffset").cast("string").alias("newest")
    messages.groupBy("topic").agg(functions.count("*").alias("messages"), newest).orderBy("topic").show()
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
