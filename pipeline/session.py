"""The Spark session of jobs: settings, the JVM that belongs to it, and its end."""

import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import threading
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import IO, Any, Final

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from towline.errors import MissingPackage
from towline.spark_python import COMMAND
from towline.start import home

from .errors import IllegalMaster, JavaMissing, SparkNotStarted
from .ship import PACKAGE, ship

LOCAL: Final = "local[*]"
JAVA_LEAST: Final = 17
END_S: Final = 20.0
SPARK_ERRORS: Final = (Py4JError, PySparkException)

# Times are UTC whatever the machine's zone; a small Python task costs half over a Unix socket; Ctrl-C, progress and
# results are the command's, not Spark's. Arrow's check of each single read takes a sixth of the JVM's time in a scan.
_UNCHECKED: Final = "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"
COMMON: Final[Mapping[str, str]] = {
    "spark.sql.session.timeZone": "UTC",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.driver.defaultJavaOptions": _UNCHECKED,
    "spark.executor.defaultJavaOptions": _UNCHECKED,
}
ON_THIS_MACHINE: Final[Mapping[str, str]] = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
}
CONNECTED: Final[Mapping[str, str]] = {  # of COMMON, what a session of its own may set on a server
    name: value for name, value in COMMON.items() if name.startswith("spark.sql.")
}
_CONNECT: Final = "towline.pipeline.connect"
_LOCAL_URL: Final = re.compile(r"local(\[(\*|\d+)(\s*,\s*\d+)?\])?")
CONNECT: Final = "sc://"
_CONNECT_URL: Final = re.compile(r"sc://[^\s/:]+(:\d+)?(/(;\S*)?)?")
_REMOTE_URL: Final = re.compile(r"spark://\S+:\d+|yarn|k8s://\S+|local-cluster\[\d+,\d+,\d+\]")
_NO_MODULE: Final = re.compile(r"^ModuleNotFoundError: No module named '(\w+)")
_SHIP_IT: Final = "make a zip by `towline pipeline ship FILE` and send it along, by --py-files FILE or addPyFile"
_VERSION: Final = re.compile(r'^JAVA_VERSION="(\d+)', re.MULTILINE)
_SUBMITTED: Final = "PYSPARK_GATEWAY_PORT"  # spark-submit started the JVM, and it will end it
_LOGS: Final[list[IO[bytes]]] = []  # what the JVM of this process wrote; a process has one
_SHIPPED: Final[list[tempfile.TemporaryDirectory[str]]] = []


def java_missing() -> str | None:
    """Why Spark cannot start here: no Java of version 17 or later. Looks only, starts nothing."""
    named = os.environ.get("JAVA_HOME")
    if named and not (Path(named) / "bin" / "java").exists():
        return f"JAVA_HOME is {named}, which has no bin/java"
    java = str(Path(named) / "bin" / "java") if named else shutil.which("java")
    if java is None:
        return "JAVA_HOME is not set, and PATH leads to no java"
    facts = Path(java).resolve().parents[1] / "release"
    found = _VERSION.search(facts.read_text(encoding="utf-8", errors="replace")) if facts.is_file() else None
    if found and int(found[1]) < JAVA_LEAST:
        return f"{java} is of version {found[1]}"
    return None


def worker_python() -> str:
    """Of this machine: this one, by the command with which it starts sooner, if that is installed."""
    command = Path(sysconfig.get_path("scripts")) / COMMAND
    return str(command) if command.is_file() else sys.executable


def check_master(master: str) -> None:
    """Raises IllegalMaster."""
    if not any(known.fullmatch(master) for known in (_LOCAL_URL, _REMOTE_URL, _CONNECT_URL)):
        raise IllegalMaster(master, "it is no master URL")


def session(master: str | None = None, name: str = "towline", **conf: str) -> SparkSession:
    """The active session of this process, or a new one on `master`; `conf` are Spark's settings by their names.

    Without `master` it is that of spark-submit, else this machine with all its cores. An active session is taken as it
    is. Raises JavaMissing, IllegalMaster, SparkNotStarted.
    """
    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    submitted = _SUBMITTED in os.environ
    logging.getLogger("py4j").setLevel(logging.CRITICAL)  # it logs what it also raises
    url = master or (None if submitted else LOCAL)
    if url is not None:
        check_master(url)
    if not submitted and (problem := java_missing()):
        raise JavaMissing(problem)
    here = url is not None and _LOCAL_URL.fullmatch(url) is not None
    settings = {**COMMON, **(ON_THIS_MACHINE if here else {}), "spark.app.name": name, **conf}
    if url is not None:
        settings["spark.master"] = url
    if here:
        settings.setdefault("spark.sql.shuffle.partitions", str(os.cpu_count() or 1))
        os.environ.setdefault("PYSPARK_PYTHON", worker_python())
    try:
        _launch(settings)
        made = SparkSession.builder.config(map=dict(settings)).getOrCreate()
    except (*SPARK_ERRORS, ValueError) as error:
        log = kept_log(error)
        _end_jvm()
        raise SparkNotStarted(url or "the master of spark-submit", sentence_of(error), log) from error
    except KeyboardInterrupt:
        _end_jvm()
        raise
    made.sparkContext.setLogLevel(settings["spark.log.level"])
    if not here and not submitted:
        _ship_to(made)
    return made


