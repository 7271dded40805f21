"""What a node is started with, from its place in the file."""

from pathlib import Path

import pytest

from towline.cluster.derived import check_settings, flags_of, given_to, settings_of
from towline.errors import BadSetting, UnknownSetting
from towline.route.errors import BadCluster
from towline.route.file import parse_cluster
from towline.runtime.settings_model import BrokerRole

PATH = Path("/etc/towline/cluster.toml")
TEXT = """
name = "demo"
etcd = ["http://10.0.0.9:2379", "http://10.0.0.10:2379"]
settings = { flush_disk_type = "SYNC_FLUSH", enable_property_filter = true, keys_dir = "keys" }
[[group]]
name = "a"
settings = { broker_role = "SYNC_MASTER" }
[[group.node]]
id = 0
host = "10.0.0.7"
port = 10911
store = "a-0"
[[group.node]]
id = 1
host = "host-8"
port = 10911
store = "a-1"
settings = { file_reserved_time = 24 }
[[group]]
name = "b"
[[group.node]]
id = 3
port = 12000
store = "b-3"
"""


def given(group, number, role, text=TEXT):
    cluster = parse_cluster(text, PATH)
    return given_to(cluster, cluster.group(group), cluster.group(group).node(number), role)


def test_a_master_is_given_its_names_addresses_and_peers():
    assert given("a", 0, "master") == {
        "flush_disk_type": "SYNC_FLUSH",
        "enable_property_filter": "true",
        "keys_dir": "/etc/towline/keys",
        "in_sync_replicas": "2",
        "total_replicas": "2",
        "broker_ip1": "10.0.0.7",
        "broker_cluster_name": "demo",
        "broker_name": "a",
        "broker_id": "0",
        "listen_host": "10.0.0.7",
        "listen_port": "10911",
        "ha_listen_port": "10912",
        "promoted_role": "SYNC_MASTER",
        "broker_role": "SYNC_MASTER",
        "ha_peers": "0=10.0.0.7:10912,1=host-8:10912",
        "etcd_endpoints": "http://10.0.0.9:2379,http://10.0.0.10:2379",
    }


TLS = """, tls_server_mode = "ENFORCING", tls_server_cert_path = "n.crt", tls_server_key_path = "/n.key" }"""


def test_clients_come_to_its_port_on_loopback_and_beyond_it_over_tls():
    assert given("b", 3, "master")["listen_port"] == "12000"
    found = given("a", 0, "master", TEXT.replace('keys_dir = "keys" }', f'keys_dir = "keys"{TLS}'))
    assert found["listen_port"] == "10911"
    assert (found["tls_server_cert_path"], found["tls_server_key_path"]) == ("/etc/towline/n.crt", "/n.key")


def test_a_port_of_clients_that_the_file_names_by_itself_is_not_taken_back():
    named = TEXT.replace('host = "10.0.0.7"', 'host = "10.0.0.7"\nlisten_port = 10911')
    assert given("a", 0, "master", named)["listen_port"] == "10911"
    check_settings(parse_cluster(named, PATH))
    with pytest.raises(BadSetting, match=r"tls_server_mode.*beyond loopback clients come over TLS"):
        check_settings(parse_cluster(named.replace('"keys" }', '"keys", tls_server_mode = "PERMISSIVE" }'), PATH))


def test_a_slave_is_told_its_master_and_what_it_is_once_promoted():
    found = given("a", 1, "slave")
    assert "broker_role" not in found
    assert found["ha_master_address"] == "10.0.0.7:10912"
    assert (found["promoted_role"], found["in_sync_replicas"]) == ("SYNC_MASTER", "2")
    assert (found["file_reserved_time"], found["listen_host"]) == ("24", "0.0.0.0")
    assert "broker_ip1" not in found  # a name is no address


def test_a_slave_follows_the_master_of_now():
    cluster = parse_cluster(TEXT, PATH)
    group = cluster.group("a")
    found = given_to(cluster, group, group.node(0), "slave", group.node(1))
    assert found["ha_master_address"] == "host-8:10912"


def test_a_node_alone_has_no_peers_but_names_itself_where_an_etcd_decides():
    assert given("b", 3, "master")["ha_peers"] == "3=127.0.0.1:12001"
    without = TEXT.replace("etcd =", "# etcd =")
    assert "ha_peers" not in given("b", 3, "master", without)
    assert given("b", 3, "master", without)["broker_role"] == "ASYNC_MASTER"


def test_flags_set_each_of_them():
    assert flags_of({"a": "1", "b": "x=y"}) == ["--set", "a=1", "--set", "b=x=y"]


def test_every_node_gets_settings_that_stand_together():
    cluster = parse_cluster(TEXT, PATH)
    check_settings(cluster)
    group = cluster.group("a")
    assert settings_of(cluster, group, group.node(0), "master").broker_role is BrokerRole.SYNC_MASTER
    assert settings_of(cluster, group, group.node(1), "slave").broker_role is BrokerRole.SLAVE


@pytest.mark.parametrize(
    ("written", "kind", "words"),
    [
        ("flush_disc_type = 1", UnknownSetting, ("group a, node 0", "flush_disc_type", "flush_disk_type")),
        ('flush_disk_type = "SOMETIMES"', BadSetting, ("group a, node 0", "flush_disk_type", "SYNC_FLUSH")),
        ("broker_id = 4", BadCluster, ("settings.broker_id", "`id` of the node", "take it out")),
        ("haPeers = 4", UnknownSetting, ("haPeers", "ha_peers")),
        ("ha_listen_port = 4", BadCluster, ("settings.ha_listen_port", "`port` of the node")),
        ('broker_role = "SLAVE"', BadCluster, ("settings.broker_role", "`master` of the group")),
        ("in_sync_replicas = 3", BadCluster, ("settings.in_sync_replicas", "the group has 2 nodes")),
        ('in_sync_replicas = "two"', BadSetting, ("in_sync_replicas", "two")),
        ("min_in_sync_replicas = 3", BadSetting, ("in_sync_replicas", "at least 3")),
    ],
    ids=str,
)
def test_settings_that_cannot_be_are_refused_with_file_node_and_key(written, kind, words):
    text = TEXT.replace('broker_role = "SYNC_MASTER"', written)
    with pytest.raises(kind) as caught:
        check_settings(parse_cluster(text, PATH))
    assert all(word in str(caught.value) for word in (str(PATH), *words)), str(caught.value)
