"""Requests of RocketMQ's tools that have no meaning here, and why."""

from typing import Final

from towline.format.remoting.codes import RequestRefused, ResponseCode
from towline.format.remoting.command import Command

from .connections import Answer, Connection

_BY_ITSELF: Final = "a node removes by itself what has expired, as its settings say: see docs/operations.md"
_OTHER_LISTENER: Final = "a client's state is told by GET_CONSUMER_RUNNING_INFO (307)"
ABSENT: Final = {
    100: "no values are kept for a name server: order a topic by sending its messages to one queue",
    223: _OTHER_LISTENER,
    306: _BY_ITSELF,
    316: _BY_ITSELF,
    329: _BY_ITSELF,
    323: "a half that was given up is in the topic TRANS_CHECK_MAX_TIME_TOPIC, and is not checked again",
    354: "queues are files, there is no RocksDB",
    355: "queues are files, there is no RocksDB",
    907: "replication is not RocketMQ's: `towline status` tells of slaves and of those in sync",
}


def refuse(_: Connection, request: Command, answer: Answer) -> None:
    """Raises RequestRefused for what nobody handles."""
    why = f"request type {request.code} not supported"
    if request.code in ABSENT:
        why += f": {ABSENT[request.code]}"
    raise RequestRefused(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, why)
