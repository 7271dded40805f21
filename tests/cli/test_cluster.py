"""`towline cluster` on real nodes: one group of a master and a slave, one of a master alone.

The tests are one story, in their order: each begins with what the one before left running.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.processes.nodes import processes_of
from tests.processes.waiting import Watch, await_
from towline.cli.main import run
from towline.errors import NodeNotRunning
from towline.node.report.running import node_facts
from towline.node.supervise.launch import running_pid
from towline.places import Store
from towline.start import home

from .typist import Done

TOWLINE = (sys.executable, "-c", "from towline.start import main; main()")
SMALL = """\
mapped_file_size_commit_log = 1048576
max_message_size = 65536
max_hash_slot_num = 1000
max_index_num = 10000
request_size_max = 262144
"""


class Story:
    """A cluster file in a directory of its own, and a runtime directory that shows what is left in memory."""

    def __init__(self, root: Path, runtime: Path) -> None:
        self.root, self.runtime = root, runtime
        self.file = root / "cluster.toml"

    def store(self, node: str) -> Path:
        return self.root / "stores" / node

    def kill(self, node: str) -> None:
        """Every process of it; its supervisor is nobody's child here."""
        facts = node_facts(self.store(node))
        watch = Watch([facts["pid"], *facts["processes"].values()])
        os.kill(facts["pid"], signal.SIGKILL)
        watch.await_gone(20.0)

    def towline(self, *arguments: object) -> Done:
        words = [*TOWLINE, *map(str, arguments), "--json"]
        done = subprocess.run(words, cwd=home(), capture_output=True, text=True, timeout=100)
        return Done(done.returncode, done.stdout, done.stderr)

    def running(self) -> list[tuple[int, str]]:
        return processes_of(self.root)


@pytest.fixture(scope="module")
def story(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        runtime = Path(tempfile.mkdtemp(prefix="tl-", dir="/dev/shm"))
        patch.setenv("XDG_RUNTIME_DIR", str(runtime))
        made = Story(tmp_path_factory.mktemp("cluster"), runtime)
        yield made
        for pid, _ in made.running():
            os.kill(pid, signal.SIGKILL)
        shutil.rmtree(runtime)


@pytest.fixture
def cluster(story, tmp_path):
    """`towline cluster COMMAND -f FILE --json`, in a child of this process: the nodes are to be nobody's children."""

    def command(name, *arguments):
        out, err = tmp_path / "out", tmp_path / "err"
        pid = os.fork()
        if not pid:
            status = 1
            try:
                for descriptor, path in ((1, out), (2, err)):
                    os.dup2(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC), descriptor)
                sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
                status = run(["cluster", name, *map(str, arguments), "-f", str(story.file), "--json"])
                sys.stderr.flush()
            finally:
                os._exit(status)
        _, waited = os.waitpid(pid, 0)
        return Done(os.waitstatus_to_exitcode(waited), out.read_text(), err.read_text())

    return command


def outcomes(document):
    return {(each["group"], node["node"]): node["outcome"] for each in document["groups"] for node in each["nodes"]}


def test_init_writes_a_file_once(story, cluster):
    made = cluster("init", "--groups", 2, "--slaves", 1)
    assert (made.status, made.document["nodes"]) == (0, ["a-0", "a-1", "b-0", "b-1"])
    assert cluster("init").document["error"] == "ChangeRefused"
    text = story.file.read_text()
    text = text.replace("[settings]\n", f"[settings]\n{SMALL}").replace("b-1", "b-9")
    head, _, _ = text.rpartition("\n[[group.node]]")  # group b is a master alone
    last = head.rindex('broker_role = "SYNC_MASTER"')
    story.file.write_text(head[:last] + head[last:].replace("SYNC_MASTER", "ASYNC_MASTER", 1) + "\n")


