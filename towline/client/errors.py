"""The errors that only a user of the client meets; the others, and their base class, are in `towline.errors`."""

import os
from collections.abc import Mapping
from shlex import quote
from typing import Any, ClassVar, Final, Self

from towline.errors import Remedy, TowlineError
from towline.format.wire.refusals import Cause, read_sentence


class ClientClosed(TowlineError, remedy=Remedy.FIX_CALL):
    what: str
    template = "the {what} is closed"
    advice = "make a new one; messages without a result may or may not have been stored"


class ClientForked(ClientClosed):
    pid: int  # of the parent
    template = "the {what} is of process {pid}, which forked this one"
    advice = "make a new one in the child; what was on its way is the parent's"

    @classmethod
    def here(cls, what: str) -> Self:
        """The error for the child of a fork."""
        return cls(what, os.getppid())


class MessageTooLarge(TowlineError, remedy=Remedy.FIX_CALL):
    size: int
    size_max: int
    template = "a body of {size} bytes is too large; {size_max} are allowed"
    advice = "split the message, compress it, or raise max_message_size on the node and restart it"


class UnserializableValue(TowlineError, remedy=Remedy.FIX_CALL):
    """No body could be made of what a message was given; nothing was sent."""

    topic: str
    problem: str
    template = "the value of a message for {topic} became no body: {problem}"
    advice = "give the message bytes, or the producer a value_serializer that takes its value and returns bytes"


class UnreadableValue(TowlineError, remedy=Remedy.FIX_CALL):
    """A consumer's value_deserializer raised (`__cause__`). The message was read like any other, and so is the next."""

    topic: str
    queue_id: int
    queue_offset: int
    problem: str
    template = "message {queue_offset} of queue {queue_id} of {topic} has no value: {problem}"
    advice = "look at the message's body, and skip the message or send it elsewhere: reading goes on behind it"


class PutRefused(TowlineError, remedy=Remedy.FIX_CALL):
    """The node refused a put, by the name of a status; nothing was stored."""

    status: str
    sentence: str

    @property
    def advice(self) -> str:  # type: ignore[override]
        cause = read_sentence(self.sentence)[0]
        return "change what the sentence names, then send again" if cause is Cause.REQUEST else cause.remedy

    @property
    def cause(self) -> str:
        """Why, by name; `request` where the request itself is at fault."""
        return read_sentence(self.sentence)[0].label

    @property
    def numbers(self) -> dict[str, int]:
        """What the node measured and its limits: {"waited_ms": 212, "limit_ms": 200, "retry_after_ms": 40}."""
        return read_sentence(self.sentence)[1]


class StoreBusy(PutRefused, remedy=Remedy.RETRY):
    """The node could not take a put in all the time it had; nothing was stored. It may be sent again later."""

    attempts: int
    template = "{status}: {sentence} (sent {attempts} times)"

    @property
    def advice(self) -> str:  # type: ignore[override]
        again = "send again when the node has recovered: not one of these attempts was stored"
        cause = read_sentence(self.sentence)[0]
        return again if cause is Cause.REQUEST else f"{cause.remedy}; {again}"


class DeliveryTimeout(TowlineError, remedy=Remedy.RETRY):
    topic: str
    waited_ms: int
    attempts: int
    trouble: str
    template = "no acknowledgement for {topic} in {waited_ms} ms, sent {attempts} times: {trouble}"
    advice = "look the unique key up before sending it again: a request without an answer may have been stored"


class ResultPending(TowlineError, TimeoutError, remedy=Remedy.RETRY):
    waited_ms: int
    template = "no result after {waited_ms} ms"
    advice = "wait again; the message is still under way"


class ProducerFull(TowlineError, remedy=Remedy.RETRY):
    buffered: int
    waited_ms: int
    template = "the buffer is full: {buffered} bytes have no outcome yet, and no room came in {waited_ms} ms"
    advice = (
        "send it again when an earlier one has its outcome, give send_async a max_block_ms, or raise buffer_bytes_max"
    )


class AskRefused(TowlineError, remedy=Remedy.FIX_CALL):
    """A question was answered with an error."""

    op: str
    error: str
    sentence: str
    advised: str  # by the node; "" where it advises nothing
    template = "{op}: {error}: {sentence}"

    @property
    def advice(self) -> str:  # type: ignore[override]
        return self.advised or "change what the sentence names"


class NotInRocketmq(AskRefused):
    """A question that a broker of RocketMQ has no answer to."""

    NAME: ClassVar[str] = "NOT_IN_ROCKETMQ"
    template = "{sentence}"
    advice = "ask a Towline node, or do without: docs/rocketmq-client.md says what there is at a broker"


class FilterRefused(TowlineError, remedy=Remedy.FIX_CALL):
    """A node does not take a consumer's filter."""

    NAMES: ClassVar[frozenset[str]] = frozenset({"BadExpression", "PropertyFilterDisabled", "FILTER_DISABLED"})
    error: str
    position: int  # characters before what is wrong; -1: not the expression
    sentence: str
    template = "{error}: {sentence}"

    @property
    def advice(self) -> str:  # type: ignore[override]
        if self.error == "BadExpression":
            return "correct the expression where the position says"
        return "restart the node with `--set enable_property_filter=true`, or filter by tags"

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> Self:
        """The error in a node's answer."""
        error, position, sentence = (facts.get(name, "") for name in ("error", "position", "sentence"))
        said = str(sentence).removesuffix(f"; {facts.get('remedy', '')}")
        return cls(str(error), position if isinstance(position, int) else -1, said)


