"""Where other machines are told that a node listens."""

import pytest

from towline.node.process.endpoints import reachable
from towline.places import Runtime
from towline.runtime.settings import read_settings

PEERS = "0=host-8.example:10912,1=10.0.0.9:10912"
TLS = {"tls_server_mode": "ENFORCING", "tls_server_cert_path": "/a.pem", "tls_server_key_path": "/b.pem"}
OPEN = {"insecure": True}
RING = {"keys_dir": "/keys"}


@pytest.mark.parametrize(
    ("given", "remoting", "ha"),
    [
        ({}, "tcp://127.0.0.1:10911", "tcp://127.0.0.1:10912"),
        (OPEN | {"listen_host": "10.0.0.7"}, "tcp://10.0.0.7:10911", "tcp://10.0.0.7:10912"),
        (
            OPEN | {"listen_host": "0.0.0.0", "ha_peers": PEERS},
            "tcp://host-8.example:10911",
            "tcp://host-8.example:10912",
        ),
        (
            OPEN | {"listen_host": "10.0.0.7", "broker_ip1": "192.0.2.1"},
            "tcp://192.0.2.1:10911",
            "tcp://10.0.0.7:10912",
        ),
        (TLS, "tls://127.0.0.1:10911", "tcp://127.0.0.1:10912"),
        (OPEN | {"broker_ip1": "2001:db8::1"}, "tcp://[2001:db8::1]:10911", "tcp://127.0.0.1:10912"),
        (RING | {"listen_host": "10.0.0.7"}, "tcp://10.0.0.7:10911", "tcp://10.0.0.7:10912"),
        (RING | TLS | {"listen_host": "10.0.0.7"}, "tcp://10.0.0.7:10911", "tcp://10.0.0.7:10912"),
    ],
    ids=[
        "loopback",
        "an address",
        "every address",
        "an address for clients",
        "TLS alone",
        "IPv6",
        "a ring",
        "a ring and TLS",
    ],
)
def test_a_master_names_its_ports_as_others_find_them(tmp_path, given, remoting, ha):
    found = reachable(read_settings(None, given, {}), Runtime(tmp_path), "master")
    assert found == {"remoting": [remoting], "ha": [ha]}


@pytest.mark.parametrize(
    ("role", "more"), [("master", {"listen_port": 0}), ("slave", {"broker_role": "SLAVE", "slave_read_enable": False})]
)
def test_a_node_that_answers_no_clients_names_no_port_for_them(tmp_path, role, more):
    assert "remoting" not in reachable(read_settings(None, more, {}), Runtime(tmp_path), role)