@contextmanager
def running(master: str | None, name: str, conf: Mapping[str, str]) -> Iterator[SparkSession]:
    """A session for one job. What was started for it is ended with it, the JVM too; an active session stays.

    Raises what `session` raises; MissingPackage where a server of Spark Connect is asked for without its client.
    """
    if master is not None and master.startswith(CONNECT):
        check_master(master)
        with _connect().connected(master, name, {**CONNECTED, **conf}) as remote:
            yield remote
        return
    before = SparkSession.getActiveSession()
    spark = session(master, name, **conf)
    try:
        yield spark
    finally:
        if before is None:
            end(spark)


def _connect() -> Any:
    try:
        return import_module(_CONNECT)
    except ImportError as error:  # a PySparkImportError names the package that it lacks
        raise MissingPackage(error.name or "grpcio", "connect") from None


def end(spark: SparkSession) -> None:
    """Stops the session and, where this process started it, the JVM."""
    spark.stop()
    _end_jvm()


def _end_jvm() -> None:
    gateway = SparkContext._gateway
    process: subprocess.Popen[bytes] | None = getattr(gateway, "proc", None)
    if gateway is None or process is None:
        return
    gateway.shutdown()
    SparkContext._gateway = SparkContext._jvm = None
    assert process.stdin is not None
    process.stdin.close()  # its end of file ends the JVM
    try:
        process.wait(END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    while _LOGS:
        _LOGS.pop().close()
    while _SHIPPED:
        _SHIPPED.pop().cleanup()


def sentence_of(error: BaseException) -> str:
    """What went wrong, in one sentence: of a task that failed in Python, the last line of its traceback."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    errors = [line for line in lines if re.match(r"(?:\w+\.)*\w*(?:Error|Exception|[a-z][A-Z]\w*): \S", line)]
    traced = any(line.endswith("Traceback (most recent call last):") for line in lines)
    chosen = errors[-1] if traced and errors else next(iter(lines), type(error).__name__)
    missing = _NO_MODULE.search(chosen) if traced else None
    if missing is not None and missing[1] == PACKAGE:
        return f"the executors have no {missing[1]}: {_SHIP_IT}"
    if missing is not None:
        return f"the executors have no {missing[1]}: install it for the Python that they run"
    return re.sub(r"^(?:\w+\.)+(?=\w+: )", "", chosen)


def kept_log(error: BaseException) -> str:
    """The path of a new file with the error's trace and what the JVM wrote; for whoever has to look closer."""
    said = b""
    for log in _LOGS:
        log.seek(0)
        said += log.read()
        log.seek(0, os.SEEK_END)
    fd, path = tempfile.mkstemp(prefix="towline-spark-", suffix=".log")
    with os.fdopen(fd, "wb") as kept:
        kept.write("".join(traceback.format_exception(error)).encode("utf-8", "backslashreplace"))
        kept.write(said)
    return path


def _launch(settings: Mapping[str, str]) -> None:
    """Starts the JVM with its output in a file; its standard input is a pipe, so it cannot outlive this process."""
    if SparkContext._gateway is not None:
        return
    conf = SparkConf(loadDefaults=False)
    conf.setAll(list(settings.items()))
    log = os.fdopen(os.open(tempfile.gettempdir(), os.O_TMPFILE | os.O_RDWR, 0o600), "w+b")
    _LOGS.append(log)
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(home()), before]))  # workers take it from the JVM
    try:
        with _interrupts_later():
            gateway = launch_gateway(conf, popen_kwargs={"stdout": log, "stderr": log})  # type: ignore[no-untyped-call]
            SparkContext._ensure_initialized(gateway=gateway)
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before


@contextmanager
def _interrupts_later() -> Iterator[None]:
    """Ctrl-C inside is raised at the end: pyspark's launch, cut short, leaves a JVM that nothing ever ends."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: came.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if came:
        raise KeyboardInterrupt


def _ship_to(spark: SparkSession) -> None:
    """Executors of a cluster fetch this package from the driver, each when its first task comes."""
    directory = tempfile.TemporaryDirectory(prefix="towline-ship-")
    _SHIPPED.append(directory)
    spark.sparkContext.addPyFile(str(ship(Path(directory.name) / "towline.zip")))
