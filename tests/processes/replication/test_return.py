"""What a node is after a promotion: its metadata, its role over restarts, what its commands say."""

import json
from collections.abc import Iterator

import pytest

from tests.processes.groups import Group
from tests.processes.load import Load
from tests.processes.nodes import CATCH_UP_S, ended
from tests.processes.waiting import await_
from towline.cli.main import run
from towline.client.admin import AdminClient
from towline.errors import AloneRefused
from towline.log.files.config_file import ConfigFile
from towline.log.state.role_file import load_role
from towline.runtime.positions import Position

from .test_promotion import check_group, running

TOPIC = "orders"
GROUP = "billing"
BEYOND = 1 << 40


@pytest.fixture(scope="module")
def group(tmp_path_factory) -> Iterator[Group]:
    """Slaves ask for metadata every half minute: what they know before was told them when it changed."""
    with running(Group(tmp_path_factory.mktemp("return"), 2, metadata_interval_ms=30_000)) as made:
        yield made


@pytest.fixture(scope="module")
def load(group) -> Load:
    sent = Load(group.nodes[0].endpoint, TOPIC, 6, count=400)
    sent.start()
    sent.finish()
    assert sent.outcomes["PUT_OK"] == sent.count
    return sent


def admin(node) -> AdminClient:
    return AdminClient(node.facts["endpoints"]["serve"][0])


def document(capfd, *words) -> dict:
    assert run([str(word) for word in (*words, "--json")]) in (0, 1)  # 1: a slave that follows nobody is not ready
    return json.loads(capfd.readouterr().out)


def test_groups_stand_where_they_stood_and_none_beyond_its_queue(group, load, capfd):
    old, new = group.nodes
    group.await_level(0, 1)
    with admin(old) as asked:
        bounds = asked.bounds(TOPIC)
        queue = next(queue for queue, (_, end) in bounds.items() if end > 20)
        asked.configure_group(GROUP, retryMaxTimes=3)
        asked.set_offset(GROUP, TOPIC, queue, 17)
    file = ConfigFile(new.store.config / "consumerOffset.json")
    key = f"{TOPIC}@{GROUP}"

    def followed() -> bool:
        content = file.load()
        return content is not None and key in content["offsetTable"]

    await_(followed, CATCH_UP_S, "the slave knows of the group")
    group.await_level(0, 1)
    group.await_in_sync(0, 2)
    old.kill_all(seed=2)
    content = file.load()
    content["offsetTable"][f"{TOPIC}@ahead"] = {queue: BEYOND}
    file.save(content)
    said = document(capfd, "promote", "--store", new.store.root)
    assert (said["role"], said["epoch"]) == ("master", 769)
    assert next(iter(said["stages_ms"])) == "ordered"
    with admin(new) as asked:
        assert asked.group_offsets(GROUP, TOPIC)[TOPIC][queue] == 17
        assert asked.group_offsets("ahead", TOPIC)[TOPIC][queue] == bounds[queue][1]
    assert "beyond the queue's end" in new.store.node_log.read_text()
    old.start()
    new.forget()
    check_group(group, load, 0, 1)


def test_roles_outlive_restarts_whatever_the_command_says(group, load, capfd):
    """Node 1 is started as `towline slave` each time, and was promoted."""
    old, new = group.nodes
    assert (old.role, new.role) == ("master", "slave")
    group.await_level(0, 1)
    assert (new.stop(), old.stop()) == (True, True)
    old.start()
    new.start()
    assert (group.role(0), group.role(1)) == ("slave", "master")
    assert load_role(new.store).role == "master"
    for command in ("master", "slave"):
        status = document(capfd, command, "status", "--store", new.store.root)
        assert (status["role"], status["broker_role"]) == ("master", "SYNC_MASTER")
    # Nothing was written in 769 yet, so it is taken up again, unless the other one says by then that it follows 769.
    assert new.at(Position.EPOCH) in (769, 1025)
    check_group(group, load, 0, 1)


def test_a_master_is_promoted_without_being_stopped(group, load, capfd):
    new = group.nodes[1]
    before = new.pids()
    said = document(capfd, "promote", "--store", new.store.root)
    assert (said["role"], new.pids()) == ("master", before)


def test_a_master_whose_peers_are_silent_starts_if_the_operator_says_that_none_is_master(tmp_path):
    """With a minimum of one node a peer may have gone on without it; at its very first start none can have."""
    settings = {"broker_role": "ASYNC_MASTER", "in_sync_replicas": 1, "min_in_sync_replicas": 1}
    node = Group(tmp_path, 2, **settings).nodes[0]
    cleaning = ended(node)
    next(cleaning)
    node.start()
    assert node.stop()
    with pytest.raises(AloneRefused) as refused:
        node.start()
    assert refused.value.args == (0, "1")
    node.start("--alone")
    assert node.facts["role"] == "master"
    assert node.stop()
    next(cleaning, None)


def test_a_store_without_a_node_is_promoted_by_nobody(tmp_path, capfd):
    assert run(["promote", "--store", str(tmp_path), "--json"]) == 1
    assert json.loads(capfd.readouterr().out)["error"] == "NodeNotRunning"
