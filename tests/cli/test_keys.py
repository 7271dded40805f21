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


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
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
