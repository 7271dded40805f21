"""The endpoint of a RocketMQ cluster."""

from pathlib import Path

import pytest

from towline.client.link.endpoints import neighbour, several
from towline.client.rocketmq.endpoint import Credentials, RocketmqEndpoint
from towline.errors import InvalidEndpoint


def test_it_names_name_servers_and_may_name_a_broker():
    found = RocketmqEndpoint.read("rocketmq://a:9876;b:9877;[::1]:9878/broker-a")
    assert found.name_servers == (("a", 9876), ("b", 9877), ("::1", 9878))
    assert found.broker == "broker-a"
    assert found.of("broker-b") == "rocketmq://a:9876;b:9877;[::1]:9878/broker-b"
    assert found.credentials is None
    assert found.tls is None


@pytest.mark.parametrize(
    "text",
    [
        "rocketmq://",
        "rocketmq://a",
        "rocketmq://a:x",
        "rocketmq://a:1,b:2",
        "rocketmq://a:1;",
        "rocketmq://a:1/b/c",
        "rocketmq://a:1?colour=red",
        "rocketmq://a:1?acl",
    ],
)
def test_anything_else_is_refused(text: str):
    with pytest.raises(InvalidEndpoint):
        several(text)


def test_a_broker_is_all_services_at_once():
    text = "rocketmq://a:9876/b"
    assert several(text) == (text,)
    assert neighbour(text, "serve") == text


def test_the_file_of_keys_is_mqadmins(tmp_path: Path):
    path = tmp_path / "tools.yml"
    path.write_text('# keys\naccessKey: billing\nsecretKey: "12345678"\n')
    found = RocketmqEndpoint.read(f"rocketmq://a:1?acl={path}")
    assert found.credentials == Credentials("billing", "12345678")
    assert found.of("b") == f"rocketmq://a:1/b?acl={path}"


@pytest.mark.parametrize("text", ["", "accessKey: x\n", "access: x\nsecret: y\n"])
def test_a_file_without_both_keys_is_refused(tmp_path: Path, text: str):
    path = tmp_path / "keys"
    path.write_text(text)
    with pytest.raises(InvalidEndpoint):
        _ = RocketmqEndpoint.read(f"rocketmq://a:1?acl={path}").credentials


def test_a_file_that_holds_no_certificates_is_refused(tmp_path: Path):
    path = tmp_path / "ca.pem"
    path.write_text("none")
    with pytest.raises(InvalidEndpoint):
        _ = RocketmqEndpoint.read(f"rocketmq://a:1?ca={path}").tls
