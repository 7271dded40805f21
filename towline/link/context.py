"""The ZeroMQ context: one per process, made after any fork, closed last."""

from typing import Final, TypeAlias

import zmq

Context: TypeAlias = zmq.Context[zmq.Socket[bytes]]
Socket: TypeAlias = zmq.Socket[bytes]

IO_THREADS: Final = 1
SOCKETS_MAX: Final = 1_023


def new_context() -> Context:
    """A context for one process. Call `close_context` after every socket of it is closed."""
    context: Context = zmq.Context(io_threads=IO_THREADS)
    context.set(zmq.MAX_SOCKETS, SOCKETS_MAX)
    context.set(zmq.BLOCKY, 0)  # a socket that was forgotten has LINGER 0 too and cannot hold up the exit
    return context


def close_context(context: Context) -> None:
    """Closes what is still open without waiting for unsent frames."""
    context.destroy(linger=0)
