"""Transactions of RocketMQ's producers: their ends go to schedule, its checks go to them (spec 5.4).

A producer stores a half (`producers`), does its own work, and sends END_TRANSACTION. Where that does not come, schedule
asks; a CHECK_TRANSACTION_STATE goes to any client of the producer group, which answers with another END_TRANSACTION.
"""

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Final

from towline.errors import MalformedFrame, MalformedRecord
from towline.format.record import properties as names
from towline.format.record.record import Record, decode, encode
from towline.format.remoting.codes import REFUSAL, RequestCode, RequestRefused, ResponseCode
from towline.format.remoting.command import Command
from towline.format.remoting.headers import EndTransaction, read_header
from towline.format.wire.frames import Buffer
from towline.link.permissions import HOLDER, Act, NotPermitted, topics_of

from .clients import Clients
from .connections import Answer, Connection, Connections
from .questions import TOO_LONG, Facts, Questions, refusal_in

WATCHES_MAX: Final = 16  # that schedule holds for one peer
WATCH_MS: Final = 1_000
AGAIN_MS: Final = 200  # after a watch that was refused
_OUTCOMES: Final = {8: "commit", 12: "rollback"}
_NOT_KNOWN: Final = 0
_ALREADY: Final = {"commit": "ALREADY_COMMITTED", "rollback": "ALREADY_ROLLED_BACK"}
_SIZE: Final = 4


class Transactions:
    """Handles END_TRANSACTION, and has producers checked. `message_id` gives the id of a record at a log offset."""

    def __init__(
        self,
        schedule: Questions,
        clients: Clients,
        connections: Connections,
        message_id: Callable[[int], str],
        log: logging.Logger,
    ) -> None:
        self._schedule, self._clients, self._connections = schedule, clients, connections
        self._message_id, self._log = message_id, log
        self._turns: deque[str] = deque()  # producer groups, the one that was watched longest ago first
        self._watched: set[str] = set()
        self._known = 0  # changes of the producer groups that are among the turns
        self._pause_until = 0
        self._refused = False

    def end(self, request: Command, answer: Answer) -> None:
        """Commits or rolls back. Raises MalformedFrame, RequestRefused."""
        header = read_header(EndTransaction, request.fields)
        if header.commit_or_rollback == _NOT_KNOWN:
            answer(ResponseCode.SUCCESS)
            return
        outcome = _OUTCOMES.get(header.commit_or_rollback)
        if outcome is None:
            raise MalformedFrame(f"commitOrRollback is {header.commit_or_rollback}; 0, 8 and 12 are known")

        def told(facts: Facts | None, _: list[Buffer]) -> None:
            problem = refusal_in(facts, "schedule")
            if facts is not None and facts.get("error") == _ALREADY[outcome]:
                problem = ""
            if problem:
                self._log.info("the end of a transaction of %s: %s", header.producer_group, problem)
            named = {REFUSAL: str(facts["error"])} if problem and facts is not None and "error" in facts else None
            code = ResponseCode.SYSTEM_ERROR if problem else ResponseCode.SUCCESS
            if problem and facts is not None and facts.get("error") == NotPermitted.__name__:
                code = ResponseCode.NO_PERMISSION
            answer(code, named, remark=problem)

        facts = {
            "first": header.tran_state_table_offset,
            "group": header.producer_group,
            "key": header.transaction_id or header.msg_id,
            "outcome": outcome,
        }
        own = None if answer.permit is None else {HOLDER: answer.permit.facts}
        if not self._schedule.ask("transaction_end", facts, told, own=own):
            raise RequestRefused(ResponseCode.SERVICE_NOT_AVAILABLE, "schedule is away; try again")

    def cycle(self, now_ms: int) -> None:
        """Keeps a watch for each producer group that has clients here, in turn where they are many."""
        if self._refused:
            self._refused, self._pause_until = False, now_ms + AGAIN_MS
        if self._schedule.link is None or now_ms < self._pause_until:
            return
        if self._known != self._clients.group_changes:
            self._known = self._clients.group_changes
            self._take_turns(self._clients.producer_groups)
        for _ in range(len(self._turns)):
            if not self._turns or len(self._watched) >= WATCHES_MAX:
                return
            group = self._turns[0]
            self._turns.rotate(-1)
            if group not in self._watched:
                self._watch(group)

    def pauses(self, now_ms: int) -> bool:
        """Whether a watch was refused and is asked for again in a moment."""
        return self._refused or now_ms < self._pause_until

    def _take_turns(self, groups: list[str]) -> None:
        """Who is new comes last."""
        there = set(groups)
        kept = [group for group in self._turns if group in there]
        known = set(kept)
        self._turns = deque([*kept, *(group for group in groups if group not in known)])

    def _watch(self, group: str) -> None:
        def told(facts: Facts | None, rest: list[Buffer]) -> None:
            self._watched.discard(group)
            if facts is None or "error" in facts:
                self._refused = facts is None or facts["error"] != TOO_LONG
                if not self._refused:
                    self._turns.remove(group)  # schedule never learns of a group with such a name
                return
            try:
                self._check(group, facts["checks"], rest)
            except (MalformedFrame, MalformedRecord, KeyError, TypeError, ValueError) as error:
                self._log.error("a check of %s was not understood: %r", group, error)

        self._watched.add(group)
        if not self._schedule.ask("transaction_watch", {"group": group, "wait_ms": WATCH_MS}, told, held=True):
            self._watched.discard(group)

    def _check(self, group: str, checks: list[dict[str, Any]], rest: list[Buffer]) -> None:
        for row, record in zip(checks, _records(rest), strict=True):
            connection = self._clients.producer_of(group, partial(_may_be_asked, record))
            if connection is not None:  # else schedule asks again
                self._ask(connection, int(row["first"]), record)

    def _ask(self, connection: Connection, first: int, half: Record) -> None:
        pairs = names.decode(half.properties)
        topic, queue_id = pairs.get(names.REAL_TOPIC, ""), int(pairs.get(names.REAL_QID, 0))
        body = encode(replace(half, topic=topic.encode(), queue_id=queue_id))
        key = pairs.get(names.UNIQ_KEY, "")
        fields = {
            "topic": topic,
            "tranStateTableOffset": str(first),
            "commitLogOffset": str(half.physical_offset),
            "msgId": key,
            "transactionId": key,
            "offsetMsgId": self._message_id(half.physical_offset),
        }
        self._connections.ask(connection, RequestCode.CHECK_TRANSACTION_STATE, fields, body, one_way=True)


def _may_be_asked(half: Record, connection: Connection) -> bool:
    """Whether a client's key reaches the topic that a half is for: it gets the message to look at."""
    permit = connection.permit
    return permit is None or all(permit.may(Act.PRODUCE, topic) for topic in topics_of(half))


def _records(parts: list[Buffer]) -> list[Record]:
    """The records behind an answer's facts: their sizes, then their bytes."""
    if not parts:
        return []
    sizes, data = bytes(parts[0]), bytes(parts[1])
    found, at = [], 0
    for place in range(0, len(sizes), _SIZE):
        found.append(decode(data, at))
        at += int.from_bytes(sizes[place : place + _SIZE], "big")
    return found
