"""Towline's port for RocketMQ's clients, over plain TCP: a frame for each message, ROCKETMQ header, made beforehand.

The numbers of all requests are the same, so all answers of PUT_OK begin alike.
"""

import socket
import sys
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path
from typing import ClassVar, Final

import numpy as np
import numpy.typing as npt

from towline.errors import BenchFailed
from towline.format.remoting.codes import RequestCode
from towline.format.remoting.command import ANSWER, LENGTH, Command, Form, decode, encode
from towline.loadtest.bench.shapes import TOPIC

from . import towlines
from .plan import Answer, Kind, Setup, Work
from .server import HOST, free_port
from .stream_client import READ, StreamClient, Wire, connect, frames_of, held, run_by
from .towline_node import TowlineNode

NAME: Final = "Towline, RocketMQ's protocol"
FIRST_TOPIC: Final = "first"
OPAQUE: Final = 0x5EED_BEAD
BORN_MS: Final = 1_700_000_000_000
_BEFORE_HEADER: Final = 8  # length and mark of a frame
_SAME: Final = 17  # bytes of the header of an answer without a remark: code to the remark's length
_BUSY: Final = b"[OVERLOAD]"


class RemotingNode(TowlineNode):
    """`address` is host:port."""

    front: ClassVar[str | None] = "remoting"

    def __init__(self, directory: Path, setup: Setup) -> None:
        port = free_port()
        super().__init__(directory, setup, listen_port=port, broker_ip1=HOST)
        self.address = f"{HOST}:{port}"


def version() -> str:
    return towlines.version()


def start(directory: Path, setup: Setup) -> RemotingNode:
    return RemotingNode(directory, setup)


def client() -> list[str]:
    return [sys.executable, "-m", "peers.client", "towline-remoting"]


def run(address: str, work: Work, go: Callable[[], None]) -> Answer:
    """In a client process."""
    if work.kind is Kind.IDLE:
        return held(partial(_connect, address), _greet, work, go)
    return run_by(work, go, partial(_put, address, work), _replay)


def listen(address: str, work: Work, go: Callable[[], None]) -> npt.NDArray[np.int64]:
    raise BenchFailed(f"at the remoting port there is no {work.name}")


def _replay(go: Callable[[], None]) -> Answer:
    raise BenchFailed("RocketMQ's pulls are for its own clients: what they read is measured in Java")


def _connect(address: str, **more: float) -> socket.socket:
    host, port = address.split(":")
    return connect(host, int(port), **more)


def _put(address: str, work: Work, go: Callable[[], None], timeout_s: float) -> Answer:
    topic = FIRST_TOPIC if work.kind is Kind.FIRST else TOPIC
    with _connect(address, timeout_s=timeout_s) as connected:
        _make_topic(connected, topic, work.queues)
        numbers = count()
        frames = frames_of(work, lambda queue, body: send_frame(topic, queue, body, next(numbers)))
        return StreamClient(connected, answers_of(frames)).run(work, go)


def answers_of(frames: tuple[bytes, ...]) -> Wire:
    """With what every answer of PUT_OK begins. Of refusals those of an overload are known; others are no answer."""
    good = _frame(Command(0, OPAQUE, ANSWER, form=Form.ROCKETMQ))
    return Wire(frames, good[_BEFORE_HEADER : _BEFORE_HEADER + _SAME], _BUSY)


def send_frame(topic: str, queue: int, body: bytes, number: int) -> bytes:
    """A send as RocketMQ's Java producer makes it; `number` is in its unique key."""
    fields = {
        "a": "peers",
        "b": topic,
        "c": "TBW102",
        "d": "4",
        "e": str(queue),
        "f": "0",
        "g": str(BORN_MS),
        "h": "0",
        "i": f"UNIQ_KEY\x017F000001000018B4AAC2{number:012X}\x02WAIT\x01true\x02",
        "j": "0",
        "k": "false",
        "m": "false",
        "n": "peer",
    }
    return _frame(Command(RequestCode.SEND_MESSAGE_V2, OPAQUE, fields=fields, body=body, form=Form.ROCKETMQ))


def _greet(connected: socket.socket) -> None:
    """A question for a topic's route: that of no topic is answered too."""
    _ask(connected, RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": TOPIC})


def _make_topic(connected: socket.socket, topic: str, queues: int) -> None:
    wish = {
        "topic": topic,
        "defaultTopic": "TBW102",
        "readQueueNums": str(queues),
        "writeQueueNums": str(queues),
        "perm": "6",
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": "0",
        "order": "false",
    }
    answer = _ask(connected, RequestCode.UPDATE_AND_CREATE_TOPIC, wish)
    if answer.code:
        raise BenchFailed(f"no topic is made: {answer.remark}")


def _ask(connected: socket.socket, code: int, fields: dict[str, str]) -> Command:
    """The answer to a question; for what is asked before anything is measured."""
    connected.sendall(_frame(Command(code, 1, fields=fields, form=Form.ROCKETMQ)))
    found = b""
    while len(found) < LENGTH.size or len(found) < LENGTH.size + LENGTH.unpack_from(found)[0]:
        more = connected.recv(READ)
        if not more:
            raise BenchFailed("the server closed the connection")
        found += more
    return decode(found)


def _frame(command: Command) -> bytes:
    return b"".join(encode(command))
