"""The ZeroMQ context: one per process, made after any fork, closed last.

Where gevent has replaced Python's threads before this module is imported (locust does so), a wait must hand over to
other greenlets: then contexts and pollers are those of zmq.green. This is the only place that knows.
"""

import sys
from typing import Any, Final, TypeAlias

import zmq

GREEN: Final = "gevent.monkey" in sys.modules and sys.modules["gevent.monkey"].is_module_patched("threading")
if GREEN:
    import zmq.green

_chosen: Any = zmq.green if GREEN else zmq

Context: TypeAlias = zmq.Context[zmq.Socket[bytes]]
Socket: TypeAlias = zmq.Socket[bytes]

IO_THREADS: Final = 1
SOCKETS_MAX: Final = 1_023


def new_context() -> Context:
    """A context for one process. Call `close_context` after every socket of it is closed."""
    context: Context = _chosen.Context(io_threads=IO_THREADS)
    context.set(zmq.MAX_SOCKETS, SOCKETS_MAX)
    context.set(zmq.BLOCKY, 0)  # a socket that was forgotten has LINGER 0 too and cannot hold up the exit
    return context


def close_context(context: Context) -> None:
    """Closes what is still open without waiting for unsent frames."""
    context.destroy(linger=0)


def new_poller() -> zmq.Poller:
    poller: zmq.Poller = _chosen.Poller()
    return poller
