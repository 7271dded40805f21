"""Stores that older versions wrote are opened by this one, and everything in them is read, and goes on."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from towline.log.state import identity

from .comparing import LATER, delivered, seen
from .kept_stores import OPEN, names, unpack
from .versions import PRESENT, listed


def test_each_listed_version_has_a_store():
    assert sorted(row["name"] for row in listed()) == names()


@pytest.mark.parametrize("name", names())
def test_a_store_of_an_older_version_is_read_and_goes_on(tmp_path: Path, name: str):
    kept = unpack(name, tmp_path)
    PRESENT.works("store", "verify", "--store", str(kept.store))
    with PRESENT.serving(kept.store) as endpoint:
        assert seen(PRESENT.program("read", endpoint, str(OPEN))) == seen(kept.seen)
        assert PRESENT.program("await", endpoint, LATER, "2") == delivered("kept")
        ended = PRESENT.program("end", endpoint, json.dumps(kept.facts))
        assert (ended["ended"], ended["cancelled"]) == ("PUT_OK", "PUT_OK")
        assert ended["taken"]
        assert not set(ended["taken"]) & set(kept.facts["taken"])
        paid = PRESENT.program("await", endpoint, "paid", "2")
        assert paid == ["kept: commit", "kept: open"]
    PRESENT.works("store", "verify", "--store", str(kept.store))


@pytest.mark.parametrize(
    "words",
    [
        ["master", "start"],
        ["slave", "start", "--set=ha_master_address=127.0.0.1:9"],
        ["store", "verify"],
        ["store", "repair", "--yes"],
        ["store", "mend", "--yes"],
        ["store", "backup", "--to", "BACKUP"],
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_a_store_of_a_later_version_is_refused_by_name_and_left_as_it_is(tmp_path: Path, words: list[str]):
    kept = unpack(names()[-1], tmp_path)
    file = identity.IdentityFile(kept.store)
    made = file.load()
    assert made is not None
    file.path.write_bytes(identity.encode(replace(made, format_version=identity.FORMAT_VERSION + 1)))
    before = contents(kept.store)
    words = [word.replace("BACKUP", str(tmp_path / "backup")) for word in words]
    refused = PRESENT.towline(*words, "--store", str(kept.store), "--json")
    assert refused.returncode != 0
    said = refused.stdout + refused.stderr
    assert "StoreOfAnotherVersion" in said
    assert (
        f"says format version {identity.FORMAT_VERSION + 1}, and this program knows {identity.FORMAT_VERSION}" in said
    )
    assert "docs/upgrading.md" in said
    assert contents(kept.store) == before


def contents(store: Path) -> dict[str, bytes]:
    """Every file but those of a run."""
    return {
        str(path.relative_to(store)): path.read_bytes()
        for path in sorted(store.rglob("*"))
        if path.is_file() and "run" not in path.parts and path.name not in ("lock", "abort")
    }
