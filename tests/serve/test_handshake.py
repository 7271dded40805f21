"""What a node says of itself in a welcome."""

import pytest

from towline.node.peers.handshake import welcome
from towline.runtime.positions import Duty, Position

from .conftest import Build


@pytest.mark.parametrize(
    ("settings", "promised", "role"),
    [
        ({}, 0, "master"),
        ({}, 512, "master"),
        ({}, 513, "fenced master"),
        ({"broker_role": "SLAVE", "ha_master_address": "127.0.0.1:1", "broker_id": 1}, 513, "slave"),
    ],
)
def test_role_and_epoch(build: Build, settings: dict[str, object], promised: int, role: str):
    built = build(**settings)
    greet = welcome(built.node(), request_limit=7)
    built.positions.writer(Position.EPOCH, Duty.RECOVER).advance(512)
    built.positions.writer(Position.PROMISED, Duty.RECOVER).advance(promised)
    said = greet({"role": "producer"})
    assert (said["broker_role"], said["epoch"], said["request_limit"]) == (role, 512, 7)
