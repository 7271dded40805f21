"""The gate on small projects of its own: what load broke is healed and told, nothing else turns green."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ENDS_S = 240
ONCE = """
import os, pathlib, pytest

def once(name):
    "Whether this is the first time that it is asked for."
    try:
        (pathlib.Path(__file__).parent / f"was-{name}").touch(exist_ok=False)
    except FileExistsError:
        return False
    return True
"""
ALONE = "import pytest\n\n@pytest.mark.alone\ndef test_alone(): ...\n"


class Project:
    """A directory with tests in it, and what the gate said of them."""

    def __init__(self, root: Path, **files: str) -> None:
        self.root = root
        (root / "pytest.ini").write_text("[pytest]\nmarkers =\n    slow: x\n    alone: x\ntimeout = 100\n")
        for name, text in ({"alone": ALONE} | files).items():
            (root / f"test_{name}.py").write_text(ONCE + text)

    def begin(self) -> "subprocess.Popen[str]":
        known = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
        return subprocess.Popen(
            [sys.executable, "-m", "tests.gate"],
            cwd=self.root,
            env=known | {"PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def gate(self) -> tuple[int, list[str]]:
        """Its status and its lines."""
        with self.begin() as process:
            said, _ = process.communicate(timeout=ENDS_S)
        print(said)
        return process.returncode, said.splitlines()

    @property
    def flaky(self) -> str:
        path = self.root / "build/flaky.txt"
        return path.read_text() if path.exists() else ""


def test_how_long_the_tests_of_each_file_took_is_written_the_longest_first(tmp_path):
    slow = "import pytest, time\n\n@pytest.fixture\ndef slow(): time.sleep(0.3)\n\ndef test_slow(slow): ...\n"
    Project(tmp_path, a="def test_a(): ...\n", b=slow).gate()
    rows = [line.split(None, 1) for line in (tmp_path / "build/slowest.txt").read_text().splitlines()]
    assert [name for _, name in rows][:2] == ["all files", "test_b.py"]
    assert float(rows[0][0]) >= float(rows[1][0]) >= 0.3


def test_both_runs_are_counted_together_and_a_clean_one_leaves_no_list(tmp_path):
    project = Project(tmp_path, a="def test_a(): ...\n\n@pytest.mark.slow\ndef test_slow(): assert False\n")
    (tmp_path / "build").mkdir()
    (tmp_path / "build/flaky.txt").write_text("of another run")
    status, said = project.gate()
    assert (status, said[-1]) == (0, "2 passed, 0 failed")
    assert not (tmp_path / "build/flaky.txt").exists()


ODD = """
@pytest.mark.parametrize("value", [0], ids=["a b/c::d[e]'\\"$(x);\\u00fc\\n@"])
def test_odd(value):
    assert not once("odd"), "the first time it is not there"

@pytest.mark.parametrize("value", [1, 2])
def test_plain(value): ...

@pytest.fixture
def leaving():
    yield
    assert not once("left"), "it did not leave"

def test_teardown(leaving): ...
"""
ODD_ALONE = "\n@pytest.mark.alone\ndef test_alone():\n    assert not once('alone')\n"


def test_what_passes_the_second_time_is_listed_for_the_one_who_mends_it(tmp_path):
    project = Project(tmp_path, odd=ODD, alone=ODD_ALONE)
    status, said = project.gate()
    assert (status, said[-1]) == (0, "5 passed, 0 failed")
    assert "flaky: 3, see build/flaky.txt" in said
    assert project.flaky.startswith("3 failed and passed alone")
    assert re.search(r"test_odd\.py::test_odd\[a b/c::d\[e\]'\"\$\(x\);.*@\]\n  failed \d{4}-.* in call", project.flaky)
    assert "the first time it is not there" in project.flaky
    assert re.search(
        r"test_odd.py::test_teardown\n  failed .* in teardown after [\d.]+ s, load [\d.]+\n", project.flaky
    )
    assert "again: .venv/bin/python -m pytest test_alone.py::test_alone" in project.flaky


def test_what_fails_twice_is_red_beside_what_does_not(tmp_path):
    text = "def test_never(): assert False\n\ndef test_once(): assert not once('once')\n\ndef test_good(): ...\n"
    status, said = Project(tmp_path, a=text).gate()
    assert (status, said[-1]) == (1, "3 passed, 1 failed")
    assert "red: test_a.py::test_never failed twice" in said
    assert "flaky: 1, see build/flaky.txt" in said


def test_a_fixture_of_a_session_that_fails_once_takes_too_many_with_it(tmp_path):
    text = """
@pytest.fixture(scope="session")
def server():
    if once("server"):
        pytest.fail("no server today")

@pytest.mark.alone
@pytest.mark.parametrize("number", range(6))
def test_served(server, number): ...
"""
    project = Project(tmp_path, a=text, b="def test_b(): ...\n")
    status, said = project.gate()
    assert (status, said[-1]) == (1, "2 passed, 6 failed")
    assert "flaky: 6, see build/flaky.txt, more than 5: they count as failed" in said
    assert project.flaky.count("no server today") >= 6


def test_what_a_killed_gate_has_left_is_removed_by_the_next(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    ended, running, other = (tmp_path / name for name in ("tlgate-a", "tlgate-b", "else"))
    with subprocess.Popen(["true"]) as gone:
        pass
    for directory, pid in ((ended, gone.pid), (running, os.getpid()), (other, gone.pid)):
        (directory / "f0").mkdir(parents=True)
        (directory / "pid").write_text(str(pid))
    root = tmp_path / "project"
    root.mkdir()
    assert Project(root, a="def test_a(): ...\n").gate()[0] == 0
    assert sorted(each.name for each in tmp_path.iterdir()) == ["else", "project", "tlgate-b"]


def test_so_many_failures_that_no_second_run_heals_them_end_the_run_and_their_cause_is_told(tmp_path):
    text = "@pytest.mark.parametrize('number', range(400))\ndef test_number(number): raise OSError('no room')\n"
    status, said = Project(tmp_path, a=text).gate()
    assert status == 1
    assert 60 <= sum(line.startswith("red: test_a.py::") for line in said) < 400
    assert any(re.fullmatch(r"cause of \d+: OSError: no room", line) for line in said)
    assert "red: the second run was left out" in said


def test_a_file_that_cannot_be_collected_is_red_and_nothing_is_run_again(tmp_path):
    project = Project(tmp_path, a="if once('import'): raise ValueError('not importable')\n", b="def test_b(): ...\n")
    status, said = project.gate()
    assert status == 1
    assert any(re.match(r"red: test_a.py cannot be collected: .*not importable", line) for line in said)
    assert re.fullmatch(r"\d+ passed, [1-9]\d* failed", said[-1])
    assert not any(line.startswith("once more") for line in said)


@pytest.mark.parametrize("missing", ["beside", "alone"])
def test_a_run_that_finds_no_test_is_red(tmp_path, missing):
    files = {"a": "def test_a(): ..."} if missing == "alone" else {}
    project = Project(tmp_path, **files)
    if missing == "alone":
        (tmp_path / "test_alone.py").unlink()
    status, said = project.gate()
    assert status == 1
    assert any(line.startswith("red: the run") and line.endswith("found no test") for line in said)


def test_a_worker_that_dies_fails_the_test_it_was_in_and_that_runs_again(tmp_path):
    text = "def test_first(): ...\n\ndef test_dies():\n    once('dead') and os._exit(3)\n\ndef test_last(): ...\n"
    project = Project(tmp_path, a=text)
    status, said = project.gate()
    assert (status, said[-1]) == (0, "4 passed, 0 failed")
    assert "test_a.py::test_dies" in project.flaky
    assert "crashed while running" in project.flaky


def test_a_worker_that_dies_after_many_files_keeps_nobody_waiting(tmp_path):
    """What it had done whole goes to nobody: a worker that gets it would keep its last test back for ever."""
    done = {f"a{number:02}": "def test_it(): ...\n" for number in range(30)}
    left = {f"c{number:02}": "def test_it(): ...\n" for number in range(9)}
    project = Project(tmp_path, **done, b="def test_dies():\n    once('dead') and os._exit(3)\n", **left)
    copied = (ROOT / "tests/spreading.py").read_text()
    (tmp_path / "spreading.py").write_text(copied)
    (tmp_path / "conftest.py").write_text(
        "from spreading import Spreading\n\ndef pytest_xdist_make_scheduler(config, log):\n"
        "    return Spreading(config, log)\n"
    )
    status, said = project.gate()
    assert (status, said[-1]) == (0, "41 passed, 0 failed")
    assert "test_b.py::test_dies" in project.flaky


@pytest.mark.slow
def test_workers_that_die_without_end_are_red(tmp_path):
    text = "@pytest.mark.parametrize('number', range(60))\ndef test_dies(number):\n    os._exit(3)\n"
    status, said = Project(tmp_path, a=text).gate()
    assert status == 1
    assert re.fullmatch(r"\d+ passed, [1-9]\d* failed", said[-1])


def test_a_process_that_a_timeout_ends_is_red_however_its_other_tests_went(tmp_path):
    text = """
@pytest.mark.alone
def test_good(): ...

@pytest.mark.alone
@pytest.mark.timeout(1, method="thread")
def test_hangs():
    if once("hung"):
        import threading
        threading.Event().wait()
"""
    status, said = Project(tmp_path, a=text, b="def test_b(): ...").gate()
    assert status == 1
    assert "red: the run of what is marked alone did not come to its end (status 1)" in said


def test_a_failure_is_told_at_once_with_its_cause(tmp_path):
    """A run that is killed has no end, and pytest tells of failures there."""
    status, said = Project(tmp_path, a="def test_a(): assert not once('a'), 'the first time'\n").gate()
    assert status == 0
    told = said.index("failed in call: test_a.py::test_a")
    assert any("AssertionError: the first time" in line for line in said[told:])
    assert told < next(number for number, line in enumerate(said) if "FAILURES" in line)


WAITING = """
@pytest.mark.alone
def test_waits():
    print("waiting", flush=True)
    import threading
    threading.Event().wait(90)
"""


@pytest.mark.parametrize("how", ["Ctrl-C, which the whole group gets", "SIGTERM to the gate"])
def test_who_is_told_to_end_is_red_and_begins_nothing_more(tmp_path, how):
    project = Project(tmp_path, b="def test_b(): ...\n", alone=WAITING)
    with (tmp_path / "pytest.ini").open("a") as settings:
        settings.write("addopts = -s\n")
    with project.begin() as process:
        assert any("waiting" in line for line in process.stdout)
        if how.startswith("Ctrl-C"):
            os.killpg(process.pid, signal.SIGINT)
        else:
            process.send_signal(signal.SIGTERM)
        said = process.communicate(timeout=ENDS_S)[0].splitlines()
    assert process.returncode == 1
    assert "red: the run of what is marked alone was interrupted" in said
    assert "red: the second run was left out" in said
    assert re.fullmatch(r"1 passed, [1-9]\d* failed", said[-1])


def test_a_run_that_takes_longer_than_it_may_ends_and_is_red(tmp_path, monkeypatch):
    monkeypatch.setenv("GATE_MINUTES", "0.05")  # wherever in it that is
    status, said = Project(tmp_path, alone=WAITING).gate()
    assert status == 1
    assert "GATE_MINUTES are over" in said
    assert "red: the second run was left out" in said
    assert re.fullmatch(r"\d passed, [1-9]\d* failed", said[-1])
