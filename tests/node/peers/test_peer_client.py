"""What a refused promotion says of the peers that were asked."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from tests.node.roles.test_agreement import node
from towline.errors import PromotionRefused
from towline.node.peers.peer_client import MASTERS_ADDRESS, PeerAnswers, check_promotion

ASKER: Any = SimpleNamespace(settings=SimpleNamespace(peers={0: "a", 1: "b", 2: "c"}, etcd_endpoints=""))


def refusal(heard: PeerAnswers) -> str:
    with pytest.raises(PromotionRefused) as raised:
        check_promotion(ASKER, replace(node(0), floor=1), heard, heard.granted)
    return raised.value.why


def test_who_has_promised_and_who_is_silent() -> None:
    heard = PeerAnswers({1: node(1)}, frozenset({1}), {"2": "c: nobody listens there"})
    assert refusal(heard) == (
        "without a promise of node 2, these could have gone on without it "
        "(promised to it already: 1; silent: 2: c: nobody listens there)"
    )


def test_nobody_is_named_before_anybody_promised() -> None:
    assert refusal(PeerAnswers({1: node(1), 2: node(2, end=1001)}, frozenset(), {})).endswith(
        "this one to 1000 of epoch 256"
    )


def test_a_master_without_a_number_is_named_as_that() -> None:
    said = refusal(PeerAnswers({}, frozenset(), {MASTERS_ADDRESS: "a: it is silent"}))
    assert said.startswith("without a promise of the master, node 1, node 2, these")
