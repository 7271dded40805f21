"""A standalone Spark cluster on this machine: a master and workers, each a JVM that the package's spark-class starts.

Python on it sees the packages of this environment but not this checkout, as a machine of a real cluster would.
"""

import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import psutil
import pyspark

from tests.processes.waiting import Watch, await_
from tests.spark.class_archive import java_options

HOME: Final = Path(pyspark.__file__).parent
START_S: Final = 60.0
END_S: Final = 30.0
_URL: Final = re.compile(r"Starting Spark master at (spark://\S+)")


class Cluster:
    """`with` starts it and ends every process of it, executors too."""

    def __init__(self, root: Path, workers: int, *, memory: str = "512m", bare: bool = False) -> None:
        """`memory` of a worker; `bare`: its Python has no package at all."""
        self.root, self._workers, self.url, self._memory, self._bare = root, workers, "", memory, bare
        root.mkdir()
        self._started: list[subprocess.Popen[bytes]] = []
        self.python = self._alone()

    def start(self) -> None:
        master = self._daemon("master", "master.Master", "--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        self.url = str(await_(lambda: _URL.search(_said(master)), START_S, "a Spark master")[1])  # type: ignore[index]
        for number in range(self._workers):
            self._worker(f"worker-{number}")

    def submit(
        self, script: Path, *arguments: str, shipped: Path | None, driver: str = ""
    ) -> subprocess.CompletedProcess[str]:
        """spark-submit in a directory of its own, to its end. No task runs before every worker has an executor.
        `driver`: its Python, where that is another than the executors'."""
        conf = {
            "spark.cores.max": str(self._workers),
            "spark.scheduler.minRegisteredResourcesRatio": "1",
            "spark.scheduler.maxRegisteredResourcesWaitingTime": f"{START_S:.0f}s",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.ui.enabled": "false",
            "spark.executor.memory": "512m",
            "spark.driver.memory": "512m",
            "spark.sql.shuffle.partitions": "2",
            "spark.executor.extraJavaOptions": java_options(),
            "spark.driver.extraJavaOptions": java_options(),
        }
        given = [word for pair in conf.items() for word in ("--conf", "=".join(pair))]
        given += [] if shipped is None else ["--py-files", str(shipped)]
        command = [HOME / "bin" / "spark-submit", "--master", self.url, *given, script]
        environment = self._environment() | ({"PYSPARK_DRIVER_PYTHON": driver} if driver else {})
        return subprocess.run(
            [*map(str, command), *arguments], env=environment, cwd=self.root, capture_output=True, text=True
        )

    def executors_logs(self) -> str:
        """What the Python workers and JVMs of the executors wrote to standard error."""
        return "\n".join(path.read_text(errors="replace") for path in self.root.glob("worker-*/app-*/*/stderr"))

    def executors(self) -> int:
        """How many executors ran, on different workers."""
        return len({path.parents[1] for path in self.root.glob("worker-*/app-*/*")})

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def end(self) -> None:
        pids = [process.pid for process in self._started]
        below = [child.pid for pid in pids for child in psutil.Process(pid).children(recursive=True)]
        watch = Watch([*pids, *below])
        for process in reversed(self._started):
            process.terminate()
        for process in self._started:
            process.wait(END_S)
        watch.await_gone(END_S)

    def _worker(self, name: str) -> Path:
        size = ("--cores", "1", "--memory", self._memory, "--work-dir", str(self.root / name), "--webui-port", "0")
        return self._daemon(name, "worker.Worker", "--host", "127.0.0.1", *size, self.url)

    def _daemon(self, name: str, of: str, *arguments: str) -> Path:
        log = self.root / f"{name}.log"
        command = [str(HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{of}", *arguments]
        with log.open("wb") as said:
            self._started.append(
                subprocess.Popen(
                    command,
                    env=self._environment(),
                    cwd=self.root,
                    stdin=subprocess.DEVNULL,
                    stdout=said,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            )
        return log

    def _environment(self) -> dict[str, str]:
        kept = {name: os.environ[name] for name in ("PATH", "JAVA_HOME", "LANG", "HOME") if name in os.environ}
        python = str(self.python)
        return kept | {
            "SPARK_HOME": str(HOME),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": java_options(),
            "SPARK_LOCAL_DIRS": str(self.root / "local"),
            "PYSPARK_PYTHON": python,
            "PYSPARK_DRIVER_PYTHON": python,
        }

    def _alone(self) -> Path:
        """A Python without the editable installation, whose .pth file -S leaves alone."""
        script = self.root / "python"
        packages = "" if self._bare else sysconfig.get_paths()["purelib"]
        script.write_text(f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:{packages}" exec "{sys.executable}" -S "$@"\n')
        script.chmod(0o755)
        return script


def _said(log: Path) -> str:
    return log.read_text(errors="replace")
