"""A node that is told nothing about ports has RocketMQ's: clients come to 10911 and 10909, and to 9876 for routes.

The machine's own ports may be taken, so nodes and clients are in a network of their own.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.cli.test_node_commands import SMALL
from tests.cli.typist import TOWLINE, Done
from tests.processes.nodes import processes_of
from tests.requirements import need
from towline.client.consumer import Consumer
from towline.client.message import Message
from towline.client.producer import Producer
from towline.format.remoting.codes import RequestCode
from towline.link.keys import ENVIRONMENT
from towline.link.tls import TlsRefused
from towline.loadtest.drill.network import own_network
from towline.start import home

from .raw import RawClient

SIZES: Final = SMALL[:-2]  # without the ports
ROCKETMQS: Final = (10_911, 10_909, 9_876)
OTHERS: Final = ("--port", "10931")  # of a slave on the same machine


@pytest.fixture(scope="module")
def network() -> Iterator[None]:
    need(_missing())
    with own_network():
        yield


def _missing() -> dict[str, str]:
    if os.geteuid() != 0:
        return {"namespaces": "a network of its own needs root"}
    if shutil.which("ip") is None:
        return {"namespaces": "there is no ip (Debian: iproute2)"}
    done = subprocess.run(["unshare", "--net", "true"], capture_output=True, text=True, check=False)
    return {"namespaces": done.stderr.strip()} if done.returncode else {}


class Machine:
    """`towline` on a machine with nothing else on it."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def __call__(self, *words: object) -> Done:
        command = [*TOWLINE, *map(str, words)]
        done = subprocess.run(command, cwd=home(), capture_output=True, text=True, timeout=200, check=False)
        return Done(done.returncode, done.stdout, done.stderr)

    def start(self, role: str, *words: object) -> dict[str, Any]:
        done = self(role, "start", "--store", self.root / role, *SIZES, *words, "--json")
        assert done.status == 0, done
        return dict(done.document)

    def stop(self, *roles: str) -> None:
        for role in roles:
            if processes_of(self.root / role):
                assert self(role, "stop", "--store", self.root / role).status == 0


@pytest.fixture
def machine(network: None, tmp_path: Path, runtime: Path) -> Iterator[Machine]:
    made = Machine(tmp_path)
    yield made
    made.stop("slave", "master")


@pytest.fixture
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    made = Path("/dev/shm") / f"tl-{os.getpid()}-{tmp_path.name[-8:]}"
    made.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(made))
    yield made
    shutil.rmtree(made)


def test_clients_find_a_master_and_its_slave_where_rocketmqs_would(machine: Machine) -> None:
    told = machine.start("master")
    assert told["endpoints"]["remoting"] == [f"tcp://127.0.0.1:{port}" for port in ROCKETMQS]
    machine.start("slave", "--ha-master", "127.0.0.1:10912", *OTHERS)
    with RawClient(9_876) as client:
        made = {"topic": "orders", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6}
        with RawClient(10_911) as broker:
            assert broker.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, made).code == 0
        route = client.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "orders"})
    assert json.loads(bytes(route.body))["brokerDatas"][0]["brokerAddrs"] == {"0": "127.0.0.1:10911"}
    for port in (10_911, 10_909):
        with RawClient(port) as client:
            assert client.put("orders", b"theirs").code == 0
        with Producer(f"tcp://127.0.0.1:{port}") as producer:
            assert producer.send(Message("orders", b"ours")).acknowledged
    with Consumer("tcp://127.0.0.1:9876", "orders", start="first") as consumer:
        bodies: list[bytes] = []
        while len(bodies) < 4:
            bodies += [message.body for message in consumer.poll(20_000)]
    assert bodies == [b"theirs", b"ours"] * 2


def test_a_second_node_of_the_machine_has_two_ports_of_its_own(machine: Machine, tmp_path: Path) -> None:
    machine.start("master")
    ports = "--port", 20_911, "--ha-port", 20_912
    second = Machine(tmp_path / "second")
    told = second.start("master", *ports)
    try:
        assert told["endpoints"]["remoting"] == ["tcp://127.0.0.1:20911"]
        with Producer("tcp://127.0.0.1:20911") as producer:
            assert producer.send(Message("orders", b"ours")).acknowledged
    finally:
        second.stop("master")


def test_beyond_loopback_with_keys_clients_come_with_their_key_files_alone(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = tmp_path / "keys"
    assert machine("keys", "new", "shop", "--role", "producer", "--role", "consumer", "--dir", keys).status == 0
    beyond = "--set", "listen_host=0.0.0.0", "--set", f"keys_dir={keys}", "--set", "broker_ip1=127.0.0.1"
    told = machine.start("master", *beyond)
    assert told["endpoints"]["remoting"] == [f"tcp://0.0.0.0:{port}" for port in ROCKETMQS]
    with Producer("tcp://127.0.0.1:10911") as producer, pytest.raises(TlsRefused, match="TLS only: TOWLINE_KEYS=FILE"):
        producer.send(Message("orders", b"in clear"))
    monkeypatch.setenv(ENVIRONMENT, str(keys / "handed" / "shop.secret.json"))
    with Producer("tcp://127.0.0.1:10911") as producer:
        assert producer.send(Message("orders", b"hidden")).acknowledged
    with Consumer("tcp://127.0.0.1:9876", "orders", start="first") as consumer:
        assert [message.body for message in consumer.poll(20_000)] == [b"hidden"]
