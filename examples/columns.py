"""What a pull brings as columns: numpy arrays, an Arrow table, a pandas frame. No object is made for a message.

    python examples/columns.py tcp://127.0.0.1:10911

pyarrow and pandas come with the extra `spark`. For a whole store, beside its files, there is Spark (spark_job.py).
"""

import json
import sys

import pandas
import pyarrow

from towline import Consumer, Message, Producer

TOPIC = "rides"
COUNT = 3_000


def pull(endpoint: str) -> pyarrow.Table:
    """All messages of the topic."""
    tables: list[pyarrow.Table] = []
    with Consumer(endpoint, TOPIC, start="first") as consumer:
        while sum(map(len, tables)) < COUNT and len(columns := consumer.poll_columns(10_000)):
            tables.append(columns.to_arrow())
    return pyarrow.concat_tables(tables)


def main(endpoint: str) -> None:
    with Producer(endpoint, value_serializer="json") as producer:
        cities = ("Kyiv", "Lyon", "Oslo")
        producer.send_batch([Message(TOPIC, {"city": cities[n % 3], "km": n % 50}) for n in range(COUNT)])
    table = pull(endpoint)
    print(table.num_rows, "rows of", table["store_timestamp"].type, table["body"].type)
    rides = pandas.DataFrame(map(json.loads, table["body"].to_pylist()))
    print(rides.groupby("city")["km"].agg(["count", "sum"]).to_string())


if __name__ == "__main__":
    main(sys.argv[1])
