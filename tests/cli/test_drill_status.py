"""What `towline drill` says with its exit status."""

import pytest

from towline.cli.drill_run import status_of
from towline.cli.output import FAILED, SKIPPED

PASSED = {"drill": "kill", "passed": True}
LOST = {"drill": "kill", "passed": False}
NOT_HERE = {"drill": "clock", "skipped": "it needs root"}


@pytest.mark.parametrize(
    ("results", "status"),
    [
        pytest.param([PASSED, PASSED], 0, id="all passed"),
        pytest.param([PASSED, NOT_HERE], SKIPPED, id="one was skipped"),
        pytest.param([NOT_HERE, LOST, PASSED], FAILED, id="one failed"),
    ],
)
def test_nothing_but_a_pass_of_every_drill_is_a_success(results, status):
    assert status_of(results) == status
