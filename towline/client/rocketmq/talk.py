"""What is asked of brokers and name servers to answer one message of a client, as a generator.

It yields the requests of one step, all at once, and is sent their answers; or a `Pause`, and is sent nothing. What it
returns goes to the client.
"""

import itertools
import time
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from towline.errors import Remedy, TowlineError
from towline.format.remoting.codes import RequestCode, ResponseCode
from towline.format.remoting.command import Command
from towline.format.remoting.headers import write_header
from towline.format.wire.frames import Buffer

NOT_IN_ROCKETMQ: Final = "NOT_IN_ROCKETMQ"
VERSION: Final = 479  # of RocketMQ's clients: what a broker may send
LANGUAGE: Final = "PYTHON"
MASTER_ID: Final = 0
TIMERS_FROM: Final = 413  # RocketMQ's number for 5.0.0
_NUMBERS: Final = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Request:
    """A request to the broker, or to one of the name servers: to each of them with `everywhere`. `at`: the broker id of
    a slave that gets it."""

    code: RequestCode
    header: Any = None
    body: Buffer = b""
    names: bool = False
    everywhere: bool = False
    at: int = MASTER_ID
    letters: bool = False
    more: Mapping[str, str] = field(default_factory=dict)

    @property
    def fields(self) -> dict[str, str]:
        found = {} if self.header is None else write_header(self.header, letters=self.letters)
        return {**found, **self.more}

    def command(self, opaque: int) -> Command:
        return Command(self.code, opaque, 0, "", self.fields, self.body, version=VERSION, language=LANGUAGE)


@dataclass(frozen=True, slots=True)
class Pause:
    """Until there is news of the group, or for so long."""

    seconds: float


Step: TypeAlias = Sequence[Request] | Pause
Found: TypeAlias = tuple[dict[str, Any], bytes]  # facts, and records back to back
Talk: TypeAlias = Generator[Step, list[Command], Found]
Parts: TypeAlias = Generator[Step, list[Command], list[Buffer]]


class Refused(TowlineError, remedy=Remedy.FIX_CALL):
    """A question is answered with this error. `position` is a character of an expression; `advised` what to do, where
    there is more to say than the sentence does."""

    error: str
    sentence: str
    position: int = -1
    advised: str = ""
    template = "{error}: {sentence}"

    @property
    def advice(self) -> str:  # type: ignore[override]
        return self.advised or "change what the sentence names"


class NoNameServer(TowlineError, remedy=Remedy.RETRY):
    why: str
    template = "no name server answers: {why}"
    advice = "look whether they run, and at their addresses"


class NoSlave(TowlineError, remedy=Remedy.RETRY):
    why: str
    template = "a slave does not answer: {why}"
    advice = "ask the master"


@dataclass(slots=True)
class Membership:
    """The group of which this client is a member. `subscriptions`: topic -> (expression, kind)."""

    group: str
    member: str
    model: str
    start: str | int
    subscriptions: dict[str, tuple[str, str]]
    strategy: str
    version: int
    generation: int
    members: list[str] = field(default_factory=list)
    queues: dict[str, int] = field(default_factory=dict)
    shares: dict[str, list[int]] = field(default_factory=dict)
    resets: dict[str, int] = field(default_factory=dict)  # topic -> ms when its offsets were set by somebody
    settings: dict[str, Any] = field(default_factory=dict)
    wanted: dict[tuple[str, int], int] = field(default_factory=dict)  # offsets that somebody has set, to be committed

    def was_reset(self, topic: str) -> None:
        """The offsets of a topic were set: its queues begin anew. The numbers grow over all links."""
        self.resets[topic] = max(time.time_ns() // 1_000_000, self.resets.get(topic, 0) + 1)


@dataclass(slots=True)
class Session:
    """What a link knows of its broker and of itself. `version` is RocketMQ's number; `client` the id that all links of
    one producer have in common, "" where none was given."""

    role: str
    name: str
    client: str = ""
    broker: str = ""
    cluster: str = ""
    address: str = ""  # host:port
    slaves: dict[int, str] = field(default_factory=dict)  # their addresses, by broker id
    store_host: str = ""  # as the broker stamps it into records, in hex digits
    version: int = 0
    number: int = field(default_factory=lambda: next(_NUMBERS))
    tags: dict[str, str] = field(default_factory=dict)  # topic -> the expression that a reader told
    expressions: set[str] = field(default_factory=set)  # that the broker takes
    read_at: dict[tuple[str, int], int] = field(default_factory=dict)  # queues that a slave is to be asked for: its id
    membership: Membership | None = None
    has_news: bool = False  # the group has changed, or its offsets
    replies: list[bytes] = field(default_factory=list)  # records
    checks: list[tuple[int, bytes]] = field(default_factory=list)
    ended: dict[str, str] = field(default_factory=dict)  # unique key of a half -> how it ended; a check may come late

    @property
    def client_id(self) -> str:
        if self.membership is not None:
            return self.membership.member
        return self.client or f"{self.name}@{self.number}"


def succeeded(answer: Command, *others: ResponseCode) -> bool:
    """Whether a request succeeded; False for one of `others`. Raises Refused."""
    if answer.code == ResponseCode.SUCCESS:
        return True
    if answer.code in others:
        return False
    raise refusal(answer)


def refusal(answer: Command) -> Refused:
    """The refusal in an answer: by the name of its code."""
    if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
        return Refused(NOT_IN_ROCKETMQ, f"the broker does not know this request: {answer.remark}")
    try:
        name = ResponseCode(answer.code).name
    except ValueError:
        name = f"CODE_{answer.code}"
    return Refused(name, answer.remark.strip() or "the broker does not say why")