def test_up_starts_every_node_once_and_the_slaves_follow_though_two_do_it(story, cluster):
    command = [*TOWLINE, "cluster", "up", "-f", str(story.file), "--json"]
    other = subprocess.Popen(command, cwd=home(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    done = cluster("up")
    out, _ = other.communicate(timeout=50)
    assert (done.status, done.document["state"], other.returncode) == (0, "ok", 0), (done, out)
    both = [outcomes(done.document), outcomes(json.loads(out))]
    assert both[0].keys() == {("a", 0), ("a", 1), ("b", 0)}
    assert all(sorted(each[node] for each in both) == ["runs already", "started"] for node in both[0])


def test_up_again_says_so_and_starts_nothing(cluster):
    done = cluster("up")
    assert (done.status, set(outcomes(done.document).values())) == (0, {"runs already"})


def test_status_is_a_table_of_every_group(story, cluster, towline):
    sent = towline("put", "t", "x", "--store", story.store("a-0"), "--json")
    assert sent.document["status"] == "PUT_OK"
    done = cluster("status")
    a, b = done.document["groups"]
    assert (done.status, a["state"], b["state"], a["master"]) == (0, "ok", "ok", 0)
    assert [node["role"] for node in a["nodes"]] == ["master", "slave"]
    assert a["nodes"][0]["end"] == a["nodes"][1]["end"] > 0
    assert a["nodes"][1]["lag"] == 0
    assert all(node["in_sync"] and node["pss"] > 0 and node["older_settings"] == [] for node in a["nodes"])
    shown = towline("cluster", "status", "-f", story.file).out
    assert "group a: ok" in shown
    assert str(story.store("b-0")) in shown


def test_status_names_a_process_that_stands_still(story, cluster, towline):
    await_(lambda: cluster("status").status == 0, 60.0, "everything moves")
    pid = node_facts(story.store("b-0"))["processes"]["flush"]
    os.kill(pid, signal.SIGSTOP)
    try:
        done = await_(lambda: (found := cluster("status")).status and found, 60.0, "it is seen")
        (still,) = done.document["groups"][1]["nodes"][0]["standing_still"]
        assert (still["duty"], still["pid"]) == ("flush", pid)
        assert f"b-0: flush (process {pid}) has done no turn for" in towline("cluster", "status", "-f", story.file).out
    finally:
        os.kill(pid, signal.SIGCONT)
    await_(lambda: cluster("status").status == 0, 60.0, "everything moves again")


def test_a_half_failed_up_says_which_node_and_why_and_the_next_completes_it(story, cluster):
    story.kill("a-1")
    identity = story.store("a-1") / "identity.json"
    kept = identity.read_bytes()
    identity.write_bytes(b"{")
    done = cluster("up")
    assert (done.status, done.document["state"], done.document["failed"]) == (1, "partly degraded", ["a-1"])
    assert outcomes(done.document) == {("a", 0): "runs already", ("a", 1): "failed", ("b", 0): "runs already"}
    failed = done.document["groups"][0]["nodes"][1]
    assert "identity.json" in failed["sentence"]
    assert "towline store repair" in failed["remedy"]
    assert cluster("status").status == 1
    identity.write_bytes(kept)
    done = cluster("up", "--group", "a")
    assert (done.status, outcomes(done.document)) == (0, {("a", 0): "runs already", ("a", 1): "started"})


def test_replace_node_brings_in_an_empty_slave_under_a_number_that_is_not_on_record(story, cluster):
    assert "runs as process" in cluster("replace-node", "a", 1).document["sentence"]
    story.kill("a-1")
    assert "on record as in sync" in cluster("replace-node", "a", 1, "--id", 1).document["sentence"]
    done = cluster("replace-node", "a", 1)
    assert done.status == 0, done
    assert outcomes(done.document) == {("a", 0): "changed while it runs", ("a", 2): "started"}
    assert "# relative to this file" in story.file.read_text()
    a = cluster("status").document["groups"][0]
    assert [(node["node"], node["role"], node["lag"]) for node in a["nodes"]] == [(0, "master", None), (2, "slave", 0)]
    assert a["nodes"][1]["end"] == a["nodes"][0]["end"] > 0
    assert a["in_sync"] == [0, 2]


def test_scale_restarts_nobody_of_a_group_that_has_slaves(story, cluster):
    before = {node: running_pid(story.store(node)) for node in ("a-0", "a-2")}
    done = cluster("scale", "a", "--slaves", 2)
    changed = {("a", 0): "changed while it runs", ("a", 2): "changed while it runs"}
    assert (done.status, outcomes(done.document)) == (0, changed | {("a", 3): "started"}), done
    a = cluster("status").document["groups"][0]
    assert (a["state"], a["in_sync"]) == ("ok", [0, 2, 3])
    assert [node["older_settings"] for node in a["nodes"]] == [[], [], []]
    peers = {json.loads((story.store(node) / "run/settings.json").read_bytes())["ha_peers"] for node in before}
    assert len(peers) == 1
    assert "3=" in peers.pop()
    for node in ("a-3", "a-0"):  # who has come is followed by those who were there, and the other way round
        assert story.towline("promote", "--store", story.store(node)).status == 0
        await_(lambda: cluster("status").document["groups"][0]["state"] == "ok", 60.0, "all follow it")
        assert json.loads((story.store(node) / "run/node.json").read_bytes())["role"] == "master"
    done = cluster("scale", "a", "--slaves", 1)
    assert (done.status, outcomes(done.document)) == (0, changed | {("a", 3): "stopped"}), done
    assert {node: running_pid(story.store(node)) for node in before} == before
    assert cluster("status").document["groups"][0]["in_sync"] == [0, 2]


def test_scale_adds_a_slave_and_takes_it_away(story, cluster):
    done = cluster("scale", "b", "--slaves", 1, "--no-restart")
    assert (done.status, outcomes(done.document)) == (0, {("b", 1): "started", ("b", 0): "runs already"})
    status = cluster("status").document["groups"][1]
    assert (status["state"], status["nodes"][1]["follows"]) == ("ok", True)
    assert "ha_peers" in status["nodes"][0]["older_settings"]
    done = cluster("scale", "b", "--slaves", 0)
    assert (done.status, outcomes(done.document)[("b", 1)]) == (0, "stopped")
    assert story.store("b-1").is_dir()
    assert cluster("scale", "b", "--slaves", 0).document["remarks"] == ["group b has 0 slaves already"]
    refused = cluster("scale", "a", "--slaves", 0)
    assert "in_sync_replicas" in refused.document["sentence"]


def test_restart_takes_the_nodes_with_older_settings_slaves_first(story, cluster):
    story.file.write_text(story.file.read_text().replace("max_message_size = 65536", "max_message_size = 32768"))
    done = cluster("restart", "--group", "a")
    assert (done.status, outcomes(done.document)) == (0, {("a", 0): "restarted", ("a", 2): "restarted"})
    assert done.err.index("a-2: serves") < done.err.index("a-0: stopped")
    nodes = [node for group in cluster("status").document["groups"] for node in group["nodes"]]
    assert [node["older_settings"] for node in nodes] == [[], [], ["max_message_size"]]


def test_down_stops_every_node_clean_and_leaves_nothing(story, cluster):
    done = cluster("down")
    assert (done.status, done.document["state"]) == (0, "stopped"), done
    assert [node["outcome"] for node in done.document["nodes"]] == ["stopped"] * 3
    assert story.running() == []
    assert list((story.runtime / "towline").iterdir()) == []
    assert not any((story.store(node) / "abort").exists() for node in ("a-0", "a-2", "b-0"))
    assert cluster("down").status == 0
    assert cluster("status").document["state"] == "stopped"


def test_ctrl_c_stops_again_what_it_started(story):
    command = [*TOWLINE, "cluster", "up", "-f", str(story.file)]
    up = subprocess.Popen(command, cwd=home(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert up.stderr is not None
    assert "starts as" in up.stderr.readline()
    await_(lambda: store_is_taken(story.store("a-2")), 20.0, "the first node begins")
    up.send_signal(signal.SIGINT)
    _, err = up.communicate(timeout=50)
    assert up.returncode == 130, err
    assert "were stopped again" in err
    assert "Traceback" not in err
    assert story.running() == []


def store_is_taken(store):
    try:
        return running_pid(store)
    except NodeNotRunning:
        return 0


def test_a_bad_file_is_refused_in_json_as_well(story, cluster):
    story.file.write_text(story.file.read_text().replace("port =", "prot =", 1))
    done = cluster("up")
    assert (done.status, done.document["error"]) == (1, "BadCluster")
    assert "did you mean port" in done.document["sentence"]
    assert json.loads(cluster("status").out)["error"] == "BadCluster"
    assert Store(story.store("a-0")).root.exists()
