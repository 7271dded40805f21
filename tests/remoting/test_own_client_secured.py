"""Our own client, by rocketmq://, where requests have to be signed and connections are TLS."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.processes.nodes import check_nothing_is_left, ending
from towline.client.admin import AdminClient
from towline.client.consumer import Consumer
from towline.client.errors import AskRefused, PutRefused
from towline.client.message import Message
from towline.client.producer import Producer
from towline.errors import NoAnswer, TowlineError
from towline.link.keys import make_node_keys, new_key

from .certificates import Certificate, certificate
from .conftest import RemotingNode, remoting_node


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return certificate(tmp_path_factory.mktemp("certificate"))


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("keys") / "ring"
    make_node_keys(made)
    for name, roles in {"payer": ["producer"], "reader": ["consumer"], "chief": ["admin"]}.items():
        new_key(made, name, roles)
    return made


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory, keys: Path, pair: Certificate) -> Iterator[RemotingNode]:
    made = remoting_node(
        tmp_path_factory.mktemp("secured") / "store",
        keys_dir=keys,
        tls_server_cert_path=pair.certificate,
        tls_server_key_path=pair.key,
        tls_server_mode="ENFORCING",
    )
    with ending(made):
        made.start()
        yield made
        assert made.stop()
        check_nothing_is_left(made)


def endpoint_of(node: RemotingNode, keys: Path, pair: Certificate, name: str, directory: Path) -> str:
    found = json.loads((keys / "handed" / f"{name}.secret.json").read_text())
    acl = directory / f"{name}.yml"
    acl.write_text(f"accessKey: {found['name']}\nsecretKey: {found['access']}\n")
    return f"rocketmq://127.0.0.1:{node.port}?acl={acl}&ca={pair.certificate}"


def test_each_key_does_what_its_role_allows(node: RemotingNode, keys: Path, pair: Certificate, tmp_path: Path) -> None:
    chief, payer, reader = (endpoint_of(node, keys, pair, name, tmp_path) for name in ("chief", "payer", "reader"))
    with AdminClient(chief, timeout_ms=30_000) as admin:
        admin.create_topic("secured", 2)
    with Producer(payer, send_timeout_ms=20_000) as producer:
        results = producer.send_batch([Message("secured", b"%d" % number) for number in range(500)])
        assert all(result.acknowledged for result in results)
    with Consumer(reader, "secured", start="first", timeout_ms=60_000) as consumer:
        found = {message.body for message in consumer.poll(30_000)}
        while len(found) < 500 and (more := consumer.poll(30_000)):
            found |= {message.body for message in more}
    assert found == {b"%d" % number for number in range(500)}
    with Producer(reader, retries=0) as producer, pytest.raises(PutRefused, match="NO_PERMISSION"):
        producer.send(Message("secured", b"not mine"))
    with AdminClient(payer, timeout_ms=30_000) as admin, pytest.raises(AskRefused, match="NO_PERMISSION"):
        admin.create_topic("another", 2)


def test_neither_plain_tcp_nor_another_certificate_is_let_in(
    node: RemotingNode, keys: Path, pair: Certificate, tmp_path: Path
) -> None:
    with pytest.raises(NoAnswer):
        Producer(f"rocketmq://127.0.0.1:{node.port}")
    other = certificate(tmp_path / "other")
    with pytest.raises(NoAnswer, match="certificate"):
        Producer(endpoint_of(node, keys, other, "chief", tmp_path))


def test_a_wrong_secret_is_refused(node: RemotingNode, pair: Certificate, tmp_path: Path) -> None:
    acl = tmp_path / "wrong.yml"
    acl.write_text("accessKey: chief\nsecretKey: wrong\n")
    with pytest.raises(TowlineError, match="signature"):
        Producer(f"rocketmq://127.0.0.1:{node.port}?acl={acl}&ca={pair.certificate}")
