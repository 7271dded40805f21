from pathlib import Path

import pytest

from towline.errors import InvalidEndpoint
from towline.link.endpoints import IPC_PATH_SIZE_MAX, Endpoint, ipc_endpoint, parse, tcp_endpoint


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("tcp://127.0.0.1:10911", Endpoint("tcp", host="127.0.0.1", port=10911)),
        ("broker-a.example:10911", Endpoint("tcp", host="broker-a.example", port=10911)),
        ("tcp://[::1]:1", Endpoint("tcp", host="::1", port=1)),
        (" ipc:///run/towline/put.sock ", Endpoint("ipc", path="/run/towline/put.sock")),
        ("tls://[::1]:1", Endpoint("tls", host="::1", port=1)),
        ("tls://a:1?ca=/b/c", Endpoint("tls", host="a", port=1, options=(("ca", "/b/c"),))),
        (
            "tls://a:1?key=/k%2C%26&cert=/c",
            Endpoint("tls", host="a", port=1, options=(("cert", "/c"), ("key", "/k,&"))),
        ),
    ],
    ids=["tcp", "no scheme", "ipv6", "ipc", "tls", "tls with a file", "tls with files"],
)
def test_an_endpoint_is_read_and_written(text: str, expected: Endpoint) -> None:
    assert parse(text) == expected
    assert parse(str(expected)) == expected


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("udp://127.0.0.1:1", "udp://"),
        ("tcp://127.0.0.1", "no port"),
        ("tcp://:10911", "no port"),
        ("tcp://127.0.0.1:70000", "'70000'"),
        ("tcp://127.0.0.1:x", "'x'"),
        ("tcp://::1:10911", "brackets"),
        ("tcp://a b:1", "'a b'"),
        ("ipc://put.sock", "begin with /"),
        ("tls://a:1?", "behind the \\?"),
        ("tls://a:1?ca", "behind the \\?"),
        ("tls://a:1?colour=red", "ca, cert, key are known"),
        ("tls://a:1?key=/k", "a key without a cert"),
        ("tls://a", "no port"),
        ("ipc:///" + "a" * IPC_PATH_SIZE_MAX, "at most"),
    ],
    ids=[
        "scheme",
        "no port",
        "no host",
        "port too large",
        "port no number",
        "bare ipv6",
        "space",
        "relative",
        "tls ?",
        "tls no file",
        "tls option",
        "tls key",
        "tls no port",
        "long",
    ],
)
def test_a_wrong_endpoint_is_refused_naming_the_part_that_is_wrong(text: str, problem: str) -> None:
    with pytest.raises(InvalidEndpoint, match=problem):
        parse(text)


def test_a_runtime_directory_gives_one_socket_per_process() -> None:
    assert ipc_endpoint(Path("/run/towline/1f"), "put") == "ipc:///run/towline/1f/put.sock"


@pytest.mark.parametrize(("host", "shown"), [("::1", "tcp://[::1]:7"), ("[::1]", "tcp://[::1]:7"), ("h", "tcp://h:7")])
def test_a_host_and_port_give_a_tcp_endpoint(host: str, shown: str) -> None:
    assert tcp_endpoint(host, 7) == shown


@pytest.mark.parametrize(
    ("text", "local"),
    [("ipc:///a", True), ("localhost:1", True), ("127.8.0.1:1", True), ("[::1]:1", True), ("10.0.0.1:1", False)],
)
def test_loopback_and_ipc_are_local(text: str, local: bool) -> None:
    assert parse(text).is_local is local
