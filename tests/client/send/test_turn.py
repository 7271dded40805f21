"""Whoever uses a producer's link gives it back, wherever an interrupt comes."""

import threading
from typing import Any

import pytest

from tests.client.standin import Standin
from towline.client.message import Message
from towline.client.producer import Producer
from towline.client.send.turn import Turn

ENDS_S = 10.0


class Interrupted:
    """A lock that is taken, and then the interrupt comes: before a `try` that releases it can begin."""

    def __init__(self, lock: Any) -> None:
        self._lock, self.release, self.armed = lock, lock.release, False

    def acquire(self, *arguments: Any, **more: Any) -> bool:
        taken = bool(self._lock.acquire(*arguments, **more))
        if taken and self.armed and threading.current_thread() is threading.main_thread():
            self.armed = False
            raise KeyboardInterrupt
        return taken


def elsewhere(turn: Turn, found: list[bool]) -> None:
    found.append(turn.take())
    turn.give_back()


def others_take(turn: Turn) -> bool:
    found: list[bool] = []
    thread = threading.Thread(target=elsewhere, args=(turn, found))
    thread.start()
    thread.join()
    return found[0]


def test_one_thread_has_it() -> None:
    turn = Turn()
    assert turn.take()
    assert turn.is_mine
    assert not others_take(turn)
    turn.give_back()
    assert not turn.is_mine
    assert others_take(turn)


def test_who_has_not_got_it_gives_nothing_back() -> None:
    turn = Turn()
    assert turn.take()
    thread = threading.Thread(target=turn.give_back)
    thread.start()
    thread.join()
    assert turn.is_mine
    assert not others_take(turn)


def test_an_interrupt_right_behind_the_lock_leaves_it_to_others() -> None:
    turn = Turn()
    turn._lock = Interrupted(turn._lock)
    turn._lock.armed = True

    def use() -> None:
        try:
            turn.take()
        finally:
            turn.give_back()

    with pytest.raises(KeyboardInterrupt):
        use()
    assert others_take(turn)


def send_until_interrupted(producer: Producer, send: Any, lock: Interrupted) -> None:
    while lock.armed:  # the I/O thread may have it just then
        send(producer, Message("t", b"x"))


@pytest.mark.parametrize("send", [Producer.send, Producer.send_async], ids=lambda send: send.__name__)
def test_a_producer_that_was_interrupted_as_it_took_its_link_closes(node: Standin, send: Any) -> None:
    producer = Producer(node.endpoint)
    try:
        producer.send(Message("t", b"first"))
        turn = producer._session.io_thread._turn
        turn._lock = Interrupted(turn._lock)
        turn._lock.armed = True
        with pytest.raises(KeyboardInterrupt):
            send_until_interrupted(producer, send, turn._lock)
    finally:
        closing = threading.Thread(target=producer.close, kwargs={"flush": False}, daemon=True)
        closing.start()
        closing.join(ENDS_S)
    assert not closing.is_alive()
