"""A Spark job over a topic: revenue by city, from JSON bodies.

    python examples/spark_job.py tcp://127.0.0.1:10911

It pulls from the node. On a machine that has the store's files, `.load("/data/store")` in place of `endpoint` reads
these, in columns and several times faster (docs/spark.md). Needs Java 17 and the extra `spark`.
"""

import sys

from pyspark.sql import SparkSession

from towline import Message, Producer

TOPIC = "receipts"
COUNT = 2_000


def main(endpoint: str) -> None:
    with Producer(endpoint, value_serializer="json") as producer:
        cities = ("Kyiv", "Lyon", "Oslo")
        producer.send_batch([Message(TOPIC, {"city": cities[n % 3], "price": n % 50}) for n in range(COUNT)])
    spark = SparkSession.builder.master("local[2]").appName("receipts").getOrCreate()
    messages = spark.read.format("towline").option("endpoint", endpoint).option("subscribe", TOPIC).load()
    messages.createOrReplaceTempView("messages")
    spark.sql("""
        SELECT body.city, count(*) AS receipts, sum(body.price) AS revenue
        FROM (SELECT from_json(string(body), 'city STRING, price INT') AS body FROM messages)
        GROUP BY ALL ORDER BY city
    """).show()
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
