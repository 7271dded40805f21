"""What a command makes of a cluster whose nodes do not run, or are not of this machine."""

import json

import pytest

from towline.cli.cluster_nodes import forget_memory, is_here, observe, older_settings, roles_of
from towline.cli.main import run
from towline.cluster.state import NodeState
from towline.log.files.config_file import ConfigFile
from towline.log.state.role_file import Role, save_role
from towline.node.process.context import runtime_of
from towline.places import Store
from towline.route.file import read_cluster

TEXT = """
name = "demo"
settings = {{ broker_role = "SYNC_MASTER", insecure = true }}
[[group]]
name = "a"
"""
NODE = '[[group.node]]\nid = {id}\nhost = "{host}"\nport = {port}\nstore = "a-{id}"\n'
FAR = "192.0.2.1"  # of no machine (RFC 5737)


def write(tmp_path, *hosts):
    file = tmp_path / "cluster.toml"
    nodes = (NODE.format(id=number, host=host, port=11_000 + 20 * number) for number, host in enumerate(hosts))
    file.write_text(TEXT.format() + "".join(nodes))
    return file


@pytest.fixture
def cluster(tmp_path):
    return read_cluster(write(tmp_path, "127.0.0.1", "localhost", "127.0.0.1"))


def recorded(cluster, number, role, epoch):
    store = Store(cluster.groups[0].node(number).store)
    store.root.mkdir(exist_ok=True)
    save_role(store, Role(role, epoch, "", -1))


def roles(cluster):
    return [role for _, role in sorted(roles_of(observe(cluster.groups[0])).items())]


class TestRoles:
    def test_of_an_empty_group_are_those_of_the_file(self, cluster):
        assert roles(cluster) == ["master", "slave", "slave"]

    def test_are_what_the_nodes_recorded_under_the_greatest_epoch(self, cluster):
        recorded(cluster, 0, "master", 256)
        recorded(cluster, 1, "master", 769)
        recorded(cluster, 2, "slave", 0)
        assert roles(cluster) == ["slave", "master", "slave"]

    def test_are_those_of_the_file_where_nobody_recorded_a_master(self, cluster):
        recorded(cluster, 1, "slave", 769)
        ConfigFile(Store(cluster.groups[0].node(2).store).role)  # none there
        assert roles(cluster) == ["master", "slave", "slave"]


class TestAnotherMachine:
    def test_is_known_by_its_address(self, tmp_path):
        near, far = read_cluster(write(tmp_path, "localhost", FAR)).groups[0].nodes
        assert (is_here(near), is_here(far)) == (True, False)

    @pytest.mark.parametrize("command", ["up", "down", "status"])
    def test_is_left_alone_and_said_to_be_elsewhere(self, tmp_path, capfd, command):
        file = write(tmp_path, FAR, FAR)
        assert run(["cluster", command, "-f", str(file), "--json"]) == 0
        document = json.loads(capfd.readouterr().out)
        assert document["state"] == "elsewhere"
        assert "elsewhere" in json.dumps(document["nodes"] if command == "down" else document["groups"])
        assert not list(tmp_path.glob("a-*"))

    def test_gets_a_slave_by_the_file_alone(self, tmp_path, capfd):
        file = write(tmp_path, "127.0.0.1", FAR)
        assert run(["cluster", "scale", "a", "-n", "2", "--host", FAR, "-f", str(file), "--json"]) == 0
        assert "the file alone was changed" in json.loads(capfd.readouterr().out)["remarks"][0]
        new = read_cluster(file).groups[0].node(2)
        assert (new.host, new.ports["remoting"]) == (FAR, 11_000)  # free there, as far as the file knows


def test_a_node_that_never_ran_is_stopped_and_has_no_older_settings(cluster):
    group = cluster.groups[0]
    assert {seen.state for seen in observe(group).nodes} == {NodeState.STOPPED}
    assert older_settings(cluster, group, group.nodes[0]) == []


def test_what_a_lost_node_left_in_memory_goes(cluster, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    node = cluster.groups[0].nodes[0]
    left = runtime_of(node.store).root
    left.mkdir(parents=True)
    forget_memory(node)
    assert not left.exists()


def test_replacing_a_node_takes_a_master_to_copy_from(tmp_path, capfd):
    file = write(tmp_path, "127.0.0.1", "127.0.0.1")
    before = file.read_text()
    assert run(["cluster", "replace-node", "a", "1", "-f", str(file), "--json"]) == 1
    assert "no master to copy from" in json.loads(capfd.readouterr().out)["sentence"]
    assert run(["cluster", "replace-node", "a", "7", "-f", str(file), "--json"]) == 1
    assert "it has the nodes 0, 1" in json.loads(capfd.readouterr().out)["sentence"]
    assert run(["cluster", "up", "-g", "z", "-f", str(file), "--json"]) == 1
    assert "group z" in json.loads(capfd.readouterr().out)["sentence"]
    assert file.read_text() == before
