"""Segments that are full and old, so that cleaning takes them."""

import os
import time
from contextlib import suppress
from typing import Final

from towline.runtime.positions import Position

from .nodes import SEGMENT, TestNode
from .waiting import await_
from .wire import WireClient, records_of

DEADLINE_S: Final = 60.0
HOUR_S: Final = 3600
CLEANED_AT_ONCE: Final = {  # settings; never by the hour of the day
    "file_reserved_time": 1,
    "delete_when": "04" if time.localtime().tm_hour >= 12 else "16",
    "clean_resource_interval": 100,
    "delete_commit_log_files_interval": 5,
    "delete_consume_queue_files_interval": 5,
    "flush_interval_consume_queue": 50,
    "flush_consume_queue_least_pages": 0,
}


def fill(node: TestNode) -> None:
    """Three segments of other messages."""
    client = WireClient(node.endpoint)
    client.create_topic("plain", 4)
    while node.at(Position.APPENDED) < 3 * SEGMENT + SEGMENT // 2:
        client.put(records_of(b"plain", 400, size=2000))
    client.close()
    await_(lambda: node.at(Position.DISPATCHED) == node.at(Position.APPENDED), DEADLINE_S, "all is dispatched")


def clean(node: TestNode, hours_old: float) -> None:
    """An operator asks for what is expired to go, where every segment is so old."""
    then = time.time() - hours_old * HOUR_S
    for path in node.store.commitlog.iterdir():
        with suppress(FileNotFoundError):  # what goes just now
            os.utime(path, (then, then))
    node.store.clean.touch()
    await_(lambda: not node.store.clean.exists(), DEADLINE_S, "the question is heard")
