"""Requests to the ha services of several nodes at once."""

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

from towline.errors import LinkRefused, MalformedFrame, NoAnswer, PromotionRefused
from towline.format.wire.frames import ASK, Kind, json_part, kind_of, read_json
from towline.limits import MIB
from towline.link.context import close_context, new_context
from towline.link.dealer import Link, await_any
from towline.node.process.context import Node
from towline.node.process.curve_keys import key_of
from towline.node.roles.agreement import Report, may_promote, report_of
from towline.runtime.settings import Settings

from .handshake import own_facts
from .peer_server import PEER

ASK_MS: Final = 1000
MASTERS_ADDRESS: Final = "the master"  # of a slave without ha_peers, whose number it does not know


class PeerRequest:
    """A request to one peer: a handshake, then the question."""

    def __init__(self, link: Link, question: dict[str, Any]) -> None:
        self.link = link
        self.answer: dict[str, Any] | None = None
        self.trouble = ""
        self._question = question
        self._welcomed = False
        self._sent = False

    @property
    def is_over(self) -> bool:
        return self.answer is not None or bool(self.trouble)

    def advance(self) -> None:
        """Goes as far as possible without waiting."""
        try:
            self._advance()
        except (LinkRefused, NoAnswer, MalformedFrame) as error:
            self.trouble = str(error)

    def _advance(self) -> None:
        if not self._welcomed:
            self._welcomed = self.link.try_greet() is not None
            if not self._welcomed:
                self.trouble = self.link.trouble if self.link.refused else ""
                return
        if not self._sent:
            self._sent = self.link.send([ASK.pack(Kind.ASK, 0), json_part(self._question)])
        parts = self.link.receive()
        if parts is not None:
            if kind_of(parts[0]) != Kind.ANSWER or len(parts) != 2:
                raise MalformedFrame(f"kind {kind_of(parts[0])} answers no question")
            self.answer = read_json(parts[1])
        elif self.link.lost:
            self.trouble = "the connection broke"


def ask_peers(
    node: Node, addresses: Mapping[str, str], question: dict[str, Any], timeout_ms: int = ASK_MS
) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """(answers, troubles) by the names of `addresses` (name -> host:port), after `timeout_ms` at the latest.

    A peer whose host refuses the connection costs no time. For one thread; makes a ZeroMQ context of its own.
    """
    context = new_context()
    key = key_of(node)
    facts = own_facts(node, PEER) | {"node": node.settings.broker_id}
    asked = {
        name: PeerRequest(Link(context, where, facts, frame_size_max=MIB, key=key), question)
        for name, where in addresses.items()
    }
    deadline = time.monotonic() + timeout_ms / 1000
    try:
        while True:
            for one in asked.values():
                if not one.is_over:
                    one.advance()
            left = [one.link for one in asked.values() if not one.is_over]
            remaining_ms = int((deadline - time.monotonic()) * 1000) + 1
            if not left or remaining_ms <= 0:
                break
            await_any(left, remaining_ms)
    finally:
        for one in asked.values():
            one.link.close()
        close_context(context)
    answers = {name: one.answer for name, one in asked.items() if one.answer is not None}
    troubles = {name: one.trouble or one.link.trouble for name, one in asked.items() if one.answer is None}
    return answers, troubles


@dataclass(frozen=True)
class PeerAnswers:
    """The answers to one question: reports by node, who granted it; for silent peers the reasons by name."""

    answers: Mapping[int, Report]
    granted: frozenset[int]
    silent: Mapping[str, str]


def addresses_of(settings: Settings) -> dict[str, str]:
    """Name -> host:port of every peer."""
    peers = {str(peer): where for peer, where in settings.peers.items() if peer != settings.broker_id}
    if not settings.peers and settings.ha_master_address is not None:
        peers[MASTERS_ADDRESS] = settings.ha_master_address
    return peers


def ask_all(node: Node, question: dict[str, Any]) -> PeerAnswers:
    """Within a second. An answer that makes no sense is none, and its sender is silent."""
    addresses, own = addresses_of(node.settings), node.settings.broker_id
    said, troubles = ask_peers(node, addresses, question)
    answers, granted = {}, set()
    for name, facts in said.items():
        try:
            report = report_of(facts)
        except MalformedFrame as error:
            troubles[name] = str(error)
            continue
        if report.node == own or name not in (str(report.node), MASTERS_ADDRESS):
            troubles[name] = f"the node at {addresses[name]} says that it is node {report.node}"
            continue
        answers[report.node] = report
        if facts.get("granted") is True:
            granted.add(report.node)
    return PeerAnswers(
        answers, frozenset(granted), {name: f"{addresses[name]}: {why}" for name, why in troubles.items()}
    )


def check_promotion(
    node: Node, own: Report, heard: PeerAnswers, granted: Collection[int], *, elected: bool = False
) -> None:
    """Raises PromotionRefused, which also names silent peers and those that have promised already."""
    known = {own.node, *node.settings.peers, *heard.answers}
    known |= {-1} if MASTERS_ADDRESS in heard.silent else set()
    try:
        in_etcd = bool(node.settings.etcd_endpoints)
        may_promote(own, heard.answers, granted, known, floor=own.floor, elected=elected, sets_in_etcd=in_etcd)
    except PromotionRefused as error:
        notes = []
        if heard.granted:
            notes.append(f"promised to it already: {', '.join(map(str, sorted(heard.granted)))}")
        if heard.silent:
            notes.append(f"silent: {'; '.join(f'{peer}: {why}' for peer, why in sorted(heard.silent.items()))}")
        if not notes:
            raise
        raise PromotionRefused(error.node, f"{error.why} ({'; '.join(notes)})") from None
