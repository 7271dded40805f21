"""What a put is answered when the log has no next segment."""

import errno

import pytest

from towline.errors import DiskFull, SyncFailed
from towline.format.wire.refusals import Cause
from towline.format.wire.status import PutStatus
from towline.log.errors import SegmentNotMade
from towline.master.put.admission import no_room


@pytest.mark.parametrize(
    ("error", "status", "cause"),
    [
        (SegmentNotMade(4096, "Input/output error"), PutStatus.CREATE_MAPPED_FILE_FAILED, Cause.ALLOCATE_WAIT),
        (SyncFailed("staging", 0, 0, errno.EIO, "x"), PutStatus.CREATE_MAPPED_FILE_FAILED, Cause.ALLOCATE_WAIT),
        (DiskFull("staging", 4096), PutStatus.DISK_FULL, Cause.DISK_FULL),
    ],
    ids=["not made", "not synced", "disk full"],
)
def test_the_status_tells_a_full_disk_from_a_segment_that_cannot_be_made(error, status, cause):
    refusal = no_room(error)
    assert (refusal.status, refusal.cause) == (status, cause)
    assert error.describe() in refusal.sentence
    assert refusal.retry_after_ms > 0
