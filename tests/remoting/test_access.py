"""Requests that are signed with the keys of the cluster, and those that are not."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.processes.nodes import check_nothing_is_left, ending
from tests.processes.waiting import await_
from towline.format.remoting.codes import RequestCode, RequestRefused, ResponseCode
from towline.format.remoting.command import Command, Form
from towline.format.remoting.signing import ACCESS_KEY, SIGNATURE, signature
from towline.link.keys import AuthorizedKeys, change_key, make_node_keys, new_key, revoke_key
from towline.remoting.access import REVOKED_EVERY_MS, Access
from towline.remoting.connections import Connection
from towline.remoting.needs import roles_for
from towline.runtime.remoting_counts import Ending

from .conftest import RemotingNode, remoting_node
from .mqadmin import run_tool
from .raw import RawClient

NO_PERMISSION = 16


class SigningClient(RawClient):
    """Signs with the key of a file that was handed out."""

    def __init__(self, port: int, handed: Path, form: Form = Form.JSON) -> None:
        super().__init__(port, form)
        found = json.loads(handed.read_text())
        self.access, self.secret = found["name"], found["access"]

    def send(self, code: int, fields: dict[str, Any] | None = None, body: bytes = b"", flag: int = 0) -> int:
        given = {name: str(value) for name, value in (fields or {}).items()} | {ACCESS_KEY: self.access}
        said = signature(Command(code, fields=given, body=body), self.secret).decode()
        return super().send(code, {**given, SIGNATURE: said}, body, flag)


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("keys") / "ring"
    make_node_keys(made)
    for name, roles in {"payer": ["producer"], "reader": ["consumer"], "chief": ["admin"]}.items():
        new_key(made, name, roles)
    return made


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory, keys: Path) -> Iterator[RemotingNode]:
    made = remoting_node(tmp_path_factory.mktemp("access") / "store", keys_dir=keys)
    with ending(made):
        made.start()
        yield made
        assert made.stop()
        check_nothing_is_left(made)


def handed(keys: Path, name: str) -> Path:
    return keys / "handed" / f"{name}.secret.json"


@pytest.mark.parametrize("form", Form)
def test_each_role_may_ask_for_what_is_its_own(node: RemotingNode, keys: Path, form: Form) -> None:
    fields = {"topic": "made", "defaultTopic": "TBW102", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6}
    codes = {}
    with SigningClient(node.port, handed(keys, "chief")) as chief:
        assert chief.put("signed", b"first").code == 0
        await_(lambda: chief.pull("g", "signed", 0, 0).code == 0, 10.0, "it can be read")
    for name in ("chief", "payer", "reader"):
        with SigningClient(node.port, handed(keys, name), form) as client:
            route = client.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "TBW102"})
            assert route.code == 0
            codes[name] = (
                client.put("signed", "body \u00fc".encode(), "KEYS\x01k\x02").code,
                client.pull("g", "signed", 0, 0).code,
                client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, fields).code,
            )
    assert codes == {"chief": (0, 0, 0), "payer": (0, NO_PERMISSION, NO_PERMISSION),
                     "reader": (NO_PERMISSION, 0, NO_PERMISSION)}  # fmt: skip


def test_who_does_not_sign_or_signs_wrong_is_refused_by_name_and_counted(node: RemotingNode, keys: Path) -> None:
    before = node.refused(ResponseCode.NO_PERMISSION)
    with RawClient(node.port) as nobody:
        answer = nobody.put("signed", b"x")
        assert (answer.code, "is not signed" in answer.remark) == (NO_PERMISSION, True)
    with SigningClient(node.port, handed(keys, "payer")) as client:
        client.secret = "0" * 64
        assert "the signature of 'payer' is wrong" in client.put("signed", b"x").remark
        client.access = "stranger"
        assert "no key 'stranger' is allowed" in client.put("signed", b"x").remark
        client.access = "\u00fc" * 300
        assert client.put("signed", b"x").code == NO_PERMISSION
    assert node.refused(ResponseCode.NO_PERMISSION) == before + 4


def test_what_is_changed_after_it_was_signed_is_refused(node: RemotingNode, keys: Path) -> None:
    class Changing(SigningClient):
        def write(self, data: bytes) -> None:
            super().write(data.replace(b"honest", b"forged"))

    with Changing(node.port, handed(keys, "payer")) as client:
        assert client.put("signed", b"x").code == 0
        assert client.put("signed", b"honest").code == NO_PERMISSION
        assert client.put("signed", b"x", "KEYS\x01honest\x02").code == NO_PERMISSION


def test_a_revoked_key_is_refused_at_once_and_a_new_one_taken(node: RemotingNode, keys: Path) -> None:
    with SigningClient(node.port, new_key(keys, "guest", ["producer"])) as client:
        assert client.put("signed", b"x").code == 0
        revoke_key(keys, "guest")

        def refused() -> bool:
            try:
                return client.put("signed", b"x").code == NO_PERMISSION
            except OSError:
                return True

        await_(refused, 5.0, "the key is refused")
    with SigningClient(node.port, new_key(keys, "guest", ["producer"])) as client:
        assert client.put("signed", b"x").code == 0


def test_a_connection_ends_when_its_key_is_revoked_also_where_nothing_is_asked(node: RemotingNode, keys: Path) -> None:
    """It would go on to be told of transactions to check, and its groups would count it as a member."""
    before = node.ended(Ending.REVOKED)
    with SigningClient(node.port, new_key(keys, "idle", ["producer"])) as client:
        assert client.put("signed", b"x").code == 0
        revoke_key(keys, "idle")
        new_key(keys, "idle", ["producer"])  # another key, of the same name
        await_(lambda: node.ended(Ending.REVOKED) > before, 10.0, "the end of the connection")
        assert client.socket.recv(1) == b""


def test_a_change_that_a_request_shows_first_is_noticed_all_the_same(tmp_path: Path) -> None:
    """Else a member of a group that its key does not reach any more would stay in it."""
    make_node_keys(tmp_path / "ring")
    secret = json.loads(new_key(tmp_path / "ring", "app", ["consumer"]).read_text())["access"]
    ring = AuthorizedKeys(tmp_path / "ring")
    access, shown = Access(ring), peer()

    def asks() -> None:
        fields = {"consumerGroup": "g", ACCESS_KEY: "app"}
        said = signature(Command(RequestCode.GET_CONSUMER_LIST_BY_GROUP, fields=fields), secret).decode()
        access.check(Command(RequestCode.GET_CONSUMER_LIST_BY_GROUP, fields=fields | {SIGNATURE: said}), shown)

    def look(now_ms: int) -> list[Connection]:
        connections: Any = [shown]
        return access.look_for_changes(connections, now_ms)

    asks()
    assert look(0) == []
    change_key(tmp_path / "ring", "app", ["consumer:bills"], ["g"])
    access._known_until = 0.0  # as if what it knows of the ring were a second old
    asks()
    assert shown.permit is not None
    assert shown.permit.is_limited, "the request has shown it"
    assert look(REVOKED_EVERY_MS - 1) == [], "not yet"
    assert look(REVOKED_EVERY_MS) == [shown]
    assert look(2 * REVOKED_EVERY_MS) == []


@pytest.mark.parametrize(
    "code", [RequestCode.SEND_REPLY_MESSAGE, RequestCode.RECALL_MESSAGE, RequestCode.END_TRANSACTION]
)
def test_a_consumer_s_key_with_groups_neither_replies_nor_recalls(tmp_path: Path, code: RequestCode) -> None:
    """It may greet as a producer of ours and send, for it gives messages back."""
    make_node_keys(tmp_path / "ring")
    secret = json.loads(new_key(tmp_path / "ring", "app", ["consumer:bills"], ["g"]).read_text())["access"]
    access = Access(AuthorizedKeys(tmp_path / "ring"))
    for asked, refused in ((RequestCode.SEND_MESSAGE, False), (code, True)):
        fields = {"topic": "%RETRY%g", ACCESS_KEY: "app"}
        said = signature(Command(asked, fields=fields), secret).decode()
        request = Command(asked, fields=fields | {SIGNATURE: said})
        if refused:
            with pytest.raises(RequestRefused, match=f"request {code} is for admin or producer, and 'app' is consumer"):
                access.check(request, peer())
        else:
            access.check(request, peer())


def peer() -> Connection:
    """As much of a connection as its rights are kept on."""
    found: Any = Shown()
    return found


class Shown:
    def __init__(self) -> None:
        self.key = self.permit = None
        self.has_greeted, self.is_open = False, True


def test_every_request_has_somebody_who_may_ask_for_it() -> None:
    for code in RequestCode:
        assert "admin" in roles_for(code)
    assert roles_for(RequestCode.UPDATE_AND_CREATE_TOPIC) == {"admin"}
    assert roles_for(999_999) == {"admin"}


@pytest.mark.parametrize("version", ["4.9.8", "5.5.0"])
def test_real_java_clients_sign_as_we_check(
    node: RemotingNode, keys: Path, version: str, request: pytest.FixtureRequest
) -> None:
    said = {}
    topic = f"signed-{version.replace('.', '-')}"
    for name in ("chief", "payer", "reader"):
        key = json.loads(handed(keys, name).read_text())
        words = [f"127.0.0.1:{node.port}", topic, key["name"], key["access"]]
        lines = run_tool("Signed", request.config, *words, version=version)
        said[name] = [line for line in lines if line.startswith(("sends: ", "reads: "))]  # 4.9 logs between them
    assert said == {
        "chief": ["sends: SEND_OK, SEND_OK", "reads: 4 messages"],
        "payer": ["sends: SEND_OK, SEND_OK", f"reads: code {NO_PERMISSION}"],
        "reader": [f"sends: code {NO_PERMISSION}", "reads: 8 messages"],
    }
