"""`towline keys` as people and programs use it."""

import json
from pathlib import Path

import pytest

from towline.cli.main import run


def keys(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, object]]:
    status = run(["keys", *arguments, "--json"])
    found: dict[str, object] = json.loads(capsys.readouterr().out)
    return status, found


def test_keys_are_made_listed_and_revoked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ring = str(tmp_path / "ring")
    status, made = keys(capsys, "new", "alice", "--role", "producer", "--role", "consumer", "--dir", ring)
    assert (status, made["made_ring"], made["roles"]) == (0, True, ["producer", "consumer"])
    assert Path(str(made["file"])).stat().st_mode & 0o777 == 0o600
    assert keys(capsys, "new", "bob", "--role", "admin", "--dir", ring)[1]["made_ring"] is False
    assert keys(capsys, "revoke", "alice", "--dir", ring) == (0, {"name": "alice", "revoked": True})
    status, listed = keys(capsys, "list", "--dir", ring)
    rows = listed["keys"]
    assert isinstance(rows, list)
    assert [(row["name"], row["revoked"]) for row in rows] == [("bob", False), ("alice", True)]
    assert "secret" not in json.dumps(listed)


def test_roles_are_limited_to_topics_and_groups_and_changed_without_a_new_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ring = str(tmp_path / "ring")
    given = ("--role", "producer:orders,orders-*", "--role", "consumer:bills", "--group", "billing")
    status, made = keys(capsys, "new", "app", *given, "--dir", ring)
    limits = {"topics": {"producer": ["orders", "orders-*"], "consumer": ["bills"]}, "groups": ["billing"]}
    assert (status, made["roles"], {name: made[name] for name in limits}) == (0, ["producer", "consumer"], limits)
    before = Path(str(made["file"])).read_bytes()
    assert b"orders" not in before
    other = ("--role", "consumer:bills,refunds", "--role", "admin")
    status, changed = keys(capsys, "change", "app", *other, "--dir", ring)
    assert (status, changed["topics"], changed["groups"]) == (0, {"consumer": ["bills", "refunds"]}, [])
    assert Path(str(made["file"])).read_bytes() == before
    (row,) = keys(capsys, "list", "--dir", ring)[1]["keys"]
    assert (row["roles"], row["topics"]) == (["consumer", "admin"], {"consumer": ["bills", "refunds"]})
    assert run(["keys", "list", "--dir", ring]) == 0
    assert "consumer:bills,refunds" in capsys.readouterr().out.replace("\n", "")


def test_who_consumes_some_topics_in_every_group_is_told_what_that_opens(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ring = str(tmp_path / "ring")
    run(["keys", "new", "app", "--role", "consumer:bills", "--dir", ring])
    assert "--group names some" in capsys.readouterr().out
    run(["keys", "change", "app", "--role", "consumer:bills", "--group", "billing", "--dir", ring])
    assert "--group names some" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["change", "nobody", "--role", "admin"], "no such key"),
        (["change", "alice", "--role", "producer:a*b"], "beginning of one"),
        (["new", "bob", "--role", "producer:"], "beginning of one"),
        (["new", "bob", "--role", "producer:a", "--role", "producer"], "once with topics and once without"),
        (["new", "bob", "--role", "writer:a"], "roles are"),
        (["new", "bob", "--role", "producer:a", "--group", "g"], "groups are for a consumer"),
        (["revoke", "nobody"], "no such key"),
        (["new", "../up", "--role", "admin"], "letters"),
        (["new", "server", "--role", "admin"], "not one of the nodes'"),
    ],
)
def test_what_cannot_be_is_refused_with_the_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], why: str
) -> None:
    ring = str(tmp_path / "ring")
    run(["keys", "new", "alice", "--role", "admin", "--dir", ring])
    capsys.readouterr()
    status, refused = keys(capsys, *arguments, "--dir", ring)
    assert status == 1
    assert why in str(refused["sentence"])


def test_a_ring_that_is_not_there_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, refused = keys(capsys, "list", "--dir", str(tmp_path / "nothing"))
    assert status == 1
    assert "server.secret.json" in str(refused["sentence"])
