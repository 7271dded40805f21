"""Where other machines are told that a node listens."""

import pytest

from towline.node.process.endpoints import reachable
from towline.places import Runtime
from towline.runtime.settings import read_settings

PEERS = "0=host-8.example:10912,1=10.0.0.9:10912"
TLS = {"tls_server_mode": "ENFORCING", "tls_server_cert_path": "/a.pem", "tls_server_key_path": "/b.pem"}


@pytest.mark.parametrize(
    ("given", "remoting", "put"),
    [
        ({}, "tcp://127.0.0.1:10911", "tcp://127.0.0.1:10920"),
        ({"listen_host": "10.0.0.7", "insecure": True}, "tcp://10.0.0.7:10911", "tcp://10.0.0.7:10920"),
        (
            {"listen_host": "0.0.0.0", "insecure": True, "ha_peers": PEERS},
            "tcp://host-8.example:10911",
            "tcp://host-8.example:10920",
        ),
        (
            {"listen_host": "10.0.0.7", "insecure": True, "broker_ip1": "192.0.2.1"},
            "tcp://192.0.2.1:10911",
            "tcp://10.0.0.7:10920",
        ),
        (TLS, "tls://127.0.0.1:10911", "tcp://127.0.0.1:10920"),
    ],
    ids=["loopback", "an address", "every address", "an address for clients", "TLS alone"],
)
def test_a_master_names_its_ports_as_others_find_them(tmp_path, given, remoting, put):
    found = reachable(read_settings(None, given, {}), Runtime(tmp_path), "master")
    assert (found["remoting"], found["put"]) == ([remoting], [put])
