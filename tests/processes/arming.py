"""Failpoints of nodes that run: a file that their environment names from the start, and a test renames into place."""

from pathlib import Path

import pytest

from towline.log.recovery.truncation import STEPS
from towline.runtime.failpoints import ENVIRONMENT

from .waiting import await_

# Steps that only a node with a transient pool takes, and the how-manieth time: tested in test_kill_with_pool.
POOL_STEPS = {"flush.in_commit": 2, "allocate.in_give_back": 1}
# Steps of cleaning: tested in test_kill_cleaning.
CLEAN_STEPS = {
    "allocate.after_minimum": 2,
    "allocate.before_unlink": 2,
    "allocate.after_unlink": 2,
    "reput.in_minima": 3,
    "reput.before_trim": 2,
    "reput.after_trim": 2,
    "reput.before_index_trim": 1,
}

# Steps of the retention of topics: tested in tests/processes/damage/test_retention.
RETENTION_STEPS = {"reput.before_retention": 1, "reput.in_retention": 1, "reput.before_retention_trim": 2}

# Steps of a backlog of many queues, and of extension units: tested in test_kill_reput. Some are on every batch's way.
GATHER_STEPS = ("reput.in_settle", "reput.in_queues", "reput.before_ends", "reput.before_dispatched")
EXTENSION_STEPS = ("reput.before_bitmaps", "reput.before_entries", "reput.before_ends")

# Steps of transactions: tested in test_transactions.
TRANSACTION_STEPS = ("schedule.before_end", "schedule.after_end", "schedule.after_check")

# Steps of plain sends: tested in tests/remoting/test_kills.
REMOTING_STEPS = ("remoting.plain_put",)

# Steps of a promotion: tested in test_promotion.
PROMOTION_STEPS = ("agree.after_promise", "agree.after_promises", "agree.after_record", "agree.after_role")

# Steps of a truncation: tested in tests/log/recovery/test_truncation.py, and on a pair in test_diverged.
TRUNCATION_STEPS = tuple(f"truncate.before_{step}" for step in STEPS)


class Arming:
    """Fires once, in whichever process gets there first."""

    def __init__(self, directory: Path) -> None:
        self._fresh, self._path = directory / "fresh", directory / "armed"

    def announce(self, patch: pytest.MonkeyPatch) -> None:
        """Nodes that are started while `patch` lasts look for the file."""
        patch.setenv(ENVIRONMENT, f"@{self._path}")

    def arm(self, words: str) -> None:
        self._fresh.write_text(words)
        self._fresh.rename(self._path)

    @property
    def fired(self) -> bool:
        return not self._path.exists()

    def await_fired(self, deadline_s: float = 20.0) -> None:
        await_(lambda: self.fired, deadline_s, "the failpoint fires")

    def disarm(self) -> None:
        self._path.unlink(missing_ok=True)
