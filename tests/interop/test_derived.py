"""Queues and index that Towline derives from the real store's log are those that the real store derived."""

import shutil
from bisect import bisect_left
from dataclasses import replace
from itertools import count, zip_longest
from typing import Any

import pytest

from towline.client.admin import AdminClient

from .checks import mixture
from .model import NOON, Mixture
from .releases import NEWEST_RELEASE
from .test_same_bytes import index_of, queues_of

SCHEDULED = "SCHEDULE_TOPIC_XXXX"
DELAYS = ("1", "5", "18", "19", "999", "0", "-3")  # levels; from 19 on the last one counts
TRANSACTIONS = (0x4, 0x8, 0xC)  # prepared, committed, rolled back


def of_the_broker(messages: Mixture) -> list[dict[str, Any]]:
    """Requests for records that only a broker stores."""
    specs = []
    for delay in DELAYS:
        message = messages.one()
        later = replace(message, topic=SCHEDULED, more={**message.more, "DELAY": delay, "REAL_TOPIC": "Plain"})
        specs.append(later.spec())
    for transaction in TRANSACTIONS:
        for _ in range(3):
            spec = messages.one().spec()
            specs.append({**spec, "sys_flag": transaction, "prepared_transaction_offset": 77})
    for keys in ("a  b", " c ", "d d", "e"):
        spec = messages.one().spec()
        spec["properties"]["KEYS"] = keys
        specs.append(spec)
    return specs


@pytest.mark.parametrize("release", NEWEST_RELEASE, ids=str)
def test_they_are_derived_alike(release, real, towline):
    messages = mixture(8, release)
    specs = [messages.one().spec() for _ in range(600)] + of_the_broker(messages)
    specs += [messages.one().spec() for _ in range(600)]
    real.open()
    real.put(specs)
    found = real.read()
    real.close()
    queues, index = queues_of(real.root), index_of(real.root)
    shutil.rmtree(real.root / "consumequeue")
    shutil.rmtree(real.root / "index")

    with towline.running("--without", "schedule"):  # which would deliver what is due
        unlike = [pair for pair in zip_longest(towline.read(), found) if pair[0] != pair[1]]
    assert unlike[:2] == [], f"{len(unlike)} of {len(found)}"
    assert queues_of(real.root) == queues
    if release.number < (5, 4):
        assert index_of(real.root) == index
    else:  # these index tags, too
        assert hits(index_of(real.root)) < hits(index)


def hits(index: list[Any]) -> set[tuple[int, int]]:
    """(hash, log offset) of every entry."""
    return {entry[:2] for _, _, entries in index for entry in entries if entry != (0, 0, 0)}


def test_both_find_the_same_offsets_by_time(release, real, towline):
    """RocketMQ since 5.1.1; before, it takes the message that is nearest in time."""
    messages = mixture(9, release)
    numbers = count()
    real.open()
    for _ in range(30):
        real.put([replace(messages.one(), topic="Plain", queue_id=0).spec() for _ in range(next(numbers) % 4 + 1)])
    found = real.read()
    times = sorted({each["store_timestamp"] for each in found})
    asked = [NOON, *times, *(time + 1 for time in times), *(time - 1 for time in times)]
    theirs = real.offsets_by_time("Plain", 0, asked)
    real.close()
    with towline.running(), AdminClient(towline.endpoint) as admin:
        towline.await_dispatched()
        ours = [admin.offset_at("Plain", 0, time) for time in asked]
    if release.number >= (5, 1, 1):
        assert ours == theirs
    else:
        stored = [each["store_timestamp"] for each in sorted(found, key=lambda each: each["queue_offset"])]
        assert ours == [bisect_left(stored, time) for time in asked]
        nearest = [min(abs(each - time) for each in stored) for time in asked]
        assert [abs(stored[offset] - time) for offset, time in zip(theirs, asked, strict=True)] == nearest
