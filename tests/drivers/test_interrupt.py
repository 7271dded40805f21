"""Ctrl-C while a job starts Spark."""

import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.processes.waiting import Watch, await_
from tests.requirements import need
from tests.spark.stores import MadeStore
from towline.pipeline.session import java_missing

DEADLINE_S = 60.0


@pytest.mark.timeout(180)
def test_ctrl_c_while_spark_starts_leaves_no_jvm(tmp_path: Path) -> None:
    """Where pyspark's own launch is cut short, its JVM stays for ever."""
    problem = java_missing()
    need({} if problem is None else {"java": problem})
    made = MadeStore(tmp_path / "store").whole(300)
    start = "from towline.start import main; main()"
    command = [sys.executable, "-c", start, "pipeline", "stats", "--store", str(made.root)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as job:
        below = await_(lambda: psutil.Process(job.pid).children(recursive=True), DEADLINE_S, "a JVM")
        watch = Watch(child.pid for child in below)
        job.send_signal(signal.SIGINT)
        out, err = job.communicate(timeout=DEADLINE_S)
        watch.await_gone(DEADLINE_S)
    assert (job.returncode, out, err) == (130, "", "")
