"""`towline demo` as a person runs it: a process of its own, its own master and slave."""

import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from tests.requirements import need
from tests.spark.pages import README
from towline.cli.demo_spark import missing_package
from towline.cli.flights import read_flights
from towline.pipeline.session import java_missing
from towline.start import home

COMMAND = [sys.executable, "-c", "from towline.start import main; main()", "demo"]
END_MAX_S = 60
SPARK_MAX_S = 240


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    """Where the demo makes its temporary directory."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


@pytest.fixture(autouse=True)
def runtime(monkeypatch):
    """Where its nodes have their runtime directories: ours alone, and a short path, for sockets lie below it."""
    made = Path(tempfile.mkdtemp(prefix="tl-", dir="/dev/shm"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(made))
    yield made
    shutil.rmtree(made)


def processes_below(directory: Path) -> list[str]:
    """Command lines of processes that work on a store below the directory."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if str(directory).encode() in command:
            found.append(command.replace(b"\0", b" ").decode())
    return found


def start(*arguments: str, **environment: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [*COMMAND, *arguments],
        cwd=home(),
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def need_spark() -> None:
    """Skips the test where something of the Spark step is missing."""
    if sentence := missing_package() or java_missing():
        need({"java": sentence})


def finish(demo: "subprocess.Popen[str]", seconds: float = END_MAX_S) -> tuple[int, str, str]:
    out, err = demo.communicate(timeout=seconds)
    return demo.returncode, out, err


def test_sends_reads_back_compares_and_leaves_nothing(temporary, runtime):
    status, out, err = finish(start("--limit", "2000", "--json", "--no-spark"))
    assert status == 0, err
    assert out.count("\n") == 1
    result = json.loads(out)
    assert (result["sent"], result["acked"], result["read_from_slave"]) == (2000, 2000, 2000)
    assert (result["doubled"], result["lost"], result["changed"], result["foreign"]) == (0, 0, 0, 0)
    assert result["commitlog_identical"] is True
    assert result["commitlog_bytes_compared"] == result["record_bytes"]
    assert result["aircraft"]["right"]
    assert result["carrier"]["right"]
    assert set(result["dispatch_lag_ms"]) == {"master", "slave"}
    assert list(temporary.iterdir()) == []
    assert list(runtime.glob("towline/*")) == []


def read_me(sent: int) -> list[str]:
    """The lines that README quotes of the demo, for as many flights, without the size of a log."""
    (quoted,) = re.findall(r"^```text\n(.*?)^```$", README.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    return [re.sub(r" +[\d.]+ MiB$", "", line).replace("336,776", str(sent)) for line in quoted.splitlines()]


def test_keeps_the_stores_on_request_and_ends_with_one_json_line_after_the_table(tmp_path):
    status, out, err = finish(start("--limit", "500", "--store", str(tmp_path), "--no-spark"))
    assert status == 0, err
    *table, last = out.splitlines()
    assert json.loads(last)["ok"] is True
    printed = [" ".join(line.split()) for line in table]
    for line in read_me(500):
        assert any(each.startswith(" ".join(line.split())) for each in printed), f"README quotes {line!r}"
    for role in ("master", "slave"):
        assert not (tmp_path / role / "abort").exists()
        assert list((tmp_path / role / "commitlog").iterdir())


def test_spark_reads_the_slave_while_it_runs_draws_delays_and_verifies_both(temporary, runtime, tmp_path_factory):
    need_spark()
    pictures = tmp_path_factory.mktemp("pictures")
    status, out, err = finish(start("--limit", "3000", "--out", str(pictures)), SPARK_MAX_S)
    assert status == 0, err
    *table, last = out.splitlines()
    spark = json.loads(last)["spark"]
    assert (spark["skipped"], spark["read"], spark["right"]) == (None, 3000, True)
    flown = [flight for flight in read_flights(3000) if flight["dep_delay"] is not None]
    assert sum(row["departed"] for row in spark["delays"]) == len(flown)
    assert sum(row["minutes"] for row in spark["delays"]) == sum(flight["dep_delay"] for flight in flown)
    assert spark["verify"]["ok"]
    assert Path(spark["plot"]).read_bytes().startswith(b"\x89PNG")
    assert any("Spark: master against slave" in line for line in table)
    assert list(temporary.iterdir()) == []
    assert list(runtime.glob("towline/*")) == []


def test_without_java_the_spark_step_is_skipped_with_a_sentence():
    status, out, err = finish(start("--limit", "500", JAVA_HOME="", PATH="/nowhere"))
    assert status == 0, err
    *table, last = out.splitlines()
    assert "java" in json.loads(last)["spark"]["skipped"]
    assert any(line.startswith("Spark") and "skipped" in line for line in table)


def test_an_interrupt_while_spark_works_leaves_no_jvm_and_no_directory(temporary, runtime):
    need_spark()
    demo = start("--json", "--limit", "3000")
    jvm = None
    deadline = time.monotonic() + END_MAX_S
    while not jvm:
        assert time.monotonic() < deadline
        jvm = [command for command in processes_below(temporary) if "java" in command]
        select.select([], [], [], 0.02)
    demo.send_signal(signal.SIGINT)
    status, out, err = finish(demo)
    assert "Traceback" not in err
    assert (status, out) == (130, "")
    assert processes_below(temporary) == []
    assert list(temporary.iterdir()) == []
    assert list(runtime.glob("towline/*")) == []


def catches(demo: "subprocess.Popen[str]", number: int) -> bool:
    """Whether the process has a handler for the signal by now."""
    status = Path(f"/proc/{demo.pid}/status").read_text()
    caught = next(line for line in status.splitlines() if line.startswith("SigCgt"))
    return bool(int(caught.split()[1], 16) >> (number - 1) & 1)


def works_on(temporary: Path, role: str) -> bool:
    return any(role in command for command in processes_below(temporary))


MOMENTS = {
    "it loads": lambda demo, _: catches(demo, signal.SIGTERM),
    "the master starts": lambda _, temporary: works_on(temporary, "master"),
    "the slave starts": lambda _, temporary: works_on(temporary, "slave"),
    "it sends": lambda _, temporary: any(temporary.glob("*/master/consumequeue/*")),
}


@pytest.mark.parametrize(
    ("number", "moment"),
    [*((signal.SIGINT, moment) for moment in MOMENTS), (signal.SIGTERM, "it loads"), (signal.SIGTERM, "it sends")],
)
def test_a_signal_at_any_moment_leaves_no_process_and_no_directory(temporary, runtime, number, moment):
    demo = start("--json")
    deadline = time.monotonic() + END_MAX_S
    while not MOMENTS[moment](demo, temporary):
        assert demo.poll() is None
        assert time.monotonic() < deadline
        select.select([], [], [], 0.01)
    demo.send_signal(number)
    status, out, err = finish(demo)
    assert "Traceback" not in err
    assert (status, out) == (128 + number, "")
    assert processes_below(temporary) == []
    assert list(temporary.iterdir()) == []
    assert list(runtime.glob("towline/*")) == []


def test_a_demo_that_is_killed_leaves_no_process(temporary):
    demo = start("--json")
    deadline = time.monotonic() + END_MAX_S
    while len(processes_below(temporary)) < 4:
        assert time.monotonic() < deadline
        select.select([], [], [], 0.02)
    demo.kill()
    finish(demo)
    while processes_below(temporary):
        assert time.monotonic() < deadline
        select.select([], [], [], 0.02)
