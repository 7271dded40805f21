"""A master by RocketMQ's protocol, in sockets: its broker answers by itself, its frames are up to the test."""

import contextlib
import json
import select
import socket
import struct
import threading
from typing import Any, Final, Self

from tests.processes.nodes import SEGMENT
from towline.format.remoting.codes import RequestCode, ResponseCode
from towline.format.remoting.command import ANSWER, LENGTH, Command, decode, encode
from towline.limits import KIB

HOST: Final = "127.0.0.1"
HEAD: Final = struct.Struct(">qi")
REPORT: Final = struct.Struct(">q")
WAIT_S: Final = 30.0
BODY: Final = 32 * KIB  # haTransferBatchSize
LEVELS: Final = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
CONFIG: Final = {
    "brokerName": "towline",
    "brokerClusterName": "DefaultCluster",
    "brokerId": "0",
    "brokerRole": "ASYNC_MASTER",
    "messageDelayLevel": LEVELS,
}
EMPTY: Final[dict[int, dict[str, Any]]] = {
    RequestCode.GET_ALL_TOPIC_CONFIG: {"topicConfigTable": {}},
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: {"subscriptionGroupTable": {}},
    RequestCode.GET_ALL_CONSUMER_OFFSET: {"offsetTable": {}},
    RequestCode.GET_ALL_DELAY_OFFSET: {"offsetTable": {}},
}
_UNKNOWN, _NO_MESSAGE = ResponseCode.REQUEST_CODE_NOT_SUPPORTED, ResponseCode.SYSTEM_ERROR


class RawMaster:
    """`log` is what it has, from the byte `first` on; `held` its end as it says. What its broker is asked is answered
    by a thread; `answers` and `config` may be changed meanwhile."""

    def __init__(self, log: bytes, first: int = 0, segment: int = SEGMENT) -> None:
        self.log, self.first, self.held = log, first, first + len(log)
        self.segment = segment
        self.config = CONFIG | {"mappedFileSizeCommitLog": str(segment)}
        self.queue_ends: dict[tuple[str, int], int] = {}
        self.answers: dict[int, Any] = dict(EMPTY)  # code -> object of the body, or a function of the fields
        self.codes: dict[int, int] = {}  # of answers that are no success
        self._frames = socket.create_server((HOST, 0))
        self._frames.settimeout(WAIT_S)
        self._broker = socket.create_server((HOST, 0))
        self._lock = threading.Lock()
        self._connected: list[socket.socket] = []
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    @property
    def settings(self) -> dict[str, str]:
        """With which a node follows it."""
        addresses = (f"{HOST}:{sock.getsockname()[1]}" for sock in (self._frames, self._broker))
        return dict(zip(("rocketmq_master_address", "rocketmq_master_broker"), addresses, strict=True))

    @property
    def end(self) -> int:
        return self.first + len(self.log)

    def slave(self) -> "RawConnection":
        """The next that connects, and has not left again while nobody looked. Raises TimeoutError."""
        while True:
            sock, _ = self._frames.accept()
            sock.settimeout(WAIT_S)
            gone = select.poll()
            gone.register(sock, select.POLLRDHUP)
            if not gone.poll(0):
                return RawConnection(self, sock)
            sock.close()

    def close(self) -> None:
        for sock in (self._frames, self._broker):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()
        self._thread.join()
        with self._lock:
            for sock in self._connected:
                sock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- the broker

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                sock, _ = self._broker.accept()
                with self._lock:
                    self._connected.append(sock)
                threading.Thread(target=self._serve, args=(sock,), daemon=True).start()

    def _serve(self, sock: socket.socket) -> None:
        with contextlib.suppress(OSError, ValueError):
            came = sock.makefile("rb")
            while head := came.read(LENGTH.size):
                request = decode(head + came.read(LENGTH.unpack(head)[0]))
                sock.sendall(b"".join(encode(self._answer(request))))

    def _answer(self, request: Command) -> Command:
        body = self._body(request)
        none = _NO_MESSAGE if request.code == RequestCode.VIEW_MESSAGE_BY_ID else _UNKNOWN
        code = self.codes.get(request.code, none if body is None else ResponseCode.SUCCESS)
        asked = request.fields
        queue = (asked.get("topic", ""), int(asked.get("queueId", 0)))
        fields = {"offset": str(self.queue_ends.get(queue, 0))} if request.code == RequestCode.GET_MAX_OFFSET else {}
        return Command(code, request.opaque, ANSWER, "", fields, body or b"")

    def _body(self, request: Command) -> bytes | None:
        found = self.answers.get(request.code)
        if callable(found):
            return bytes(found(request.fields))
        if found is not None:
            return json.dumps(found).encode()
        if request.code == RequestCode.GET_BROKER_CONFIG:
            return "".join(f"{name}={value}\n" for name, value in self.config.items()).encode()
        if request.code == RequestCode.GET_BROKER_RUNTIME_INFO:
            table = {"commitLogMinOffset": str(self.first), "commitLogMaxOffset": str(self.held)}
            return json.dumps({"table": table}).encode()
        if request.code == RequestCode.VIEW_MESSAGE_BY_ID:
            return self._message(int(request.fields["offset"]) - self.first)
        return b"" if request.code == RequestCode.GET_MAX_OFFSET else None

    def _message(self, at: int) -> bytes | None:
        size = int.from_bytes(self.log[at : at + 4], "big")
        return self.log[at : at + size] if at >= 0 and at + size <= len(self.log) else None


class RawConnection:
    """A slave that has connected."""

    def __init__(self, master: RawMaster, sock: socket.socket) -> None:
        self.sock, self._master, self.log = sock, master, master.log

    def report(self) -> int:
        """The next one. Raises ConnectionError where the slave has closed."""
        data = b""
        while len(data) < REPORT.size:
            came = self.sock.recv(REPORT.size - len(data))
            if not came:
                raise ConnectionResetError("the slave has closed")
            data += came
        return int(REPORT.unpack(data)[0])

    def frame(self, offset: int, body: bytes = b"", size: int | None = None) -> None:
        self.sock.sendall(HEAD.pack(offset, len(body) if size is None else size) + body)

    def send(self, start: int, end: int) -> None:
        """The log [start, end), as a broker cuts it into frames."""
        log, first, segment = self._master.log, self._master.first, self._master.segment
        while start < end:
            stop = min(end, start + BODY, start - start % segment + segment)
            self.frame(start, log[start - first : stop - first])
            start = stop

    def await_report(self, end: int) -> None:
        while self.report() < end:
            pass

    def await_closed(self) -> None:
        """Until the slave closes."""
        with contextlib.suppress(ConnectionError):
            while True:
                self.report()

    def beat_until_closed(self, offset: int) -> None:
        """A heartbeat for each report, until the slave closes."""
        with contextlib.suppress(ConnectionError):
            while True:
                self.frame(offset)
                self.report()

    def close(self) -> None:
        self.sock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
