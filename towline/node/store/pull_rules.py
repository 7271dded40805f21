"""Limits of pulls, which every process that answers them keeps (spec 10.1)."""

import os
from dataclasses import dataclass
from typing import Final

from towline.format.files.consume_queue import SIZE
from towline.limits import FRAME_SIZE_MAX
from towline.runtime.positions import Position
from towline.runtime.settings import Settings
from towline.runtime.settings_model import BrokerRole

_PERCENT: Final = 100


@dataclass(frozen=True, slots=True)
class Limits:
    """The most records and record bytes of one answer; the first record is sent whatever its size."""

    count: int
    size: int


@dataclass(frozen=True, slots=True)
class PullRules:
    """Limits of pulls. `in_memory_bytes`: the log's newest bytes count as cached, and `memory` limits pulls from
    there."""

    memory: Limits
    disk: Limits
    in_memory_bytes: int
    scan_entries: int  # a filtered pull reads so many entries at most, or at as many as it wants records
    corrects: bool  # a wrong offset is answered with a right one
    written: Position = Position.APPENDED  # up to where the segment files hold the log


def pull_rules(settings: Settings) -> PullRules:
    most = pull_size_max(settings)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return PullRules(
        memory=Limits(
            settings.max_transfer_count_on_message_in_memory,
            min(settings.max_transfer_bytes_on_message_in_memory, most),
        ),
        disk=Limits(
            settings.max_transfer_count_on_message_in_disk,
            min(settings.max_transfer_bytes_on_message_in_disk, most),
        ),
        in_memory_bytes=memory * settings.access_message_in_memory_max_ratio // _PERCENT,
        scan_entries=max(1, settings.max_filter_message_size // SIZE),
        corrects=settings.broker_role is not BrokerRole.SLAVE or settings.offset_check_in_slave,
    )


def pull_size_max(settings: Settings) -> int:
    """The most record bytes of an answer: one part of a message has to hold them."""
    return min(settings.pull_bytes_max, FRAME_SIZE_MAX)
