"""Where a slave connects to the master that its peers name."""

import pytest

from towline.node.peers.find_master import reached_at


@pytest.mark.parametrize(
    ("named", "where", "expected"),
    [
        (["tcp://10.0.0.7:10911"], "10.0.0.7:10912", ["tcp://10.0.0.7:10911"]),
        (["tcp://192.0.2.1:10911"], "10.0.0.7:10912", ["tcp://192.0.2.1:10911", "tcp://10.0.0.7:10911"]),
        (["tcp://127.0.0.1:10911"], "10.0.0.7:10912", ["tcp://10.0.0.7:10911"]),
        (["tcp://127.0.0.1:10911"], "127.0.0.1:10912", ["tcp://127.0.0.1:10911"]),
        (["tls://node-7:10911"], "10.0.0.7:10912", ["tls://node-7:10911", "tls://10.0.0.7:10911"]),
        (["tcp://[2001:db8::1]:10911"], "[2001:db8::1]:10912", ["tcp://[2001:db8::1]:10911"]),
        (["nonsense"], "10.0.0.7:10912", ["nonsense"]),
        ([], "10.0.0.7:10912", []),
    ],
    ids=["as named", "behind NAT", "named as this machine", "on this machine", "by name", "IPv6", "nonsense", "none"],
)
def test_it_is_the_address_that_leads_there(named: list[str], where: str, expected: list[str]) -> None:
    assert reached_at(named, where) == expected
