"""The ZeroMQ context and the options of every socket: one context per process or client, made after any fork.

Where gevent has replaced Python's threads before this module is imported (locust does so), a wait must let other
greenlets run: then contexts and pollers are those of zmq.green. No other module knows of this.
"""

import os
import struct
import sys
import warnings
from typing import Any, Final, TypeAlias

import zmq

from .unclosed import call_in_child, on_drop

GREEN: Final = "gevent.monkey" in sys.modules and sys.modules["gevent.monkey"].is_module_patched("threading")
if GREEN:
    import zmq.green

_chosen: Any = zmq.green if GREEN else zmq

Socket: TypeAlias = zmq.Socket[bytes]

IO_THREADS: Final = 1
SOCKETS_MAX: Final = 1_023
# Messages from one peer that may wait here: any number. With a limit libzmq (4.3.5) stops reading that connection when
# it is reached, notes it when the connection ends, and aborts the process (`!_io_error`) at the next heartbeat. What a
# peer may have under way is bounded by its own credit, and by its share (`shares`, H21).
RECEIVED_MAX: Final = 0
# A socket that is closed goes on so long with what was given to its connections. With 0 libzmq (4.3.5) aborts the
# process where a connection ends as its socket closes, and half of a message of several parts had been given to it
# (session_base.cpp, `clean_pipes`): what is left of that message cannot be read any more.
PARTING_MS: Final = 20
_EVENT: Final = struct.Struct("=Hi")
HANDSHAKE_MS: Final = 5_000
HEARTBEAT_MS: Final = 2_000
HEARTBEAT_TIMEOUT_MS: Final = 10_000


class Context:
    """A context in which sockets are made. Users of a socket keep the context, with which all its sockets close.

    pyzmq knows its sockets by weak references, which a collection of reference cycles clears before it ends anything:
    its context then waits for ever for sockets that it does not find. Here they stay known until they are closed.
    """

    def __init__(self, sockets_max: int = SOCKETS_MAX) -> None:
        self._zmq: Any = _chosen.Context(io_threads=IO_THREADS)
        self._zmq._sockets = set()
        self._zmq.set(zmq.MAX_SOCKETS, sockets_max)
        self._zmq.set(zmq.BLOCKY, 0)  # a socket that was forgotten has LINGER 0 too and cannot hold up the exit
        on_drop(self, _drop, self._zmq, os.getpid())
        call_in_child(self)

    def socket(self, kind: int) -> Socket:
        made: Socket = self._zmq.socket(kind)
        return made

    def close(self) -> None:
        """Closes all sockets. Unsent frames are waited for as long as that is safer (PARTING_MS)."""
        self._zmq.destroy(linger=PARTING_MS)

    def forked(self) -> None:
        """Ends the child's copy: no socket can be made, and pyzmq leaves those of another process alone."""
        self._zmq.term()


def _drop(context: Any, pid: int) -> None:
    if context.closed or os.getpid() != pid:
        return
    context.destroy(linger=PARTING_MS)
    warnings.warn("a client, or another owner of a ZeroMQ context, was never closed", ResourceWarning, stacklevel=2)


def new_context(sockets_max: int = SOCKETS_MAX) -> Context:
    """A context for one process, or one client. Call `close_context` after every socket of it is closed."""
    return Context(sockets_max)


def close_context(context: Context) -> None:
    """Closes what is still open."""
    context.close()


def close_socket(socket: Socket, linger_ms: int = 0) -> None:
    """At once for its owner; frames sent last may still leave within `linger_ms`, and within PARTING_MS."""
    socket.close(linger=max(linger_ms, PARTING_MS))


def new_poller() -> zmq.Poller:
    poller: zmq.Poller = _chosen.Poller()
    return poller


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


def next_event(monitor: Socket) -> tuple[int, int]:
    """The event that waits at a monitor, and its value (zmq_socket_monitor(3)). pyzmq's own function loads asyncio."""
    event, value = _EVENT.unpack(monitor.recv_multipart(zmq.NOBLOCK)[0])
    return event, value
