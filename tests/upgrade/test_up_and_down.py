"""A store goes from the version before to this one and back, and everything in it is read by both."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.requirements import need
from towline.link.free_port import free_port
from towline.pipeline.session import java_missing

from .comparing import LATER, delivered, messages, seen
from .versions import PRESENT, Version

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


def settle(version: Version, endpoint: str, facts: dict[str, Any], names: list[str]) -> None:
    """What another version left open is ended by this one, once."""
    ended = version.program("end", endpoint, json.dumps(facts))
    assert (ended["ended"], ended["cancelled"]) == ("PUT_OK", "PUT_OK")
    assert not set(ended["taken"]) & set(facts["taken"])
    want = sorted(body for name in names for body in delivered(name))
    assert version.program("await", endpoint, LATER, str(len(want))) == want
    want = sorted(f"{name}: {how}" for name in names for how in ("commit", "open"))
    assert version.program("await", endpoint, "paid", str(len(want))) == want


def test_a_store_goes_up_down_and_up_again(before: Version, tmp_path: Path):
    store = tmp_path / "store"
    with before.serving(store) as endpoint:
        facts = before.program("fill", endpoint, "first")
        known = before.program("read", endpoint, "1")
    rounds = [(PRESENT, before, "second"), (before, PRESENT, "third"), (PRESENT, before, "fourth")]
    names = ["first"]
    for version, other, name in rounds:
        version.works("store", "verify", "--store", str(store))
        with version.serving(store) as endpoint:
            assert seen(version.program("read", endpoint, "1")) == seen(known), version.name
            assert seen(other.program("read", endpoint, "1")) == seen(known), "by the other version's client"
            settle(version, endpoint, facts, names)
            facts = other.program("fill", endpoint, name)
            known = version.program("read", endpoint, "1")
        names.append(name)
        version.works("store", "verify", "--store", str(store))


@pytest.mark.parametrize("way", ["up", "down"])
def test_a_killed_node_of_one_version_is_recovered_by_the_other(before: Version, tmp_path: Path, way: str):
    store, port = tmp_path / "store", free_port()
    killed, other = (before, PRESENT) if way == "up" else (PRESENT, before)
    node = killed.node(store, port)
    try:
        node.start()
        killed.program("fill", f"tcp://127.0.0.1:{port}", "first")
        known = killed.program("read", f"tcp://127.0.0.1:{port}", "1")
        node.kill(7)
    finally:
        node.end()
    with other.serving(store) as endpoint:
        assert messages(other.program("read", endpoint, "1")) == messages(known)
    other.works("store", "verify", "--store", str(store))


@pytest.mark.parametrize("way", ["up", "down"])
def test_a_backup_of_one_version_is_restored_by_the_other(before: Version, tmp_path: Path, way: str):
    store, backup, restored = tmp_path / "store", tmp_path / "backup", tmp_path / "restored"
    maker, other = (before, PRESENT) if way == "up" else (PRESENT, before)
    with maker.serving(store) as endpoint:
        maker.program("fill", endpoint, "first")
        known = maker.program("read", endpoint, "1")
    maker.works("store", "backup", "--store", str(store), "--to", str(backup))
    other.works("store", "backup", "--verify", str(backup))
    other.works("store", "restore", "--from", str(backup), "--store", str(restored))
    with other.serving(restored) as endpoint:
        assert messages(other.program("read", endpoint, "1")) == messages(known)


@pytest.mark.parametrize("way", ["up", "down"])
def test_an_archive_of_one_version_is_continued_and_restored_by_the_other(before: Version, tmp_path: Path, way: str):
    if missing := java_missing():
        need({"java": missing})
    store, archive = tmp_path / "store", tmp_path / "archive"
    maker, other = (before, PRESENT) if way == "up" else (PRESENT, before)
    copying = ["pipeline", "archive", "--store", str(store), "--out", str(archive), "--older-than", "0"]
    with maker.serving(store) as endpoint:
        maker.program("plain", endpoint, "made", "12")
        maker.works(*copying)
    with other.serving(store) as endpoint:
        other.program("plain", endpoint, "other", "12")
        other.works(*copying)
        words = ["--archive", str(archive), "--topic", "plain", "--into", "again", "--endpoint", endpoint]
        other.works("pipeline", "restore", *words)
        read = other.program("read", endpoint, "0")["topics"]
    manifests = [json.loads(file.read_text()) for file in sorted((archive / "segments").glob("*.json"))]
    again, known = ([content_of(row) for row in read[topic]["messages"]] for topic in ("again", "plain"))
    assert len(again) == sum(each["records"] for each in manifests) > len(known) / 2
    assert not Counter(again) - Counter(known)


def content_of(row: dict[str, Any]) -> str:
    return json.dumps([row["tags"], row["keys"], row["body"]])
