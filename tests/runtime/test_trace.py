"""A trace says when each process of a node got to which failpoint, whatever ended it."""

import os
import signal
import subprocess
import sys
import time

from tests.repo.trees import ROOT
from towline.runtime.failpoints import ENVIRONMENT, NAMES
from towline.runtime.trace import EVENTS_MAX, Trace, read_trace

PROGRAM = """
import os, signal
from towline.runtime.failpoints import ARMED, reach
assert ARMED
reach("put.before_append")
if os.fork() == 0:
    reach("reput.before_queues")
    os._exit(0)
os.wait()
reach("put.after_publish")
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_events_of_all_processes_stay_in_their_order_with_their_times(tmp_path):
    began = time.monotonic_ns()
    environment = os.environ | {ENVIRONMENT: f"trace:{tmp_path}"}
    done = subprocess.run([sys.executable, "-c", PROGRAM], cwd=ROOT, env=environment, timeout=60, check=False)
    assert done.returncode == -signal.SIGKILL
    found = read_trace(tmp_path, NAMES)
    assert len(list(tmp_path.iterdir())) == 2
    times = [found[name] for name in ("put.before_append", "reput.before_queues", "put.after_publish")]
    assert [len(each) for each in times] == [1, 1, 1]
    in_order = [began, *(ns for each in times for ns in each), time.monotonic_ns()]
    assert in_order == sorted(in_order)
    assert sum(map(len, found.values())) == 3


def test_a_full_trace_takes_no_more(tmp_path, monkeypatch):
    monkeypatch.setattr("towline.runtime.trace.EVENTS_MAX", 3)
    trace = Trace(str(tmp_path), ["a", "b"])
    for name in "abbab":
        trace.reach(name)
    assert {name: len(times) for name, times in read_trace(tmp_path, ["a", "b"]).items()} == {"a": 1, "b": 2}
    assert EVENTS_MAX == 1 << 20
