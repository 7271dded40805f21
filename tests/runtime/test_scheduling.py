"""How processes of a node are scheduled: what the setting says, and that the system does it."""

import logging
import os
import subprocess
import sys

import pytest

from towline.runtime.scheduling import Scheduling, parse_scheduling

SHOWN = """
import logging, os
from towline.runtime.scheduling import parse_scheduling
parse_scheduling({text!r})["put"].apply(logging.getLogger())
print(os.sched_getscheduler(0), os.getpriority(os.PRIO_PROCESS, 0), sorted(os.sched_getaffinity(0)))
"""


def test_policy_nice_and_cpus_by_process():
    assert parse_scheduling("") == {}
    assert parse_scheduling("allocate=batch, put=other:-5@0+11,reput=idle:19,") == {
        "allocate": Scheduling("batch"),
        "put": Scheduling("other", -5, frozenset({0, 11})),
        "reput": Scheduling("idle", 19),
    }


@pytest.mark.parametrize("policy", ["other", "batch", "idle"])
def test_a_process_is_scheduled_as_the_setting_says(policy):
    cpu = min(os.sched_getaffinity(0))
    given = f"put={policy}:3@{cpu}"
    shown = subprocess.run([sys.executable, "-c", SHOWN.format(text=given)], capture_output=True, text=True, check=True)
    wanted = {"other": os.SCHED_OTHER, "batch": os.SCHED_BATCH, "idle": os.SCHED_IDLE}[policy]
    assert shown.stdout.split(maxsplit=2) == [str(wanted), "3", f"[{cpu}]\n"]


def test_what_the_system_refuses_is_logged(caplog):
    cpus = os.sched_getaffinity(0)
    with caplog.at_level(logging.WARNING):
        Scheduling("other", 0, frozenset({1023})).apply(logging.getLogger("test"))
    assert "process_scheduling: the system refuses" in caplog.text
    assert os.sched_getaffinity(0) == cpus
