"""A refusal that leads to a log names the whole path of it, in a command that shows its end; and what then helps."""

import json
import re
import shlex
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.processes.nodes import processes_of
from tests.processes.stopping import stopped
from tests.processes.waiting import await_
from towline.cli import demo_run
from towline.cli.cluster_change import await_left
from towline.cli.cluster_up import STOPPED, Outcome
from towline.cluster.state import NodeState, Seen
from towline.errors import end_of_log
from towline.format.wire.refusals import Cause
from towline.node.roles.role_commands import OUTCOME_MAX_S, PROMOTE
from towline.places import Store
from towline.route.file import read_cluster
from towline.runtime.locks import store_holder

from .conftest import Towline
from .typist import TYPED, Typist

NOBODY = "--set=ha_master_address=127.0.0.1:1"  # a master that does not answer


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Of nodes that a command of this process starts."""
    made = Path(tempfile.mkdtemp(prefix="tl-", dir="/dev/shm"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(made))
    yield made
    shutil.rmtree(made)


def shown_by(typed: str) -> str:
    """What a command of the system prints; it is one that works."""
    assert typed.startswith("tail -n 20 ")
    done = subprocess.run(["sh", "-c", typed], capture_output=True, text=True, check=True, timeout=30)
    return done.stdout


def go_on_as_status_says(typist: Typist, status: str, pid: int) -> None:
    """The process stands still by a signal: status names the command by which it goes on."""

    def told() -> list[str]:
        rows = typist(status).document["standing_still"]
        return [typed for row in rows if row["pid"] == pid for typed in TYPED.findall(row["sentence"])]

    [typed] = await_(told, 60.0, "status says that it stands still")
    subprocess.run(shlex.split(typed), check=True)


def test_an_order_that_is_not_carried_out_in_time_is_carried_out_when_what_stands_still_goes_on(
    typist: Typist,
) -> None:
    typist.works(f"towline slave start --store {typist.store}", NOBODY)
    promotes, supervisor = (
        f"towline promote --accept-loss --store {typist.store}",
        store_holder(Store(typist.store).lock),
    )
    with stopped(supervisor):
        late = typist(promotes, "--timeout", "0.5")
        assert late.document["error"] == "OrderUndone"
        status, shows = TYPED.findall(late.document["remedy"])
        assert "recovered in" in shown_by(shows)
        go_on_as_status_says(typist, status, supervisor)
        await_(lambda: Path(f"/proc/{supervisor}/stat").read_text().split()[2] != "T", 30.0, "it goes on")
    await_(lambda: typist(status).document.get("role") == "master", 60.0, "the order is carried out")
    typist.works(f"towline put orders hello --store {typist.store}")


def test_a_node_that_does_not_stop_in_time_is_stopped_again_when_it_has_gone_on(typist: Typist) -> None:
    typist.works(f"towline master start --store {typist.store}")
    stops, supervisor = f"towline master stop --store {typist.store}", store_holder(Store(typist.store).lock)
    with stopped(supervisor):
        late = typist(stops, "--timeout", "0.5")
        assert late.document["error"] == "NodeStillRunning"
        status, shows, again = TYPED.findall(late.document["remedy"])
        assert "recovered in" in shown_by(shows)
        go_on_as_status_says(typist, status, supervisor)
        typist(again)
    await_(lambda: not processes_of(typist.store), 60.0, "it has stopped")


def test_an_order_that_comes_too_late_is_given_again(typist: Typist) -> None:
    start = f"towline slave start --store {typist.store}"
    typist.works(start, NOBODY)
    typist.stop()
    given = time.time_ns() - int((OUTCOME_MAX_S + 1) * 1e9)
    Store(typist.store).order.write_text(json.dumps({"order": PROMOTE, "number": given}))
    typist.works(start, NOBODY)
    [said] = [line for line in Store(typist.store).node_log.read_text().splitlines() if "is not gone on with" in line]
    status, promotes = TYPED.findall(said)
    assert typist(status).document["role"] == "slave"
    typist.works(promotes, "--accept-loss")
    assert typist(status).document["role"] == "master"


def test_a_change_at_which_a_node_fails_is_made_when_the_cause_in_its_log_is_gone(typist: Typist) -> None:
    typist.works(f"towline master start --store {typist.store}")
    settings, aside = Store(typist.store).settings, typist.store.parent / "settings.json"
    settings.rename(aside)
    settings.mkdir()
    change = f"towline config set log_level=ERROR --store {typist.store}"
    refused = typist(change)
    assert refused.document["error"] == "ChangeFailed"
    shows, holds = TYPED.findall(refused.document["remedy"])
    assert f"Is a directory: '{settings}'" in shown_by(shows)
    settings.rmdir()
    aside.rename(settings)
    [row] = [row for row in typist(f"{holds} --all").document["settings"] if row["key"] == "log_level"]
    assert row["value"] == "INFO"
    typist.works(change)


@pytest.mark.usefixtures("memory")
def test_a_demo_that_fails_says_where_both_logs_are(
    towline: Towline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo_run, "FOLLOW_MAX_S", -1.0)
    words = ["demo", "--no-spark", "--limit", "100", "--json"]
    alone = towline(*words).document
    assert alone["error"] == "DemoFailed"
    [again] = TYPED.findall(alone["remedy"])
    assert again == "towline demo --store DIR"
    kept = towline(*words, "--store", tmp_path / "kept").document
    shows, doctor = TYPED.findall(kept["remedy"])
    said = shown_by(shows)
    for name in ("master", "slave"):
        assert f"==> {tmp_path / 'kept' / name}/run/node.log <==" in said
    assert "recovered in" in said
    assert towline(*shlex.split(doctor)[1:], "--json").document["checks"]


@pytest.mark.usefixtures("memory")
def test_a_drill_whose_nodes_do_not_start_keeps_their_logs(
    towline: Towline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOWLINE_PROCESS_SCHEDULING", "nothing")
    drill = ["drill", "kill-slave", "--out", tmp_path / "out", "--seconds", "0.2", "--json"]
    failed = towline(*drill).document
    assert failed["error"] == "DrillFailed"
    shows, _ = TYPED.findall(failed["remedy"])
    assert f"{tmp_path}/out/kill-slave/node" in shows
    said = shown_by(shows)
    assert "process_scheduling" in said + failed["sentence"]


def test_where_a_command_shows_a_log_its_path_is_whole_and_quoted() -> None:
    assert end_of_log("/var/a b/") == "`tail -n 20 '/var/a b/run/node.log'`"
    assert end_of_log("/a", "/b") == "`tail -n 20 /a/run/node.log /b/run/node.log`"
    for cause in Cause:
        assert not re.search(r"log of \w+", cause.remedy), "a process has no log of its own"
        if "STORE" in cause.remedy:
            assert end_of_log("/var/a") in cause.remedy_at("/var/a")


def test_status_ends_with_the_command_that_shows_the_log(typist: Typist) -> None:
    typist.works(f"towline master start --store {typist.store}")
    status = f"towline master status --store {typist.store}"
    assert "recovered in" in shown_by(TYPED.findall(typist.shown(status))[-1])
    assert Path(typist(status).document["log"]) == Store(typist.store).node_log


def test_a_node_that_stays_on_record_names_the_restart_of_its_cluster(
    towline: Towline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "a cluster.toml"
    assert towline("cluster", "init", "-f", file, "--slaves", "1").status == 0
    [group] = read_cluster(file).groups
    master = Seen(group.name, group.master, NodeState.RUNNING, role="master", pid=1, in_sync=(0, 1))
    seen = type("Observed", (), {"master": master})()
    monkeypatch.setattr("towline.cli.cluster_change.observe", lambda _: seen)
    outcome = Outcome(group.node(1), STOPPED)
    await_left(file, group, outcome, -1.0)
    [restarts] = TYPED.findall(outcome.remedy)
    done = towline(*shlex.split(restarts)[1:], "--json")
    assert (done.status, done.document["failed"]) == (0, []), "nothing runs, so nothing is restarted"
