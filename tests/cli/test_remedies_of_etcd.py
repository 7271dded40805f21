"""What is said of keys in etcd that somebody else wrote: the remedy is typed, and the group has a leader again."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.etcd_server import EtcdServer, free_port, running
from tests.processes.waiting import await_
from tests.requirements import need
from towline.places import Store
from towline.route.etcd import Etcd

from .typist import TYPED, Typist

CLUSTER = "typed"
WAIT_S = 60.0


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdServer]:
    if shutil.which("etcdctl") is None:
        need({"etcdctl": "there is no etcdctl (Debian: etcd-client)"})
    yield from running(tmp_path_factory.mktemp("etcd"))


def electing(etcd: EtcdServer, name: str) -> list[str]:
    port = free_port()
    settings = {
        "etcd_endpoints": etcd.url,
        "lease_ms": 3000,
        "broker_cluster_name": CLUSTER,
        "broker_name": name,
        "ha_peers": f"0=127.0.0.1:{port}",
        "ha_listen_port": port,
    }
    return [f"--set={key}={value}" for key, value in settings.items()]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("in_sync", b'{"epoch": 1, "members": ["x"]}'),
        pytest.param("term", b"[]", marks=pytest.mark.slow),
        pytest.param("leader", b"nobody", marks=pytest.mark.slow),
    ],
)
def test_a_key_that_was_written_by_hand_is_put_back_or_deleted(
    typist: Typist, etcd: EtcdServer, name: str, value: bytes
) -> None:
    start, put = f"towline master start --store {typist.store}", f"towline put orders hello --store {typist.store}"
    more = electing(etcd, name)
    typist.works(start, *more)
    await_(lambda: typist(put).status == 0, WAIT_S, "it was elected")
    typist.stop()
    key, log = f"/towline/{CLUSTER}/{name}/{name}", Store(typist.store).node_log
    with closing(Etcd([etcd.url], timeout_s=5.0)) as client:
        assert client.swap({}, [], {key: (value, 0)})
    before = log.stat().st_size
    typist.works(start, *more)

    def told() -> list[str]:
        lines = log.read_bytes()[before:].decode().splitlines()
        return [line for line in lines if f"{key} in etcd" in line]

    [line, *_] = await_(told, WAIT_S, "the log says what is wrong with the key")
    assert typist(put).status != 0
    [typed] = TYPED.findall(line)
    subprocess.run(
        ["sh", "-ec", typed], env=os.environ | {"ETCDCTL_ENDPOINTS": etcd.url, "ETCDCTL_API": "3"}, check=True
    )
    await_(lambda: typist(put).status == 0, WAIT_S, "it was elected again")
