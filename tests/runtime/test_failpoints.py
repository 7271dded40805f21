"""Failpoints: what the words mean, and who fires once."""

import errno
import os
import re
import subprocess
import sys
import time
from collections import Counter

import pytest

from tests.repo.trees import ROOT, sources
from towline.kernels.put.append import FAILPOINTS as KERNEL_FAILPOINTS
from towline.log.recovery.truncation import STEPS
from towline.runtime import failpoints
from towline.runtime.failpoints import ENVIRONMENT, NAMES, Failpoint, Failpoints, parse


def test_a_place_has_an_action_an_argument_and_a_turn():
    assert parse("put.in_append=stall:3000@100, flush.before_sync=kill,reput.before_ends=raise:ENOSPC") == {
        "put.in_append": Failpoint("stall", "3000", 100),
        "flush.before_sync": Failpoint("kill"),
        "reput.before_ends": Failpoint("raise", "ENOSPC"),
    }


@pytest.mark.parametrize(
    "text",
    ["put.nowhere=kill", "put.in_append", "put.in_append=sing", "put.in_append=stall", "put.in_append=stall:soon",
     "put.in_append=kill@never", "put.in_append=raise:EWHAT", "put.in_append=kill:9"],
)  # fmt: skip
def test_words_that_are_none_are_refused_naming_them(text):
    with pytest.raises(ValueError, match=re.escape(repr(text))):
        parse(text)


def test_the_nth_time_fires_and_no_other():
    points = Failpoints("put.in_append=raise:ENOSPC@3")
    points.reach("put.in_append")
    points.reach("put.before_append")
    points.reach("put.in_append")
    with pytest.raises(OSError, match=r"failpoint put\.in_append") as raised:
        points.reach("put.in_append")
    assert raised.value.errno == errno.ENOSPC
    points.reach("put.in_append")


def test_a_stall_takes_its_time():
    points = Failpoints("put.in_append=stall:30")
    started = time.monotonic()
    points.reach("put.in_append")
    assert time.monotonic() - started >= 0.03


def test_a_file_arms_processes_that_run_and_only_one_of_them_fires(tmp_path):
    path = tmp_path / "armed"
    first, second = Failpoints(f"@{path}"), Failpoints(f"@{path}")
    first.reach("put.in_append")
    path.write_text("put.in_append=raise@2\n")
    first.reach("put.in_append")
    second.reach("put.in_append")
    with pytest.raises(OSError, match="failpoint"):
        second.reach("put.in_append")
    assert not path.exists()
    first.reach("put.in_append")
    path.write_text("put.in_append=raise")
    with pytest.raises(OSError, match="failpoint"):
        first.reach("put.in_append")


def test_kill_is_a_sigkill():
    code = "from towline.runtime.failpoints import reach; reach('put.after_publish'); print('alive')"
    environment = os.environ | {ENVIRONMENT: "put.after_publish=kill"}
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (-9, b"")


def test_without_the_environment_nothing_is_armed():
    assert ENVIRONMENT in os.environ or not failpoints.ARMED


def test_every_place_is_in_the_program_once_and_behind_the_switch():
    placed: list[str] = []
    # Between steps of a truncation and of reput, which are named where they are made.
    placed += [f"truncate.before_{step}" for step in STEPS]
    placed += [f"reput.before_{step}" for step in ("bitmaps", "queues", "index", "slots", "header")]
    placed += KERNEL_FAILPOINTS  # where they stand is shown in tests/kernels/put
    for source in sources():
        lines = [] if source.is_test else (ROOT / source.path).read_text().splitlines()
        for number, line in enumerate(lines):
            if found := re.search(r'\breach\("([a-z._]+)"\)$', line):
                assert lines[number - 1].endswith("ARMED:"), f"{source.path}:{number + 1} is not behind the switch"
                placed.append(found[1])
            elif found := re.search(r'\b_reach\("([a-z]+)"\)$', line):  # steps of an import, behind a function
                placed.append(f"kafka_import.{found[1]}")
    # A kernel takes puts from rings and answers them; so does the interpreter with those of idempotent producers, and
    # it answers by itself what has to wait.
    again = {"put.ring_taken": 1, "put.ring_before_answer": 2, "put.ring_answered": 2}
    assert Counter(placed) - Counter(NAMES) == Counter(again)
    assert set(placed) == set(NAMES)
