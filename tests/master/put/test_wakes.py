"""Whom an append wakes: who would find nothing to do sleeps on."""

from types import SimpleNamespace
from typing import cast

import pytest

from towline.master.put.service import PutAgent, woken_by_put
from towline.runtime.positions import Duty
from towline.runtime.settings import read_settings

ASYNC = {"flush_disk_type": "ASYNC_FLUSH"}


@pytest.mark.parametrize(
    ("settings", "pooled", "woken"),
    [
        ({"flush_disk_type": "SYNC_FLUSH"}, False, {Duty.FLUSH}),
        (ASYNC | {"broker_role": "SYNC_MASTER"}, False, set()),
        (ASYNC, False, {Duty.REPUT}),
        (ASYNC | {"wake_flush_when_put_message": True}, False, {Duty.REPUT, Duty.FLUSH}),
        (ASYNC, True, {Duty.FLUSH}),
        (ASYNC | {"wake_commit_when_put_message": False}, True, set()),
        (ASYNC | {"wake_commit_when_put_message": False, "wake_flush_when_put_message": True}, True, set()),
    ],
    ids=[
        "sync",
        "confirmed by a slave",
        "by the clock",
        "told to",
        "pool: only who commits",
        "pool: by the clock",
        "pool: commits wake flush",
    ],
)
def test_an_append_wakes_who_has_something_to_do(settings, pooled, woken):
    given = read_settings(None, {key: str(value) for key, value in settings.items()}, {})
    assert set(woken_by_put(given, pooled=pooled)) == woken


class Responder:
    """A stall responder that takes one request off the socket whenever the main thread is in the mapping."""

    def __init__(self) -> None:
        self.taken: list[int] = []

    def enter(self, now_ns: int) -> None:
        self.taken.append(now_ns)

    def exit(self) -> None:
        return


def test_put_does_not_sleep_on_what_its_stall_responder_took_while_it_populated() -> None:
    """It is not in the socket any more, and wakes nobody."""
    responder = Responder()
    positions = SimpleNamespace(get=lambda position: 0)
    idle = SimpleNamespace(
        _node=SimpleNamespace(positions=positions),
        _prepared=None,
        _stall_responder=responder,
        _appender=SimpleNamespace(prepare=lambda: False),
        _requests=responder.taken,
    )
    assert PutAgent._prepare(cast(PutAgent, idle)) == 1
    responder.taken.clear()
    assert PutAgent._prepare(cast(PutAgent, idle)) == 0, "nothing is left to populate, and nothing came"
