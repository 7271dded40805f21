"""Raw pyzmq push-pull of the same frames between two processes: the limit of everything that travels by ZeroMQ.

This module is also the receiving process. It takes orders on standard input and answers on standard output, one JSON
value a line, so it ends when its parent does.
"""

import json
import subprocess
import sys
import time
from itertools import count
from typing import Any, Final

import zmq

from towline.errors import BenchFailed
from towline.limits import KIB
from towline.start import home

from .shapes import Load

UNCOPIED: Final = 16 * KIB  # parts of this size or more are received where ZeroMQ put them: faster from there on


class RawPair:
    """Pushes to a process of its own that pulls and throws away."""

    def __init__(self) -> None:
        self._numbers = count()
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._receiver = subprocess.Popen(
            [sys.executable, "-m", "towline.loadtest.bench.raw"],
            cwd=home(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def measure(self, transport: str, load: Load, requests: int) -> float:
        """Seconds for `requests` messages of head and records, until the last has been received."""
        # A name without a file: a directory for measurements may be too long for the path of a socket. A new one each
        # time: ZeroMQ closes sockets behind the caller's back.
        name = f"towline-raw-{self._receiver.pid}-{next(self._numbers)}"
        endpoint = f"ipc://@{name}" if transport == "ipc" else "tcp://127.0.0.1:*"
        window = load.shape.window
        bound = self._tell({"endpoint": endpoint, "window": window, "copy": len(load.records) < UNCOPIED})
        parts = [[zmq.Frame(head, copy=False), zmq.Frame(load.records, copy=False)] for head in load.heads]
        with self._context.socket(zmq.PUSH) as push:
            push.set(zmq.LINGER, 0)
            push.set(zmq.SNDHWM, window)
            push.connect(bound)
            self._send(push, parts, window)  # the connection stands and buffers are warm
            started = time.perf_counter()
            self._send(push, parts, requests)
            taken = time.perf_counter() - started
        self._tell(0)
        return taken

    def close(self) -> None:
        assert self._receiver.stdin is not None
        self._receiver.stdin.close()
        self._receiver.wait()
        assert self._receiver.stdout is not None
        self._receiver.stdout.close()
        self._context.destroy(linger=0)

    def _send(self, push: "zmq.Socket[bytes]", parts: list[list[zmq.Frame]], messages: int) -> None:
        assert self._receiver.stdin is not None
        self._receiver.stdin.write(f"{messages}\n")
        self._receiver.stdin.flush()
        for number in range(messages):
            push.send_multipart(parts[number % len(parts)])
        self._answer()

    def _tell(self, order: Any) -> Any:
        assert self._receiver.stdin is not None
        self._receiver.stdin.write(json.dumps(order) + "\n")
        self._receiver.stdin.flush()
        return self._answer()

    def _answer(self) -> Any:
        assert self._receiver.stdout is not None
        line = self._receiver.stdout.readline()
        if not line:
            raise BenchFailed(f"the process that pulls ended with status {self._receiver.wait()}")
        return json.loads(line)


def receive() -> None:
    """The receiving process: a socket per order, then a number of messages at a time, 0 to end it."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    for line in sys.stdin:
        order = json.loads(line)
        with context.socket(zmq.PULL) as pull:
            pull.set(zmq.RCVHWM, order["window"])
            pull.bind(order["endpoint"])
            _say(pull.get_string(zmq.LAST_ENDPOINT).rstrip("\0"))
            while messages := int(sys.stdin.readline() or 0):
                if order["copy"]:
                    for _ in range(messages):
                        pull.recv()
                        pull.recv()
                else:
                    for _ in range(messages):
                        pull.recv()
                        pull.recv(copy=False)
                _say(messages)
        _say(0)
    context.destroy(linger=0)


def _say(answer: Any) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    receive()
