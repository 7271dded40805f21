"""Each program of examples/ is run as its docstring says, against one node, and its output compared."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.interop.conftest import compiled, jvms, start_jvm
from tests.interop.jvm import RealStore
from tests.interop.model import Sent
from tests.interop.releases import NEW
from tests.interop.towlines import REAL_SETTINGS
from tests.repo.trees import EXAMPLES, ROOT
from tests.requirements import need
from tests.spark.class_archive import java_options
from towline.pipeline.session import java_missing
from towline.pytest_plugin import DevNode, towline_node

__all__ = ["compiled", "jvms", "start_jvm", "towline_node"]

PROGRAM_S: Final = 240
SPARK: Final = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2"}
# What each prints. Numbers of a table are compared without the spaces that draw it.
OUTPUT: Final = {
    "fastapi_service": ["201 {'stored': 17, 'offset': 0}"],
    "worker_group": ["20 of 20 jobs are done: True; came again: [7]"],
    "delayed_jobs": ["in an hour: taken back, PUT_OK", "delivered: now, level 1, in three seconds"],
    "outbox": ["sent 6, read 6, different ones: ['a car', 'a room', 'a table']; left in the outbox: 0"],
    "request_reply": ["EUR/CHF 0.93", "EUR/NOK 11.70", "EUR/GBP: no answer within 500 ms"],
    "columns": [
        "3000 rows of int64 binary",
        "count sum",
        "city",
        "Kyiv 1000 24500",
        "Lyon 1000 24500",
        "Oslo 1000 24500",
    ],
    "logging_handler": ["left out: 0", "WARNING shop order 18 is late"],
    "asyncio_tasks": ["acknowledged 1000, read 1000, in order: True"],
}
REVENUE: Final = ["Kyiv 667 16333", "Lyon 667 16350", "Oslo 666 16317"]


def program(name: str, argument: object) -> list[str]:
    """The lines that it prints, of tables the cells alone."""
    options = " ".join([java_options(), *(f"-D{key}={value}" for key, value in SPARK.items())])
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # Spark's workers are python3 on PATH
    done = subprocess.run(
        [sys.executable, ROOT / EXAMPLES / f"{name}.py", str(argument)],
        cwd=ROOT,
        env=os.environ | {"PATH": path, "JDK_JAVA_OPTIONS": options, "PYTHONWARNINGS": "error::DeprecationWarning"},
        capture_output=True,
        text=True,
        timeout=PROGRAM_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = (" ".join(line.replace("|", " ").split()) for line in done.stdout.splitlines())
    return [line for line in lines if line and not line.startswith("+--")]


@pytest.mark.parametrize("name", OUTPUT)
def test_a_program_prints_what_it_shows(name: str, towline_node: DevNode) -> None:
    assert program(name, towline_node.endpoint) == OUTPUT[name]


def test_a_spark_job_reads_a_topic(towline_node: DevNode) -> None:
    need({} if (problem := java_missing()) is None else {"java": problem})
    assert program("spark_job", towline_node.endpoint) == ["city receipts revenue", *REVENUE]


def test_the_files_of_a_real_rocketmq_are_read(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """Skips where its jars, or Java, cannot be had."""
    need({} if (problem := java_missing()) is None else {"java": problem})
    jvm = request.getfixturevalue("jvms")(NEW)
    real = RealStore(jvm, tmp_path / "store", **REAL_SETTINGS)
    real.open()
    topics = ["orders"] * 5 + ["returns"]
    sent = [Sent(topic, 0, b"order %d" % number, f"{number:032X}") for number, topic in enumerate(topics)]
    real.put([each.spec() for each in sent])
    real.close()
    expected = ["topic messages newest", "orders 5 order 4", "returns 1 order 5"]
    assert program("rocketmq_store", real.root) == expected


def test_every_program_is_run_here() -> None:
    named = {*OUTPUT, "spark_job", "rocketmq_store"}
    assert {path.stem for path in (ROOT / EXAMPLES).glob("*.py")} == named
