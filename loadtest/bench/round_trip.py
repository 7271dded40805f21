"""Raw pyzmq round trips between two processes: what an acknowledgement of a slave takes at least.

The sockets are those of a replication link: a ROUTER sends a head and some bytes over TCP, a DEALER answers with the
size of an acknowledgement. This module is also the process that answers; it ends when its standard input does.
"""

import subprocess
import sys
import time
from typing import Final

import numpy as np
import numpy.typing as npt
import zmq

from towline.errors import BenchFailed
from towline.format.wire.frames import HA_ACK, HA_DATA
from towline.start import home

from .node import LOOPBACK

ANSWER_MAX_MS: Final = 10_000
LOOK_MS: Final = 1  # as the client of the nodes that this is compared with
NS: Final = 1_000_000_000


def round_trips(size: int, rate: float, seconds: float) -> npt.NDArray[np.float64]:
    """Microseconds from the sending of `size` bytes to the receipt of the answer, at `rate` a second.

    Raises BenchFailed.
    """
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    process = subprocess.Popen([sys.executable, "-m", __name__], cwd=home(), stdin=subprocess.PIPE, text=True)
    assert process.stdin is not None
    try:
        with context.socket(zmq.ROUTER) as router:
            port = router.bind_to_random_port(f"tcp://{LOOPBACK}")
            process.stdin.write(f"{port}\n")
            process.stdin.flush()
            return _ask(router, bytes(size), rate, int(rate * seconds))
    finally:
        process.stdin.close()
        process.wait()
        context.destroy(linger=0)


def _ask(router: "zmq.Socket[bytes]", data: bytes, rate: float, count: int) -> npt.NDArray[np.float64]:
    poller = zmq.Poller()
    poller.register(router, zmq.POLLIN)
    peer, _ = _next(router, poller)
    taken = np.zeros(count, dtype=np.int64)
    began = time.perf_counter_ns()
    for number in range(count):
        while time.perf_counter_ns() - began < number * NS / rate:
            poller.poll(LOOK_MS)
        sent = time.perf_counter_ns()
        router.send_multipart([peer, bytes(HA_DATA.size), data])
        _next(router, poller)
        taken[number] = time.perf_counter_ns() - sent
    return taken / 1000.0


def _next(router: "zmq.Socket[bytes]", poller: zmq.Poller) -> list[bytes]:
    if not poller.poll(ANSWER_MAX_MS):
        raise BenchFailed("the process that answers does not answer")
    return router.recv_multipart()


def answer() -> None:
    """The other process."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    with context.socket(zmq.DEALER) as dealer:
        dealer.connect(f"tcp://{LOOPBACK}:{int(sys.stdin.readline())}")
        poller = zmq.Poller()
        poller.register(dealer, zmq.POLLIN)
        poller.register(sys.stdin.fileno(), zmq.POLLIN)
        acknowledgement = bytes(HA_ACK.size)
        dealer.send(acknowledgement)  # so that the other side knows whom to send to
        while sys.stdin.fileno() not in dict(poller.poll()):
            dealer.recv_multipart()
            dealer.send(acknowledgement)
    context.destroy(linger=0)


if __name__ == "__main__":
    answer()
