"""What a slave asks its master's broker at its `listenPort`, one question or a few at a time (spec 9.3, 11.2)."""

import select
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from towline.client.rocketmq.channel import Channel
from towline.client.rocketmq.talk import Request
from towline.errors import MalformedFrame
from towline.format.remoting.codes import RequestCode, ResponseCode
from towline.format.remoting.command import Command
from towline.format.remoting.fastjson import loads
from towline.format.remoting.headers import ViewMessage
from towline.format.remoting.properties_text import read_properties
from towline.link.endpoints import parse
from towline.link.poller import Writing
from towline.runtime.settings import Settings, parse_delay_levels
from towline.runtime.settings_model import BrokerRole

from .rules import Rule, refused

ASK_MS: Final = 1_500  # for all answers to what is asked at once
_MASTER: Final = "0"
_OTHER_SERVICES: Final = ("enableControllerMode", "enableDLegerCommitLog")


class MasterBroker:
    """A connection to the broker. What was `ask`ed is answered by `answers`, or waited for by `answered`."""

    def __init__(self, address: str) -> None:
        found = parse(f"tcp://{address}")
        self.address = address
        self._channel = Channel(found.host, found.port)
        self._asked: list[int] = []
        self._answers: dict[int, Command] = {}
        self._number = 0

    def ask(self, requests: Sequence[Request]) -> None:
        """Asks all of them at once; what was asked before is over."""
        self._asked, self._answers = [], {}
        for request in requests:
            self._number += 1
            self._asked.append(self._number)
            self._channel.send(request.command(self._number))

    def answers(self) -> list[Command] | None:
        """The answers, in the order of the questions; None until the last has come. Raises LinkRefused."""
        for command in self._channel.turn():
            if command.is_answer and command.opaque in self._asked:
                self._answers[command.opaque] = command
        if len(self._answers) == len(self._asked):
            return [self._answers[number] for number in self._asked]
        if self._channel.trouble:
            raise refused(Rule.BROKER, f"{self.address}: {self._channel.trouble}")
        return None

    def answered(self, requests: Sequence[Request]) -> list[Command]:
        """Asks, and waits for ASK_MS at most. Raises LinkRefused."""
        self.ask(requests)
        deadline = time.monotonic() + ASK_MS / 1000
        while (found := self.answers()) is None:
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                raise refused(Rule.BROKER, f"{self.address} has not answered within {ASK_MS} ms")
            source = self._channel.source
            reads, writes = _watched(source)
            select.select(reads, writes, [], remaining)
        return found

    def close(self) -> None:
        self._channel.close()


def _watched(source: int | Writing | None) -> tuple[list[int], list[int]]:
    if source is None:
        return [], []
    return ([source.descriptor], [source.descriptor]) if isinstance(source, Writing) else ([source], [])


@dataclass(frozen=True, slots=True)
class LogEnds:
    """The master's log: its first byte, and the end of what is written."""

    first: int
    end: int


def ends_of(answer: Command) -> LogEnds:
    """Of GET_BROKER_RUNTIME_INFO. Raises LinkRefused."""
    table = content_of(answer).get("table")
    try:
        return LogEnds(int(table["commitLogMinOffset"]), int(table["commitLogMaxOffset"]))  # type: ignore[index]
    except (KeyError, TypeError, ValueError):
        raise refused(Rule.REFUSED, "it does not say where its log begins and ends") from None


def content_of(answer: Command) -> dict[str, Any]:
    """The object in the body of an answer that has to be there. Raises LinkRefused."""
    check(answer)
    try:
        content = loads(answer.body)
    except MalformedFrame as error:
        raise refused(Rule.REFUSED, error.describe()) from None
    if not isinstance(content, dict):
        raise refused(Rule.REFUSED, f"a body is {type(content).__name__}")
    return content


def check(answer: Command) -> None:
    """Raises LinkRefused where a question that each broker answers is refused."""
    if answer.code != ResponseCode.SUCCESS:
        raise refused(Rule.REFUSED, f"code {answer.code}: {answer.remark.strip()[:200] or 'it does not say why'}")


def is_known(answer: Command) -> bool:
    """Whether a question was answered that brokers of 4.9, or those without a timer, do not know."""
    return answer.code == ResponseCode.SUCCESS


def find_ends(broker: MasterBroker) -> LogEnds:
    """Raises LinkRefused."""
    return ends_of(broker.answered([Request(RequestCode.GET_BROKER_RUNTIME_INFO)])[0])


def message_at(broker: MasterBroker, offset: int) -> bytes | None:
    """The message, or blank, that begins there, as it stands in the master's log; None where none does. Raises
    LinkRefused, also of a broker that is too busy to look."""
    (answer,) = broker.answered([Request(RequestCode.VIEW_MESSAGE_BY_ID, ViewMessage(offset=offset))])
    if answer.code == ResponseCode.SYSTEM_ERROR:  # "can not find message by the offset"
        return None
    check(answer)
    return bytes(answer.body)


def check_master(broker: MasterBroker, settings: Settings) -> str:
    """Its haListenPort. Raises LinkRefused where its settings are none of a master that a node with ours can follow."""
    (answer,) = broker.answered([Request(RequestCode.GET_BROKER_CONFIG)])
    check(answer)
    try:
        theirs = read_properties(bytes(answer.body))
    except MalformedFrame as error:
        raise refused(Rule.REFUSED, error.describe()) from None
    named = theirs.get("brokerName"), theirs.get("brokerClusterName")
    ours = settings.broker_name, settings.broker_cluster_name
    if named != ours:
        facts = f"there {named[0]!r} of {named[1]!r}, here {ours[0]!r} of {ours[1]!r}"
        raise refused(Rule.NAME, facts)
    if theirs.get("brokerRole") == BrokerRole.SLAVE.value or theirs.get("brokerId") != _MASTER:
        facts = f"it has brokerRole {theirs.get('brokerRole')}, brokerId {theirs.get('brokerId')}"
        raise refused(Rule.NOT_MASTER, facts)
    other = [name for name in _OTHER_SERVICES if theirs.get(name) == "true"]
    if other:
        raise refused(Rule.CONTROLLER, f"it has {other[0]}=true")
    size = theirs.get("mappedFileSizeCommitLog")
    if size != str(settings.mapped_file_size_commit_log):
        raise refused(Rule.SEGMENT_SIZE, f"there {size}, here {settings.mapped_file_size_commit_log}")
    levels = theirs.get("messageDelayLevel", "")
    if not _same_levels(levels, settings.message_delay_level):
        raise refused(Rule.LEVELS, f"there {levels!r}, here {settings.message_delay_level!r}")
    return theirs.get("haListenPort", "not told")


def _same_levels(theirs: str, ours: str) -> bool:
    try:
        return parse_delay_levels(theirs) == parse_delay_levels(ours)
    except ValueError:
        return False
