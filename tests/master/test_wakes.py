"""Whom an append wakes: who would find nothing to do sleeps on."""

import pytest

from master.put import woken_by_put
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
