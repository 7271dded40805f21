"""An etcd that wants a certificate and a user: nodes and clients come to it by what settings and endpoints name."""

import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import urllib3

from tests.etcd_server import EtcdServer, running
from tests.processes.electing import ElectingGroup
from tests.processes.nodes import ending, free_port
from tests.remoting.certificates import certificate
from towline.client.message import Message
from towline.client.producer import Producer
from towline.errors import BadSetting, EtcdUnavailable, InvalidEndpoint
from towline.format.wire.status import PutStatus
from towline.route.errors import EtcdSilent
from towline.route.etcd import Access, Etcd
from towline.runtime.settings import read_settings

PASSWORD = "not for everybody"


@dataclass(frozen=True)
class Guarded:
    """An etcd with users: root, and `towline`, who may read and write what nodes do."""

    server: EtcdServer
    access: Access

    def endpoint(self, cluster: str) -> str:
        told = self.access
        files = f"ca={told.ca}&cert={told.cert}&key={told.key}&user={told.user}&password_file={told.password_file}"
        return f"etcd:{self.server.url}/{cluster}?{files}"

    @property
    def settings(self) -> dict[str, str]:
        told = self.access
        files = {"etcd_ca_file": told.ca, "etcd_cert_file": told.cert, "etcd_key_file": told.key}
        return files | {"etcd_user": told.user, "etcd_password_file": told.password_file}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    root = tmp_path_factory.mktemp("guarded")
    authority = certificate(root / "ca", name="authority")
    own = certificate(root / "server", by=authority)
    ours = certificate(root / "client", by=authority, subject="/O=nodes")  # a common name would be for a user
    password = root / "password"
    password.write_text(f"{PASSWORD}\n")
    access = Access(str(authority.certificate), str(ours.certificate), str(ours.key), "towline", str(password))
    for server in running(root / "etcd", authority.certificate, own):
        _add_users(server, access)
        yield Guarded(server, access)


def _add_users(server: EtcdServer, access: Access) -> None:
    """By the calls of etcd's own API."""
    http = urllib3.PoolManager(ca_certs=access.ca, cert_file=access.cert, key_file=access.key)
    range_ = {"permType": "READWRITE", "key": "L3Rvd2xpbmUv", "range_end": "L3Rvd2xpbmUw"}  # /towline/ to /towline0
    for call, body in (
        ("user/add", {"name": "root", "password": "root's"}),
        ("user/grant", {"user": "root", "role": "root"}),
        ("role/add", {"name": "nodes"}),
        ("role/grant", {"name": "nodes", "perm": range_}),
        ("user/add", {"name": "towline", "password": PASSWORD}),
        ("user/grant", {"user": "towline", "role": "nodes"}),
        ("user/add", {"name": "stranger", "password": PASSWORD}),
        ("auth/enable", {}),
    ):
        answer = http.request("POST", f"{server.url}/v3/auth/{call.removeprefix('auth/')}", body=json.dumps(body))
        assert answer.status == 200, (call, answer.data)


def test_a_user_reads_and_writes_what_nodes_do(guarded: Guarded) -> None:
    with closing(Etcd([guarded.server.url], 5.0, guarded.access)) as etcd:
        assert etcd.swap({}, ["/towline/x"], {"/towline/x": (b"1", 0)})
        assert etcd.read("/towline/x")["/towline/x"].value == b"1"
        lease, _ = etcd.grant(60)
        assert etcd.keep_alive(lease) > 0
        etcd.revoke(lease)


def test_a_token_that_is_over_is_replaced(guarded: Guarded) -> None:
    """An etcd that was started anew knows none of before."""
    with closing(Etcd([guarded.server.url], 5.0, guarded.access)) as etcd:
        etcd.read("/towline/")
        guarded.server.kill()
        guarded.server.start()
        assert isinstance(etcd.read("/towline/"), dict)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"ca": ""}, "certificate verify failed"),
        ({"cert": "", "key": ""}, r"SSLError|certificate required|bad certificate|EOF occurred"),
        ({"user": "", "password_file": ""}, "user name is empty|permission denied"),
        ({"user": "nobody"}, "authentication failed, invalid user ID or password"),
        ({"user": "stranger"}, "permission denied"),
        ({"password_file": "/nowhere"}, "/nowhere"),
    ],
    ids=["authority", "certificate", "user", "unknown user", "rights", "password"],
)
def test_what_is_missing_is_said(guarded: Guarded, changed: dict[str, str], said: str) -> None:
    access = replace(guarded.access, **changed)
    with closing(Etcd([guarded.server.url], 5.0, access)) as etcd, pytest.raises(EtcdUnavailable, match=said):
        etcd.read("/towline/")


def test_nodes_elect_there_and_clients_find_who_leads(guarded: Guarded, tmp_path: Path) -> None:
    given = guarded.settings | {"in_sync_replicas": 2, "min_in_sync_replicas": 1}
    group = ElectingGroup(tmp_path / "group", 2, guarded.server, access=guarded.access, **given)
    for node in group.nodes:
        node.flags += ["--set", f"listen_port={free_port()}"]
    with ending(*group.nodes):
        group.start()
        endpoint = guarded.endpoint(group.cluster)
        with Producer(endpoint) as producer:
            assert producer.send(Message("orders", b"one")).acknowledged
            group.nodes[0].kill_all(seed=1)
            assert group.await_master(1) == 1
            stored = producer.send(Message("orders", b"two"))
            assert stored.status is PutStatus.SLAVE_NOT_AVAILABLE, "the new master has it, and nobody to wait for"
        with pytest.raises(EtcdSilent, match="permission denied"):
            Producer(endpoint.replace("user=towline", "user=stranger"))


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("user=towline", "it has user without password_file"),
        ("key=/a", "it has key without cert"),
        ("pasword=x", "ca, cert, key, user, password_file are known"),
    ],
)
def test_an_endpoint_with_other_words_is_refused(asked: str, said: str) -> None:
    with pytest.raises(InvalidEndpoint, match=said):
        Producer(f"etcd:https://127.0.0.1:1/c?{asked}")


@pytest.mark.parametrize("given", [{"etcd_user": "towline"}, {"etcd_key_file": "/a"}])
def test_settings_that_belong_together_are_given_together(given: dict[str, str]) -> None:
    with pytest.raises(BadSetting, match=next(iter(given))):
        read_settings(None, given, {})