class NotIdempotent(TowlineError, remedy=Remedy.FIX_CALL):
    """Something that an idempotent producer does not send: its records have no place in what it sends to one queue."""

    what: str
    template = "an idempotent producer sends no {what}"
    advice = "send it with another producer, without idempotent=True"


class IllegalDelay(TowlineError, remedy=Remedy.FIX_CALL):
    """A message asks for a later delivery that cannot be."""

    name: str
    value: str
    why: str
    template = "{name} is {value}: {why}"
    advice = "give a delay_level from 1 on, or a deliver_at in ms since 1970 within timer_max_delay_sec"


class IllegalHandle(TowlineError, remedy=Remedy.FIX_CALL):
    """What was given to `cancel` is no handle of a message."""

    text: str
    advice = "give the `handle` of the result of a message that was sent with deliver_at"

    def describe(self) -> str:
        return f"{self.text[:80]!r} is no handle of a message that waits for its time"


class DamagedMessage(TowlineError, remedy=Remedy.FIX_DISK):
    """A message is not what was stored, and nobody is known who has it whole.

    What stood before it was handed out; reading stays before it.
    """

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int  # byte of the log, as the message says
    problem: str
    broker_name: str = ""  # the group of nodes, where there are several
    record: bytes = b""  # its bytes as they came
    advice = (
        "run `towline store verify` on the node and repair or replace its store; to read on behind it `seek` to the "
        "offset after it, to be handed it as it is read with check_crcs=False"
    )

    def describe(self) -> str:
        where = f" of group {self.broker_name}" if self.broker_name else ""
        message = f"message {self.queue_offset} of queue {self.queue_id} of {self.topic}{where}"
        return f"{message}, at byte {self.physical_offset} of the log, is damaged: {self.problem}"


class ReadRefused(TowlineError, remedy=Remedy.FIX_CALL):
    """A topic's permission does not let anybody read from it."""

    topic: str
    sentence: str
    template = "NO_PERMISSION: {sentence}"

    @property
    def advice(self) -> str:  # type: ignore[override]
        return f"let the topic be read (`towline topic alter {quote(self.topic)} --perm rw`), or read another one"


class UnknownGroup(TowlineError, remedy=Remedy.FIX_CALL):
    """A message for a group of nodes that the cluster does not have."""

    name: str
    known: str
    advice = "name one of the cluster's groups as `broker_name`, or none"

    def describe(self) -> str:
        return f"there is no group {self.name!r}, but {self.known or 'one without a name'}"


class RequestTimeout(TowlineError, remedy=Remedy.RETRY):
    """No reply came in time."""

    topic: str
    correlation_id: str
    waited_ms: int
    acknowledged: bool
    advice = "the request may be worked on all the same; a reply that comes later is counted and dropped"

    def describe(self) -> str:
        stage = "it is stored" if self.acknowledged else "whether it is stored is not known"
        return f"no reply to request {self.correlation_id} for {self.topic} in {self.waited_ms} ms; {stage}"


class NotARequest(TowlineError, remedy=Remedy.FIX_CALL):
    missing: str
    template = "the message has no property {missing}, so nobody waits for a reply"
    advice = "only messages sent by Producer.request can be replied to"


_ENDED: Final = "nothing is to be done: it has ended, by another producer of the group, a check, or a first attempt"
REMEDIES: Final = {
    "ALREADY_COMMITTED": _ENDED,
    "ALREADY_ROLLED_BACK": _ENDED,
    "ALREADY_PUT_ASIDE": "read its message from TRANS_CHECK_MAX_TIME_TOPIC, and send it anew if it is wanted",
    "ALREADY_ENDED": "look up its unique key in the topic: the message is there if it was committed",
    "ANOTHER_GROUP": "end it with a producer of the group that began it",
    "NO_SUCH_TRANSACTION": "give back what `begin` gave; if the node lost its log's end, begin it again",
    "NOT_READABLE_YET": "end it again in a moment: disk or slave lag behind",
    "TOO_MANY": "end it again in a moment: the node has enough to do",
}


class TransactionRefused(TowlineError, remedy=Remedy.FIX_CALL):
    """The node did not end a transaction; `name` says why.

    ALREADY_COMMITTED, ALREADY_ROLLED_BACK  it has ended; so it is said, too, when the first answer got lost
    ALREADY_PUT_ASIDE                       it was checked too often
    ALREADY_ENDED                           it has ended, too long ago to tell how
    ANOTHER_GROUP, NO_SUCH_TRANSACTION      it is not this group's, or never was
    NOT_READABLE_YET, TOO_MANY              disk or slave lag behind, or too many end at once; ask again
    the name of a put's status              the message could not be stored; the transaction is open still
    """

    name: str
    sentence: str
    transaction: str
    template = "transaction {transaction}: {name}: {sentence}"

    @property
    def advice(self) -> str:  # type: ignore[override]
        return REMEDIES.get(self.name, "the transaction is open still: end it again when what is named is put right")


class IllegalOutcome(TowlineError, remedy=Remedy.FIX_CALL):
    whose: str
    given: str
    template = "{whose} of a transaction gave {given}, which is no State"
    advice = "return State.COMMIT, State.ROLLBACK or State.UNKNOWN (towline.client.transaction)"


class IllegalTransaction(TowlineError, remedy=Remedy.FIX_CALL):
    text: str
    template = "{text!r} is no transaction"
    advice = "give back what str() of a transaction gave"
