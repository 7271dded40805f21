"""`towline context`: a node is named once, for all commands that ask one."""

import json
from pathlib import Path

import pytest

from towline.cli.contexts import ENVIRONMENT
from towline.cli.main import run
from towline.link import keys as key_ring
from towline.link.keys import make_node_keys, new_key


@pytest.fixture(autouse=True)
def config(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv(ENVIRONMENT, raising=False)
    monkeypatch.delenv(key_ring.ENVIRONMENT, raising=False)
    return tmp_path / "config" / "towline" / "contexts.json"


def said(capsys, *words: str) -> dict:
    assert run([*words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_without_one_a_command_says_what_to_name(capsys):
    assert run(["get", "orders"]) == 2
    assert (
        "give either --endpoint or --store, or keep one by `towline context add NAME --endpoint ENDPOINT`"
        in capsys.readouterr().err
    )


def test_a_command_that_names_no_node_asks_that_of_the_context(capsys):
    said(capsys, "context", "add", "prod", "--endpoint", "tcp://127.0.0.1:1")
    assert run(["get", "orders"]) == 1
    assert "no answer from tcp://127.0.0.1:1 " in capsys.readouterr().err
    assert run(["get", "orders", "--endpoint", "tcp://127.0.0.1:2"]) == 1
    assert "no answer from tcp://127.0.0.1:2 " in capsys.readouterr().err


def test_the_one_that_was_added_or_chosen_last_is_used_and_the_environment_comes_first(capsys, monkeypatch, tmp_path):
    said(capsys, "context", "add", "a", "--endpoint", "tcp://a:1")
    said(capsys, "context", "add", "b", "--store", str(tmp_path / "store"))

    def used() -> list[str]:
        return [row["name"] for row in said(capsys, "context", "list")["contexts"] if row["used"]]

    assert used() == ["b"]
    said(capsys, "context", "use", "a")
    assert used() == ["a"]
    monkeypatch.setenv(ENVIRONMENT, "b")
    assert used() == ["b"]
    monkeypatch.setenv(ENVIRONMENT, "")
    assert used() == []
    monkeypatch.delenv(ENVIRONMENT)
    said(capsys, "context", "remove", "a")
    assert used() == []


def test_its_key_file_is_used_unless_the_environment_names_one(capsys, monkeypatch, tmp_path):
    make_node_keys(tmp_path / "keys")
    handed = new_key(tmp_path / "keys", "app", ["consumer"])
    said(capsys, "context", "add", "prod", "--endpoint", "tcp://127.0.0.1:1", "--keys", str(handed))
    monkeypatch.setenv(key_ring.ENVIRONMENT, "/nowhere")
    assert run(["get", "orders"]) == 1
    assert "/nowhere" in capsys.readouterr().err
    monkeypatch.delenv(key_ring.ENVIRONMENT)
    assert run(["get", "orders"]) == 1
    assert "no answer from tcp://127.0.0.1:1 " in capsys.readouterr().err
    monkeypatch.delenv(key_ring.ENVIRONMENT, raising=False)


@pytest.mark.parametrize(
    ("words", "status", "sentence"),
    [
        (["add", "x"], 2, "give either --endpoint or --store"),
        (["add", "x", "--endpoint", "nonsense"], 1, "has no port"),
        (["add", "x", "--endpoint", "tcp://a:1", "--keys", "/nowhere"], 1, "/nowhere"),
        (["use", "x"], 1, "there is no context x; there are: a"),
        (["remove", "x"], 1, "there is no context x; there are: a"),
    ],
)
def test_what_cannot_be_is_refused_and_nothing_changes(capsys, config, words, status, sentence):
    said(capsys, "context", "add", "a", "--endpoint", "tcp://a:1")
    before = config.read_bytes()
    assert run(["context", *words]) == status
    assert sentence in capsys.readouterr().err
    assert config.read_bytes() == before


def test_a_file_that_is_none_is_named(capsys, config):
    config.parent.mkdir(parents=True)
    config.write_text("{}")
    assert run(["get", "orders"]) == 1
    assert f"the file of contexts {config} cannot be read" in capsys.readouterr().err
    assert not list(config.parent.glob("*.tmp"))
