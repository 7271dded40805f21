"""What becomes of a put that was answered, or lost."""

import pytest

from towline.client.send.retrying import Fate, fate_of, goes_again
from towline.format.wire.status import PutStatus

STORED_ONLY = (PutStatus.FLUSH_DISK_TIMEOUT, PutStatus.FLUSH_SLAVE_TIMEOUT, PutStatus.SLAVE_NOT_AVAILABLE)


def test_what_was_acknowledged_is_done_whatever_else_is_so():
    assert fate_of(PutStatus.PUT_OK, 20, insists=True, has_later=True) is Fate.DONE


@pytest.mark.parametrize("status", STORED_ONLY)
def test_what_is_stored_and_not_promised_waits_for_a_later_master_where_there_may_be_one(status):
    assert fate_of(status, 0, insists=False, has_later=True) is Fate.HELD
    assert fate_of(status, 0, insists=False, has_later=False) is Fate.DONE


@pytest.mark.parametrize("status", STORED_ONLY)
def test_a_producer_that_insists_sends_it_again_at_once(status):
    assert fate_of(status, 0, insists=True, has_later=False) is Fate.AGAIN


@pytest.mark.parametrize("status", [status for status in PutStatus if not status.stored])
def test_of_what_was_refused_that_goes_again_which_may_pass_later(status):
    fate = fate_of(status, 0, insists=False, has_later=True)
    assert fate is (Fate.AGAIN if status.retryable else Fate.REFUSED)
    assert fate_of(status, 20, insists=False, has_later=True) is Fate.AGAIN, "it was told when to come back"


@pytest.mark.parametrize(
    ("attempts", "refusals", "retries", "deadline", "again"),
    [
        (3, 0, 3, 10.0, True),
        (4, 0, 3, 10.0, False),
        (4, 1, 3, 10.0, True),  # a refusal costs none
        (1, 1, 0, 10.0, False),  # but where nothing is tried again
        (1, 0, 3, 5.0, False),  # the time is over
    ],
)
def test_attempts_and_time_are_both_needed(attempts, refusals, retries, deadline, again):
    assert goes_again(attempts, refusals, retries, deadline, now=5.0) is again
