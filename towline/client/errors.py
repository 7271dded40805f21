"""The errors that only a user of the client meets; the others, and their base class, are in `towline.errors`."""

import os
from collections.abc import Mapping
from typing import Any, ClassVar, Self

from towline.errors import Remedy, TowlineError
from towline.format.wire.refusals import read_sentence


class ClientClosed(TowlineError):
    """The object was closed before, or while, it was asked. Facts: what it is."""

    remedy = Remedy.FIX_CALL
    advice = "make a new one; messages without a result may or may not have been stored"

    def __init__(self, what: str) -> None:
        self.what = what
        super().__init__(what)

    def describe(self) -> str:
        return f"the {self.what} is closed"


class ClientForked(ClientClosed):
    """It is of the process that forked this one, where it is still of use. Facts: what it is, that process's id."""

    advice = "make a new one in the child; what was on its way is the parent's"

    def __init__(self, what: str, pid: int) -> None:
        super().__init__(what)
        self.pid = pid
        self.args = (what, pid)

    @classmethod
    def here(cls, what: str) -> Self:
        """For the child."""
        return cls(what, os.getppid())

    def describe(self) -> str:
        return f"the {self.what} is of process {self.pid}, which forked this one"


class MessageTooLarge(TowlineError):
    """A body that the store would refuse. Facts: its size after compression, the largest allowed (bytes)."""

    remedy = Remedy.FIX_CALL
    advice = "split the message, compress it, or raise max_message_size on the node"

    def __init__(self, size: int, size_max: int) -> None:
        self.size, self.size_max = size, size_max
        super().__init__(size, size_max)

    def describe(self) -> str:
        return f"a body of {self.size} bytes is too large; {self.size_max} are allowed"


class PutRefused(TowlineError):
    """The node refused a put; nothing was stored. Facts: name of the status, the node's sentence.

    `cause` is why, by name (`request` where the request itself is at fault); `numbers` are what the node measured and
    its limits, units in their names: {"waited_ms": 212, "limit_ms": 200, "retry_after_ms": 40}.
    """

    remedy = Remedy.FIX_CALL
    advice = "change what the sentence names, then send again"

    def __init__(self, status: str, sentence: str) -> None:
        self.status, self.sentence = status, sentence
        cause, self.numbers, _ = read_sentence(sentence)
        self.cause = cause.label
        super().__init__(status, sentence)

    def describe(self) -> str:
        return f"{self.status}: {self.sentence}"


class StoreBusy(PutRefused):
    """The node could not take a put in all the time it had; nothing was stored. Facts: status, sentence, times sent."""

    remedy = Remedy.RETRY
    advice = "send again when the node has recovered: not one of these attempts was stored"

    def __init__(self, status: str, sentence: str, attempts: int) -> None:
        super().__init__(status, sentence)
        self.attempts = attempts
        self.args = (status, sentence, attempts)

    def describe(self) -> str:
        return f"{super().describe()} (sent {self.attempts} times)"


class DeliveryTimeout(TowlineError):
    """No acknowledgement in time. Facts: topic, ms waited, times sent, what happened last."""

    remedy = Remedy.RETRY
    advice = "look the unique key up before sending it again: a request without an answer may have been stored"

    def __init__(self, topic: str, waited_ms: int, attempts: int, trouble: str) -> None:
        self.topic, self.waited_ms, self.attempts, self.trouble = topic, waited_ms, attempts, trouble
        super().__init__(topic, waited_ms, attempts, trouble)

    def describe(self) -> str:
        return f"no acknowledgement for {self.topic} in {self.waited_ms} ms, sent {self.attempts} times: {self.trouble}"


class ResultPending(TowlineError):
    """The result was not there when the caller stopped waiting; sending goes on. Facts: ms waited."""

    remedy = Remedy.RETRY
    advice = "wait again; the message is still under way"

    def __init__(self, waited_ms: int) -> None:
        self.waited_ms = waited_ms
        super().__init__(waited_ms)

    def describe(self) -> str:
        return f"no result after {self.waited_ms} ms"


class ProducerFull(TowlineError):
    """Nothing left the producer for too long. Facts: bytes that wait, ms waited for room."""

    remedy = Remedy.RETRY
    advice = "send more slowly, or raise buffer_bytes_max"

    def __init__(self, buffered: int, waited_ms: int) -> None:
        self.buffered, self.waited_ms = buffered, waited_ms
        super().__init__(buffered, waited_ms)

    def describe(self) -> str:
        return f"{self.buffered} bytes wait for acknowledgement and no room came in {self.waited_ms} ms"


