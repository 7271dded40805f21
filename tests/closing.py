"""Agents keep hundreds of files open until their process ends; a test has no process of its own."""

import gc
from collections.abc import Iterator
from typing import Any

import pytest

from towline.log.queues.consume_queue import ConsumeQueueFiles
from towline.log.queues.consume_queue_ext import ConsumeQueueExtFiles
from towline.log.queues.queue_writer import QueueWriter
from towline.runtime.doorbell import Doorbell, Ringer

KINDS = (ConsumeQueueFiles, ConsumeQueueExtFiles, QueueWriter, Doorbell, Ringer)


def closed_afterwards() -> Iterator[None]:
    """While the generator rests, remembers whatever of KINDS is made; then closes it. Agents freeze nothing meanwhile:
    what is frozen is never collected, and this process goes on."""
    made: list[Any] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gc, "freeze", lambda: None)
        for kind in KINDS:

            def remembered(self: Any, *args: Any, make: Any = kind.__init__, **more: Any) -> None:
                make(self, *args, **more)
                made.append(self)

            patch.setattr(kind, "__init__", remembered)
        yield
    for each in made:
        each.close()
