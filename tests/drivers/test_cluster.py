"""A job on a standalone Spark master with two workers, which know of Towline only what spark-submit ships."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.typist import TYPED, Typist, filled
from tests.requirements import need
from tests.spark.stores import MadeStore
from towline import pipeline
from towline.pipeline.session import java_missing
from towline.pipeline.ship import ship

from .clusters import Cluster


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_stats_of_a_store_by_spark_submit_on_two_workers(tmp_path: Path):
    problem = java_missing()
    need({} if problem is None else {"java": problem})
    made = MadeStore(tmp_path / "store").whole(900)
    script = tmp_path / "job.py"
    assert pipeline.__file__ is not None
    shutil.copy(Path(pipeline.__file__).with_name("__main__.py"), script)
    with Cluster(tmp_path / "cluster", workers=2) as cluster:
        shipped = ship(tmp_path / "towline.zip")
        done = cluster.submit(script, "stats", "--store", str(made.root), "--by", "queue", shipped=shipped)
        assert done.returncode == 0, done.stdout + done.stderr + cluster.executors_logs()
        assert cluster.executors() == 2
    assert_sums(json.loads(done.stdout.splitlines()[-1]), made)


@pytest.mark.timeout(180)
def test_executors_that_lack_the_package_get_the_zip_that_the_refusal_names(tmp_path: Path):
    """The driver's Python has it: spark-submit is called where Towline is installed."""
    problem = java_missing()
    need({} if problem is None else {"java": problem})
    made = MadeStore(tmp_path / "store").whole(900)
    script, typist = tmp_path / "job.py", Typist(tmp_path)
    assert pipeline.__file__ is not None
    shutil.copy(Path(pipeline.__file__).with_name("__main__.py"), script)
    job = ("stats", "--store", str(made.root), "--by", "queue")
    with Cluster(tmp_path / "cluster", workers=1) as cluster:
        refused = cluster.submit(script, *job, shipped=None, driver=sys.executable)
        assert refused.returncode == 1, refused
        said = json.loads(refused.stdout.splitlines()[-1])
        [ships] = TYPED.findall(f"{said['sentence']}; {said['remedy']}")
        assert "send it along, by --py-files FILE" in said["sentence"]
        typist.works(filled(ships, FILE=tmp_path / "towline.zip"))
        done = cluster.submit(script, *job, shipped=tmp_path / "towline.zip", driver=sys.executable)
        assert done.returncode == 0, done.stdout + done.stderr + cluster.executors_logs()
    assert_sums(json.loads(done.stdout.splitlines()[-1]), made)


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_the_command_brings_the_package_to_a_cluster_by_itself(tmp_path: Path):
    problem = java_missing()
    need({} if problem is None else {"java": problem})
    made = MadeStore(tmp_path / "store").whole(900)
    start = "from towline.start import main; main()"
    call = ["pipeline", "stats", "--store", str(made.root), "--by", "queue", "--json"]
    conf = ["--conf", "spark.executor.memory=512m", "--conf", "spark.driver.host=127.0.0.1"]
    with Cluster(tmp_path / "cluster", workers=1) as cluster:
        done = subprocess.run(
            [sys.executable, "-c", start, *call, "--master", cluster.url, *conf],
            env=os.environ | {"PYSPARK_PYTHON": str(cluster.python)},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr + cluster.executors_logs()
    assert_sums(json.loads(done.stdout), made)


def assert_sums(document: dict[str, Any], made: MadeStore) -> None:
    """Counts and bytes of each queue are those of the messages as they were put."""
    expected: dict[tuple[str, int], list[int]] = {}
    for row in made.rows:
        expected.setdefault((row["topic"], row["queueId"]), []).append(row["size"])
    found = {(row["topic"], row["queueId"]): (row["count"], row["bytes"]) for row in document["rows"]}
    assert found == {queue: (len(sizes), sum(sizes)) for queue, sizes in expected.items()}
