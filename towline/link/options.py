"""The socket options both ends of a link share, each with its reason."""

from typing import Final

import zmq

from .context import Socket

# Messages from one peer that may wait here: any number. With a limit libzmq (4.3.5) stops reading that connection when
# it is reached, notes it when the connection ends, and aborts the process (`!_io_error`) at the next heartbeat. What a
# peer may have under way is bounded by its own credit, and by its share (`shares`, H21).
RECEIVED_MAX: Final = 0
HANDSHAKE_MS: Final = 5_000
HEARTBEAT_MS: Final = 2_000
HEARTBEAT_TIMEOUT_MS: Final = 10_000


def set_common(socket: Socket, frame_size_max: int, high_water: int) -> None:
    socket.set(zmq.LINGER, 0)  # an unsent frame never holds up an exit
    socket.set(zmq.MAXMSGSIZE, frame_size_max)  # bytes of one part; a larger one costs its sender the connection
    socket.set(zmq.SNDHWM, high_water)  # messages to one peer; beyond it a send fails, which is our back-pressure
    socket.set(zmq.RCVHWM, RECEIVED_MAX)
    socket.set(zmq.HANDSHAKE_IVL, HANDSHAKE_MS)  # a peer that connects and says nothing is closed
    socket.set(zmq.HEARTBEAT_IVL, HEARTBEAT_MS)  # a peer that vanished without closing is noticed
    socket.set(zmq.HEARTBEAT_TIMEOUT, HEARTBEAT_TIMEOUT_MS)
    socket.set(zmq.HEARTBEAT_TTL, HEARTBEAT_TIMEOUT_MS)
    socket.set(zmq.IPV6, 1)  # both address families