class AskRefused(TowlineError):
    """A question was answered with an error. Facts: operation, name of the error, sentence."""

    remedy = Remedy.FIX_CALL
    advice = "change what the sentence names"

    def __init__(self, op: str, error: str, sentence: str) -> None:
        self.op, self.error, self.sentence = op, error, sentence
        super().__init__(op, error, sentence)

    def describe(self) -> str:
        return f"{self.op}: {self.error}: {self.sentence}"


class FilterRefused(TowlineError):
    """A node does not take a consumer's filter. Facts: the error's name, the position of what is wrong, a sentence.

    `position` counts the characters before it; -1 where the expression is not what is wrong.
    """

    NAMES: ClassVar[frozenset[str]] = frozenset({"BadExpression", "PropertyFilterDisabled", "FILTER_DISABLED"})
    remedy = Remedy.FIX_CALL
    advice = "mend the expression where the position says, or set enable_property_filter on the node"

    def __init__(self, error: str, position: int, sentence: str) -> None:
        self.error, self.position, self.sentence = error, position, sentence
        super().__init__(error, position, sentence)

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> Self:
        """From a node's answer."""
        error, position, sentence = (facts.get(name, "") for name in ("error", "position", "sentence"))
        return cls(str(error), position if isinstance(position, int) else -1, str(sentence))

    def describe(self) -> str:
        return f"{self.error}: {self.sentence}"


class IllegalDelay(TowlineError):
    """A message asks for a delivery later that cannot be. Facts: which of its fields, the value, why not."""

    remedy = Remedy.FIX_CALL
    advice = "give a delay_level from 1 on, or a deliver_at in ms since 1970 within timer_max_delay_sec"

    def __init__(self, name: str, value: str, why: str) -> None:
        self.name, self.value, self.why = name, value, why
        super().__init__(name, value, why)

    def describe(self) -> str:
        return f"{self.name} is {self.value}: {self.why}"


class IllegalHandle(TowlineError):
    """What was given to `cancel` is no handle of a message. Facts: its text."""

    remedy = Remedy.FIX_CALL
    advice = "give the `handle` of the result of a message that was sent with deliver_at"

    def __init__(self, text: str) -> None:
        self.text = text
        super().__init__(text)

    def describe(self) -> str:
        return f"{self.text[:80]!r} is no handle of a message that waits for its time"


class DamagedMessage(TowlineError):
    """A message is not what was stored, and nobody is known who has it whole.

    Facts: topic, queue id, offset in the queue, byte of the log at which it begins (as the message says), what is
    wrong, the group of nodes where there are several, its bytes as they came. What stood before it was handed out;
    reading stays before it.
    """

    remedy = Remedy.FIX_DISK
    advice = (
        "run `towline store verify` on the node and mend or replace its store; to read on behind it `seek` to the "
        "offset after it, to be handed it as it is read with check_crcs=False"
    )

    def __init__(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        physical_offset: int,
        problem: str,
        broker_name: str = "",
        record: bytes = b"",
    ) -> None:
        self.topic, self.queue_id, self.queue_offset = topic, queue_id, queue_offset
        self.physical_offset, self.problem, self.broker_name = physical_offset, problem, broker_name
        self.record = record
        super().__init__(topic, queue_id, queue_offset, physical_offset, problem, broker_name, record)

    def describe(self) -> str:
        where = f" of group {self.broker_name}" if self.broker_name else ""
        message = f"message {self.queue_offset} of queue {self.queue_id} of {self.topic}{where}"
        return f"{message}, at byte {self.physical_offset} of the log, is damaged: {self.problem}"


class ReadRefused(TowlineError):
    """A topic's permission does not let anybody read from it. Facts: the node's sentence."""

    remedy = Remedy.FIX_CALL
    advice = "let the topic be read (`towline topic alter --perm rw`), or read another one"

    def __init__(self, sentence: str) -> None:
        self.sentence = sentence
        super().__init__(sentence)

    def describe(self) -> str:
        return f"NO_PERMISSION: {self.sentence}"


class UnknownGroup(TowlineError):
    """A message for a group of nodes that the cluster does not have. Facts: its name, those that there are."""

    remedy = Remedy.FIX_CALL
    advice = "name one of the cluster's groups as `broker_name`, or none"

    def __init__(self, name: str, known: str) -> None:
        self.name, self.known = name, known
        super().__init__(name, known)

    def describe(self) -> str:
        return f"there is no group {self.name!r}, but {self.known or 'one without a name'}"
