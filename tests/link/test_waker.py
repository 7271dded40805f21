"""What wakes a thread out of its poll, with eventfds and without."""

import os

import pytest

from towline.link.poller import Poller
from towline.link.waker import Waker


@pytest.fixture(params=["eventfd", "sockets"])
def waker(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Waker:
    if request.param == "sockets":
        monkeypatch.delattr(os, "eventfd")
    return Waker()


def test_it_wakes_until_it_is_drained(waker: Waker) -> None:
    poller = Poller(waker.fileno())
    assert not poller.poll(0)
    waker.wake()
    waker.wake()
    assert poller.poll(60_000)
    assert poller.poll(0)
    waker.drain()
    assert not poller.poll(0)
    waker.drain()  # nothing to drain is no error
    waker.close()


def test_calls_that_nobody_drains_neither_wait_nor_fail(waker: Waker) -> None:
    for _ in range(20_000):
        waker.wake()
    waker.drain()
    assert not Poller(waker.fileno()).poll(0)
    waker.close()


def test_after_its_end_calls_are_ignored(waker: Waker) -> None:
    waker.close()
    waker.wake()
    waker.close()
    assert waker.fileno() == -1
