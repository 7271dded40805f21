"""A ZeroMQ context that its owner never closed."""

import gc
import threading
import warnings
import weakref

import pytest
import zmq

from towline.link.context import Context, close_context, new_context

LIMIT_S = 60.0


class Owner:
    """In a reference cycle, with an open socket that nobody reads."""

    def __init__(self) -> None:
        self.context = new_context()
        self.socket = self.context.socket(zmq.DEALER)
        self.socket.connect("tcp://127.0.0.1:1")
        self.monitor = self.socket.get_monitor_socket()
        self.me = self


def told_while(collect: threading.Thread) -> list[str]:
    """What is warned of while it runs; it ends in time."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        collect.start()
        collect.join(LIMIT_S)
    assert not collect.is_alive(), "it waits"
    return [str(each.message) for each in told if issubclass(each.category, ResourceWarning)]


def test_a_collection_on_another_thread_ends_it_and_its_sockets_and_says_so_once():
    owner: Owner | None = Owner()
    context, socket = weakref.ref(owner.context), weakref.ref(owner.socket)
    owner = None
    assert told_while(threading.Thread(target=gc.collect)) == [
        "a client, or another owner of a ZeroMQ context, was never closed"
    ]
    assert context() is None
    assert socket() is None


def test_one_that_was_closed_leaves_nothing_to_say():
    owner: Owner | None = Owner()
    close_context(owner.context)
    assert owner.socket.closed
    assert owner.monitor.closed
    owner = None
    assert told_while(threading.Thread(target=gc.collect)) == []


def test_what_a_parent_made_makes_no_socket_in_its_child(context: Context):
    """As after a fork: the parent's goes on."""
    other = new_context()
    other.forked()
    with pytest.raises(zmq.ZMQError):
        other.socket(zmq.DEALER)
    with context.socket(zmq.DEALER) as socket:
        assert not socket.closed
