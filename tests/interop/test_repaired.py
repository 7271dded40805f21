"""A store of which a damaged record was stepped over, read by the real store: it walks, reads and goes on appending."""

import numpy as np
import pytest

from towline.format.files.consume_queue import ENTRY, FILLER_RECORD_SIZE
from towline.log.recovery.recovery import RecoverySettings
from towline.log.repair.repair import Repair
from towline.log.repair.repair_plan import make_plan
from towline.log.repair.verify import verify
from towline.places import Store

from .checks import mixed_specs, mixture
from .releases import NEWEST_RELEASE
from .towlines import INDEXES, QUEUE_FILE, SEGMENT, SLOTS

SETTINGS = RecoverySettings(segment_size=SEGMENT, queue_file_size=QUEUE_FILE, index_slots=SLOTS, index_indexes=INDEXES)


def damaged(store: Store, segment: int) -> int:
    """Log offset of a record in the middle of a queue and of this segment, whose body was damaged."""
    places = np.concatenate(
        [np.fromfile(path, dtype=ENTRY) for path in store.consumequeue.rglob("0*") if path.is_file()]
    )
    inside = places[(places["physical_offset"] // SEGMENT == segment) & (places["record_size"] < FILLER_RECORD_SIZE)]
    inside = np.sort(inside[inside["record_size"] > 400]["physical_offset"].astype(np.int64))
    at = int(inside[len(inside) // 2])
    with (store.commitlog / f"{at - at % SEGMENT:020d}").open("r+b") as file:
        file.seek(at % SEGMENT + 20)
        file.write(b"\xff" * 200)
    return at


@pytest.mark.parametrize("release", NEWEST_RELEASE, ids=str)
@pytest.mark.parametrize("segment", [0, 1])
def test_the_real_store_goes_on_with_it_and_towline_takes_it_back(release, real, towline, segment):
    """The lost message alone is missing; where it stood in the first segment, a pull of the real store leaves out more.

    Its reader takes a filler, which points to offset 0, for a message that went with the first segment, and passes over
    what else that pull would have found there.
    """
    messages = mixture(9, release)
    with towline.running():
        towline.send(messages.take(1500))
        before = towline.read()
    store = Store(towline.root)
    at = damaged(store, segment)
    plan = make_plan(store, SETTINGS, [at])
    (lost,) = [lost for _, lost in plan.stretches[0].spans]
    Repair(store, SETTINGS, plan).run()
    assert verify(store, SETTINGS).weight == 0

    real.open()
    found = real.read()
    missing = [message for message in before if message not in found]
    assert all(message in before for message in found)
    assert all((message["topic"], message["queue_id"]) == (lost.topic.decode(), lost.queue_id) for message in missing)
    numbers = [message["queue_offset"] for message in missing]
    assert numbers == list(range(lost.first, lost.first + len(numbers)))
    assert len(numbers) == 1 or segment == 0
    _, specs = mixed_specs(messages, 60, 6)
    real.put(specs)
    real.close()

    assert {row.rule for row in verify(store, SETTINGS).findings.rows if row.weight} <= {"CHECKPOINT"}  # its fields
    with towline.running():
        towline.await_dispatched()
        towline.send(messages.take(60))
    assert verify(store, SETTINGS).weight == 0
