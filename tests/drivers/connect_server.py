"""A real server of Spark Connect on this machine: a JVM that the package's spark-submit starts."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.processes.nodes import free_port
from tests.processes.waiting import Watch, await_
from tests.spark.class_archive import java_options

from .clusters import END_S, HOME, START_S

CLASS: Final = "org.apache.spark.sql.connect.service.SparkConnectServer"
_STARTED: Final = re.compile(r"Spark Connect server started at")


@contextmanager
def connect_server(root: Path, **environment: str) -> Iterator[str]:
    """Its URL. `environment` is that of its Python workers, too."""
    port, log = free_port(), root / "connect.log"
    conf = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.driver.memory": "768m",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(root / "tables"),
        "spark.sql.artifact.isolation.enabled": "true",
    }
    given = [word for pair in conf.items() for word in ("--conf", "=".join(pair))]
    words = [str(HOME / "bin" / "spark-submit"), "--master", "local[2]", "--class", CLASS, *given, "spark-internal"]
    known = {"SPARK_HOME": str(HOME), "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    with log.open("wb") as said:
        running = subprocess.Popen(
            words,
            cwd=root,
            env=os.environ | known | {"JDK_JAVA_OPTIONS": java_options()} | environment,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            start_new_session=True,
        )
    try:
        await_(lambda: _STARTED.search(log.read_text()) or running.poll() is not None, START_S, "Spark Connect")
        assert running.poll() is None, log.read_text()[-3000:]
        yield f"sc://127.0.0.1:{port}"
    finally:
        watch = Watch([running.pid])
        running.terminate()
        running.wait(END_S)
        watch.await_gone(END_S)
