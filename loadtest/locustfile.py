"""For Locust: `locust -f loadtest/locustfile.py PutUser`. The command `towline loadtest` starts it with everything set.

By hand, the plan is in the environment: TOWLINE_LOAD_PUT, TOWLINE_LOAD_SERVE (endpoints), TOWLINE_LOAD_TOPIC and so on,
as loadtest/load/plan.py names them.
"""

import json
import logging
import os
import time
from collections import Counter
from pathlib import Path
from typing import Any, Final

from locust import LoadTestShape, events
from locust.env import Environment
from locust.runners import WorkerRunner
from locust.stats import StatsEntry

from towline.loadtest.load.plan import LoadPlan, users_at
from towline.loadtest.load.summary import Row, broken, summary_of
from towline.loadtest.load.users import MESSAGES, BatchPutUser, MixedUser, PullUser, PutUser, SlowUser
from towline.parent import die_with_parent

__all__ = ["BatchPutUser", "MixedUser", "PullUser", "PutUser", "SlowUser"]

PLAN: Final = LoadPlan.read()
TOLD: Final = "towline_messages"  # of a worker's report
SUMMARY: Final = "summary.json"
PARENT: Final = "TOWLINE_LOAD_PARENT"  # its process id: nobody is left behind when it is killed
BEGUN: Final = time.monotonic()

log = logging.getLogger(__name__)

if PARENT in os.environ:
    die_with_parent(int(os.environ[PARENT]))

if PLAN.shape != "none":

    class Shape(LoadTestShape):
        """Locust asks every second how many users there shall be."""

        def tick(self) -> tuple[int, float] | None:
            users = users_at(PLAN, time.monotonic() - BEGUN)
            return None if users is None else (users, max(PLAN.spawn_rate, float(PLAN.users)))


def _report(client_id: str, data: dict[str, Any]) -> None:
    data[TOLD] = dict(MESSAGES)
    MESSAGES.clear()


def _reported(client_id: str, data: dict[str, Any]) -> None:
    MESSAGES.update(Counter(data.get(TOLD, {})))


def _judge(environment: Environment, **_: Any) -> None:
    """The exit status says whether a bound was broken: 1. A worker judges nothing."""
    if isinstance(environment.runner, WorkerRunner):
        return
    rows = [_row(kind, name, entry) for (name, kind), entry in environment.stats.entries.items()]
    total = environment.stats.total
    seconds = max(0.0, float((total.last_request_timestamp or 0.0) - total.start_time))
    bounds = broken(rows, PLAN.max_p99, PLAN.max_fail)
    for sentence in bounds:
        log.error("%s", sentence)
    errors = {f"{each.method}: {each.error}": each.occurrences for each in environment.stats.errors.values()}
    if PLAN.directory is not None:
        Path(PLAN.directory, SUMMARY).write_text(json.dumps(summary_of(rows, errors, seconds, bounds)))
    if bounds:
        environment.process_exit_code = 1
    elif not environment.process_exit_code:
        environment.process_exit_code = 0  # Locust's own rule is 1 for any failed request


def _row(kind: str, name: str, entry: StatsEntry) -> Row:
    p50, p95, p99 = (float(entry.get_response_time_percentile(share)) for share in (0.5, 0.95, 0.99))
    done, failed = int(entry.num_requests), int(entry.num_failures)
    return Row(kind, name, done, failed, MESSAGES[kind], p50, p95, p99, float(entry.max_response_time), entry.total_rps)


_events: Any = events  # listeners have no types
_events.report_to_master.add_listener(_report)
_events.worker_report.add_listener(_reported)
_events.quitting.add_listener(_judge)
