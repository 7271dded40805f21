"""What the commands of a cluster advise about its nodes is typed, and it then works."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.processes.nodes import processes_of
from tests.processes.waiting import Watch, await_
from towline.places import Store

from .typist import TYPED, Typist, filled, spread_ports

SMALL = "mapped_file_size_commit_log = 1048576\nmax_message_size = 65536\nrequest_size_max = 262144\n"


@pytest.fixture
def file(typist: Typist, tmp_path: Path) -> Iterator[Path]:
    """Of one group that runs: a master and a slave."""
    made = tmp_path / "cluster.toml"
    typist.works(f"towline cluster init -f {made} --slaves 1")
    made.write_text(
        made.read_text(encoding="utf-8").replace("[settings]\n", f"[settings]\n{SMALL}", 1), encoding="utf-8"
    )
    spread_ports(made)
    typist.works(f"towline cluster up -f {made}")
    yield made
    typist(f"towline cluster down -f {made}")


def stores(typist: Typist, file: Path) -> dict[str, Path]:
    """By role."""
    [group] = typist(f"towline cluster status -f {file}").document["groups"]
    return {str(node["role"]): Path(node["store"]) for node in group["nodes"]}


def test_nodes_with_older_settings_are_restarted_as_status_says(typist: Typist, file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace(SMALL, f"{SMALL}put_waiting_max = 777\n"), encoding="utf-8")
    status = f"towline cluster status -f {file}"
    shown = typist.shown(status)
    assert "runs with older put_waiting_max" in shown
    [restarts] = set(TYPED.findall(shown))
    typist.works(restarts)
    assert "runs with older" not in typist.shown(status)


def test_a_node_that_cannot_be_read_is_named_beside_the_others_and_started_anew(typist: Typist, file: Path) -> None:
    slave = stores(typist, file)["slave"]
    (Path(json.loads(Store(slave).node.read_bytes())["runtime"]) / "queue_ends").unlink()
    status = f"towline cluster status -f {file}"
    seen = typist(status)
    assert seen.status == 1
    told = {node["role"]: node for node in seen.document["groups"][0]["nodes"]}
    assert told["master"]["visible_end"] >= 0, "the other node is shown whole"
    assert "queue_ends cannot be mapped" in told["slave"]["unreadable"]
    shown = typist.shown(status)
    assert told["slave"]["unreadable"] in shown
    stops, _, starts = TYPED.findall(told["slave"]["remedy"])
    assert [f"`{typed}`" in shown for typed in (stops, starts)] == [True, True]
    typist.works(stops)
    typist.works(f"towline cluster up -f {file}")
    typist.works(status)


def test_a_slave_whose_master_does_not_come_back_is_promoted_as_up_says(typist: Typist, file: Path) -> None:
    there = stores(typist, file)
    typist.works(f"towline put orders hello --store {there['master']}")
    await_(lambda: typist(f"towline get orders --store {there['slave']}").status == 0, 60.0, "the slave has it")
    for pid, _ in processes_of(there["master"]):
        os.kill(pid, signal.SIGKILL)
    Watch(pid for pid, _ in processes_of(there["master"])).await_gone(60.0)
    Store(there["master"]).identity.write_bytes(b"{")
    up = typist(f"towline cluster up -f {file}")
    assert up.status == 1
    [remedy] = [
        node["remedy"]
        for node in up.document["groups"][0]["nodes"]
        if node["store"] == str(there["slave"]) and "promote" in node["remedy"]
    ]
    [promotes] = [typed for typed in TYPED.findall(remedy) if "promote" in typed]
    promotes = filled(promotes, STORE=there["slave"])
    refused = typist(promotes)
    assert refused.document["error"] == "PromotionRefused"
    assert "say --accept-loss" in refused.document["remedy"]
    typist.works(promotes, "--accept-loss")
    stored = typist(f"towline put orders hello --store {there['slave']}")
    assert stored.document["status"] == "SLAVE_NOT_AVAILABLE", "it has it alone"
    assert stores(typist, file)["master"] == there["slave"]
