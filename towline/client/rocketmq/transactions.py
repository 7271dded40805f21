"""Transactions at a broker: their ends, and its checks."""

from collections.abc import Generator, Mapping
from typing import Any, Final

from towline.format.record import properties as names
from towline.format.record.forms import HALF_QUEUE, HALF_TOPIC
from towline.format.record.record import decode
from towline.format.remoting.codes import REFUSAL, RequestCode, ResponseCode
from towline.format.remoting.command import Command
from towline.format.remoting.headers import EndTransaction, PullMessage
from towline.format.wire.status import PutStatus

from .pulls import ANY, TOOLS_GROUP
from .talk import Pause, Refused, Request, Session, Step, Talk, succeeded

_OUTCOMES: Final = {"commit": 8, "rollback": 12}
_ALREADY: Final = {"commit": "ALREADY_COMMITTED", "rollback": "ALREADY_ROLLED_BACK"}
ENDED_MAX: Final = 10_000  # that are remembered
_NOTHING: Final = (
    ResponseCode.PULL_NOT_FOUND,
    ResponseCode.PULL_RETRY_IMMEDIATELY,
    ResponseCode.PULL_OFFSET_MOVED,
)
_HOLD_MS: Final = 3_000  # a half is readable a moment after it was stored
_FLAGS: Final = 6  # it may be held, and the subscription is in the request

Facts = Mapping[str, Any]


def end(session: Session, facts: Facts) -> Talk:
    """Commits or rolls back. Raises Refused."""
    first, key, group = int(facts["first"]), facts["key"], facts["group"]
    if key in session.ended:
        raise Refused(_ALREADY[session.ended[key]], "it has ended, by this producer")
    place = yield from _place_of(first, key, group)
    header = EndTransaction(
        producer_group=group,
        tran_state_table_offset=first,
        commit_log_offset=place,
        commit_or_rollback=_OUTCOMES[facts["outcome"]],
        msg_id=key,
        transaction_id=key,
    )
    (answer,) = yield [Request(RequestCode.END_TRANSACTION, header)]
    if name := answer.fields.get(REFUSAL):
        raise Refused(name, answer.remark)
    succeeded(answer)
    session.ended[key] = facts["outcome"]
    if len(session.ended) > ENDED_MAX:
        del session.ended[next(iter(session.ended))]
    return {"status": PutStatus.PUT_OK.name}, b""


def watch(session: Session, facts: Facts) -> Talk:
    """The checks that came; waits for the first."""
    if not session.checks:
        yield Pause(facts["wait_ms"] / 1000)
    found, session.checks = session.checks, []
    return {"checks": [{"first": first} for first, _ in found]}, b"".join(record for _, record in found)


def _place_of(first: int, key: str, group: str) -> Generator[Step, list[Command], int]:
    """The log offset of the half with this offset in its queue, by which a broker knows it; 0 at a node, which goes by
    `first` and key, and shows its halves to nobody. Raises Refused."""
    header = PullMessage(
        consumer_group=TOOLS_GROUP,
        topic=HALF_TOPIC,
        queue_id=HALF_QUEUE,
        queue_offset=first,
        max_msg_nums=1,
        sys_flag=_FLAGS,
        suspend_timeout_millis=_HOLD_MS,
        subscription=ANY,
    )
    (answer,) = yield [Request(RequestCode.PULL_MESSAGE, header)]
    if answer.code in (ResponseCode.SUBSCRIPTION_PARSE_FAILED, ResponseCode.TOPIC_NOT_EXIST):
        return 0
    half = decode(bytes(answer.body)) if succeeded(answer, *_NOTHING) else None
    if half is None or half.queue_offset != first:
        raise Refused("NOT_READABLE_YET", f"no half can be read at {first} yet")
    pairs = names.decode(half.properties)
    if pairs.get(names.UNIQ_KEY) != key:
        raise Refused("NO_SUCH_TRANSACTION", f"the half at {first} has another unique key")
    if pairs.get(names.PRODUCER_GROUP) != group:
        raise Refused("ANOTHER_GROUP", f"the half at {first} is of the group {pairs.get(names.PRODUCER_GROUP)!r}")
    return half.physical_offset
