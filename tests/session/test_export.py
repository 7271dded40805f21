"""`export` on Spark, by the command's own way."""

import json

from tests.spark.stores import MadeStore
from towline.pipeline.running import execute


def test_json_lines_that_tasks_of_spark_write(spark, tmp_path):
    made = MadeStore(tmp_path / "store")
    made.fill(500).dispatch().safe()
    out = tmp_path / "out"
    values = {"store": str(made.root), "out": str(out), "format": "jsonl", "body": "hex", "column": ["body", "keys"]}
    outcome = execute("export", values)
    assert outcome.result.summary["messages"] == len(made.rows)
    parts = [out / row["file"] for row in outcome.document()["rows"]]
    found = [json.loads(line) for part in parts for line in part.read_text().splitlines()]
    assert found == [{"body": row["body"].hex(), "keys": row["keys"]} for row in made.rows]
