"""Cluster files: what a good one means, and which sentence each bad one is refused with."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.repo.trees import ROOT
from towline.route import file
from towline.route.errors import BadCluster, UnreadableCluster
from towline.route.file import parse_cluster, read_cluster
from towline.start import home

PATH = Path("/etc/towline/cluster.toml")
GOOD = """
name = "demo"
etcd = ["http://10.0.0.9:2379", "https://etcd-1:2379"]
[settings]
flush_disk_type = "SYNC_FLUSH"
max_message_size = 65536
[[group]]
name = "a"
master = 1
settings = { max_message_size = 1024 }
[[group.node]]
id = 0
host = "10.0.0.7"
port = 10911
store = "/var/lib/towline/a-0"
[[group.node]]
id = 1
host = "host-8.example"
listen = "10.0.0.8"
port = 10911
ha_listen_port = 7000
store = "../a-1"
runtime = "/run/towline/a-1"
settings = { file_reserved_time = 24 }
[[group]]
name = "b"
[[group.node]]
id = 5
listen_port = 0
ha_listen_port = 2
store = "b-5"
"""


@pytest.fixture(scope="module")
def cluster():
    return parse_cluster(GOOD, PATH)


class TestAGoodFile:
    def test_has_groups_and_nodes_in_its_order(self, cluster):
        assert (cluster.name, cluster.etcd) == ("demo", ("http://10.0.0.9:2379", "https://etcd-1:2379"))
        assert [node.label for node in cluster.nodes] == ["a-0", "a-1", "b-5"]
        assert [group.first_master.label for group in cluster.groups] == ["a-1", "b-5"]

    def test_says_where_clients_come_the_first_master_in_front(self, cluster):
        group = cluster.group("a")
        assert group.endpoints == ("tcp://host-8.example:10911", "tcp://10.0.0.7:10911")
        assert [node.address("ha") for node in group.nodes] == ["10.0.0.7:10912", "host-8.example:7000"]
        assert dict(cluster.group("b").node(5).ports) == {"remoting": 0, "ha": 2}

    @pytest.mark.parametrize(
        ("said", "scheme"),
        [
            ("", "tcp"),
            ("tls_server_mode = 'PERMISSIVE'", "tcp"),
            ("tls_server_mode = 'ENFORCING'", "tls"),
            ("tlsServerMode = 'enforcing'", "tls"),
            ("keys_dir = 'keys'\ntls_server_mode = 'ENFORCING'", "tcp"),  # the key file has the ring's certificate
            ("keysDir = 'keys'\ntls_server_mode = 'ENFORCING'", "tcp"),
        ],
    )
    def test_leads_clients_to_tls_where_no_ring_does(self, said, scheme):
        group = parse_cluster(GOOD.replace("[settings]", f"[settings]\n{said}"), PATH).group("a")
        assert group.endpoints == (f"{scheme}://host-8.example:10911", f"{scheme}://10.0.0.7:10911")

    def test_leads_nobody_to_a_node_without_a_port_for_clients(self, cluster):
        assert cluster.group("b").endpoints == ()

    def test_resolves_paths_from_its_own_directory(self, cluster):
        assert [str(node.store) for node in cluster.nodes] == [
            "/var/lib/towline/a-0",
            "/etc/a-1",
            "/etc/towline/b-5",
        ]
        assert [node.runtime for node in cluster.nodes] == [None, Path("/run/towline/a-1"), None]

    def test_says_what_each_node_binds(self, cluster):
        assert [node.listen for node in cluster.nodes] == ["10.0.0.7", "10.0.0.8", "127.0.0.1"]
        by_name = parse_cluster(GOOD.replace('listen = "10.0.0.8"', ""), PATH)
        assert by_name.group("a").node(1).listen == "0.0.0.0"

    def test_gives_a_group_the_settings_of_the_cluster_and_its_own(self, cluster):
        assert dict(cluster.group("a").settings) == {"flush_disk_type": "SYNC_FLUSH", "max_message_size": 1024}
        assert dict(cluster.group("b").settings) == {"flush_disk_type": "SYNC_FLUSH", "max_message_size": 65536}
        assert dict(cluster.group("a").node(1).settings) == {"file_reserved_time": 24}


SECOND = '[[group.node]]\nid = 1\nport = 11020\nstore = "a-1"\n'
SMALL = f'name = "demo"\n[[group]]\nname = "a"\n[[group.node]]\nid = 0\nport = 11000\nstore = "a-0"\n{SECOND}'
BAD = [
    ("name no more", 'name = "demo"\n', "", "", "name", "is missing"),
    ("name of a path", 'name = "demo"', 'name = "a/b"', "", "name", "are a name"),
    ("no group", SMALL[SMALL.index("[[group]]") :], "", "", "group", "at least one [[group]]"),
    ("unknown key", "port = 11000", "prot = 11000", "group a, node 0", "prot", "did you mean port?"),
    ("unknown key of a group", 'name = "a"', 'name = "a"\nmastr = 1', "group a", "mastr", "did you mean master?"),
    ("a key that is like none", 'name = "demo"', 'name = "demo"\nxyz = 1', "", "xyz", "name, etcd, settings, group"),
    ("id of text", "id = 0", 'id = "0"', "group a, node 0", "id", "a whole number"),
    ("id of a switch", "id = 0", "id = true", "group a, node True", "id", "a whole number"),
    ("id beyond the mask", "id = 0", "id = 63", "group a, node 63", "id", "0 to 62"),
    ("id below 0", "id = 0", "id = -1", "group a, node -1", "id", "0 to 62"),
    ("id twice", "id = 1", "id = 0", "group a, node 0", "id", "2 tables have it"),
    ("master that is none", 'name = "a"', 'name = "a"\nmaster = 7', "group a", "master", "has the nodes 0, 1"),
    ("no port", "port = 11000\n", "", "group a, node 0", "port", "is missing"),
    ("port too high", "port = 11000", "port = 65535", "group a, node 0", "port", "makes 65536 the port of ha"),
    ("port 0", "port = 11000", "port = 0", "group a, node 0", "port", "1 to 65535"),
    ("port -1", "port = 11000", "port = 11000\nlisten_port = -1", "group a, node 0", "listen_port", "0 to 65535"),
    (
        "ha port 0",
        "port = 11000",
        "port = 11000\nha_listen_port = 0",
        "group a, node 0",
        "ha_listen_port",
        "1 to 65535",
    ),
    ("port twice", "port = 11020", "port = 11001", "group a, node 1", "listen_port", "ha of node 0"),
    (
        "port twice in one",
        "port = 11000",
        "port = 11000\nha_listen_port = 11000",
        "group a, node 0",
        "ha_listen_port",
        "remoting of",
    ),
    ("a port of before", "port = 11000", "port = 11000\nput_port = 1", "group a, node 0", "put_port", "is no key here"),
    ("no store", 'store = "a-0"\n', "", "group a, node 0", "store", "is missing"),
    ("store twice", '"a-1"', '"./a-0"', "group a, node 1", "store", "node 0 of group a has"),
    ("store within", '"a-1"', '"a-0/config"', "group a, node 1", "store", "node 0 of group a has"),
    ("host with a port", "port = 11000", 'host = "h:1"\nport = 11000', "group a, node 0", "host", "an IPv4 address"),
    ("host of spaces", "port = 11000", 'host = "h h"\nport = 11000', "group a, node 0", "host", "an IPv4 address"),
    ("listen by name", "port = 11000", 'listen = "h"\nport = 11000', "group a, node 0", "listen", "an IPv4 address"),
    ("etcd without a port", 'name = "demo"', 'name = "demo"\netcd = ["http://h"]', "", "etcd", "http://host:port"),
    ("settings of text", 'name = "demo"', 'name = "demo"\nsettings = "x"', "", "settings", "a table"),
    ("group of numbers", SMALL[SMALL.index("[[group]]") :], "group = [1]", "", "group", "a table"),
]


@pytest.mark.parametrize(("old", "new", "table", "key", "why"), [row[1:] for row in BAD], ids=[row[0] for row in BAD])
def test_a_bad_file_is_refused_naming_file_table_and_key(old, new, table, key, why):
    parse_cluster(SMALL, PATH)
    assert old in SMALL
    with pytest.raises(BadCluster) as caught:
        parse_cluster(SMALL.replace(old, new, 1), PATH)
    assert (caught.value.path, caught.value.table, caught.value.key) == (str(PATH), table, key)
    assert why in caught.value.why
    assert "towline cluster init" in str(caught.value)


def test_two_runtime_directories_of_one_machine_differ():
    twice = SMALL.replace("id = 0", 'id = 0\nruntime = "/run/x"').replace("id = 1", 'id = 1\nruntime = "/run/x"')
    with pytest.raises(BadCluster, match="node 0 of group a has it"):
        parse_cluster(twice, PATH)


def test_ports_and_stores_of_two_machines_may_be_the_same():
    other = SMALL.replace("port = 11020", 'host = "10.0.0.8"\nport = 11000').replace('"a-1"', '"a-0"')
    assert len(list(parse_cluster(other, PATH).nodes)) == 2


def test_localhost_is_the_same_machine_as_its_address():
    with pytest.raises(BadCluster, match="remoting of node 0"):
        parse_cluster(SMALL.replace("port = 11020", 'host = "localhost"\nport = 11000'), PATH)


@pytest.mark.parametrize(
    ("content", "why"),
    [(b"name = ", "no TOML"), (b"\xff", "utf-8"), (None, "No such file")],
    ids=["torn", "bytes", "none"],
)
def test_a_file_that_cannot_be_read_is_refused(tmp_path, content, why):
    path = tmp_path / "cluster.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UnreadableCluster, match=why):
        read_cluster(path)


def test_a_client_reads_it_without_what_only_a_server_has():
    program = "import sys, towline.route.file; print([name for name in ('pydantic', 'tomlkit') if name in sys.modules])"
    said = subprocess.run([sys.executable, "-c", program], cwd=home(), capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "[]"


def test_the_page_about_operations_has_every_key_and_no_other():
    page = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8").partition("## Keys of the file")[2]
    rows = [[cell.strip() for cell in line.split("|")[1:3]] for line in page.splitlines() if line.count("|") == 4]
    told = [(table, key) for table, keys in rows[2:] for key in re.findall(r"`(\w+)`", keys)]
    tables = {"top": file._CLUSTER_KEYS, "group": file._GROUP_KEYS, "node": file._NODE_KEYS}
    assert sorted(told) == sorted((table, key) for table, keys in tables.items() for key in keys)
