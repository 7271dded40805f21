"""Property CRCs both ways: what one store appends, the other insists on (spec 2.7; RocketMQ 5.2 and later)."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from .checks import mixed_specs, mixture
from .conftest import Started
from .jvm import RealStore
from .releases import NEW
from .towlines import REAL_SETTINGS, TowlineStore

APPEND = {"enabledAppendPropCRC": True, "forceVerifyPropCRC": True}


@pytest.fixture
def insisting(jvms: Started, tmp_path: Path) -> RealStore:
    return RealStore(jvms(NEW), tmp_path / "store", **REAL_SETTINGS, **APPEND)


@pytest.fixture
def sealing(tmp_path: Path) -> Iterator[TowlineStore]:
    store = TowlineStore(tmp_path / "store", enabled_append_prop_crc="true", force_verify_prop_crc="true")
    yield store
    store.end()


def hidden(found: list[dict]) -> list[dict]:
    """As Towline's reader shows them: without the property CRC, which every message has."""
    return [
        {**message, "properties": {name: value for name, value in message["properties"].items() if name != "__CRC32#"}}
        for message in found
        if message["properties"]["__CRC32#"]
    ]


def test_each_insists_on_what_the_other_appended(insisting, sealing):
    messages = mixture(7, NEW)
    sealing.start()
    sent = messages.take(400)
    sealing.send(sent)
    sealing.kill(seed=2)  # so that the real store walks the log with every check

    insisting.open()
    assert len(hidden(insisting.read())) == len(sent)
    _, specs = mixed_specs(messages, 100, 10)
    insisting.put(specs)
    found = insisting.read()
    insisting.close()
    (sealing.root / "abort").touch()  # so that Towline walks what the real store wrote

    with sealing.running():
        assert sealing.read() == hidden(found)
        sealing.send(more := messages.take(50))
        mine = sealing.read()
    assert len(mine) == len(found) + len(more)
    insisting.open()
    assert hidden(insisting.read()) == mine
    insisting.close()
