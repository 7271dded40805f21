"""A driver that is killed: copies a topic of a store into a topic of a node by one batch write with an identity.

python -m tests.drivers.batch_driver STORE TARGET FROM TOPIC SETTINGS
"""

import json
import sys

from towline.pipeline.session import running


def main(store: str, target: str, source: str, topic: str, settings: str) -> None:
    with running("local[2]", "copy", json.loads(settings)) as spark:
        rows = spark.read.format("towline").option("columns", "body").option("subscribe", source).load(store)
        sink = rows.write.format("towline").mode("append").options(path=target, topic=topic)
        sink.option("txnAppId", "copies").option("txnVersion", 1).option("replayWaitMs", "1200").save()


if __name__ == "__main__":
    main(*sys.argv[1:])
