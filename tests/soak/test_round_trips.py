"""A request that is alone never waits for another one to come: neither it nor its answer is overlooked by who sleeps.

TRIPS=<number> changes the count of each way.
"""

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes.nodes import TestNode, ended, free_port
from tests.processes.wire import WireClient
from towline.start import home

from .round_trips import TOPIC, WAYS

SLOWEST_S = 1.0
CLIENT_S = 4 * 3600


@pytest.mark.parametrize(
    "count",
    [
        pytest.param(3_000, id="3,000 of each way"),
        pytest.param(3_500_000, id="10 million together", marks=pytest.mark.slow),
    ],
)
@pytest.mark.alone
@pytest.mark.timeout(CLIENT_S)
def test_no_single_round_trip_takes_a_second(tmp_path: Path, count: int) -> None:
    count = int(os.environ.get("TRIPS") or count)
    seed = int(os.environ.get("TOWLINE_SEED") or random.SystemRandom().getrandbits(32))
    print(f"\nTOWLINE_SEED={seed}, load {os.getloadavg()[0]:.1f}")
    port = free_port()
    settings = {"flush_disk_type": "ASYNC_FLUSH", "wait_time_mills_in_send_queue": 60_000}  # a load is no refusal here
    node = TestNode("master", tmp_path, listen_port=port, ha_listen_port=free_port(), **settings)
    node.start()
    ending = ended(node)
    next(ending)
    clients: dict[str, subprocess.Popen[str]] = {}
    try:
        client = WireClient(node.endpoint)
        client.create_topic(TOPIC, queues=1)
        client.close()
        endpoints = {"tcp": f"tcp://127.0.0.1:{port}", "ipc": node.endpoint, "ring": node.endpoint}
        command = [sys.executable, "-m", "tests.soak.round_trips"]
        clients = {
            way: subprocess.Popen(
                [*command, way, endpoints[way], str(count), str(seed + number)],
                cwd=home(),
                stdout=subprocess.PIPE,
                text=True,
            )
            for number, way in enumerate(WAYS)
        }
        slowest = {}
        for way, process in clients.items():
            told, _ = process.communicate(timeout=CLIENT_S)
            assert process.returncode == 0, way
            slowest[way] = json.loads(told)["slowest_s"]
        print(f"{count} of each way, the slowest: {slowest}; load {os.getloadavg()[0]:.1f}")
        assert max(slowest.values()) < SLOWEST_S
    finally:
        for process in clients.values():
            process.kill()
            process.wait()
        next(ending, None)
