"""Remoting and put are killed while producers send: nothing acknowledged is lost, and both are back soon."""

import os
import signal
import time

from tests.processes.waiting import await_

from .conftest import RemotingNode
from .raw import RawClient
from .reading import bodies

KILLS = 3


def test_a_kill_of_remoting_or_put_loses_nothing_acknowledged(node: RemotingNode) -> None:
    acknowledged: list[bytes] = []
    number = 0
    client: RawClient | None = None
    killed = 0
    until = time.monotonic() + 60

    def again() -> RawClient | None:
        try:
            return RawClient(node.port)
        except OSError:
            return None

    for label in ("remoting", "put") * KILLS:
        target = len(acknowledged) + 200
        while len(acknowledged) < target:
            assert time.monotonic() < until, "service did not come back"
            client = client or await_(again, 10.0, "the port")
            body = b"%d" % number
            number += 1
            try:
                if client.put("killed", body).code == 0:
                    acknowledged.append(body)
            except OSError:
                client.close()
                client = None
        before = node.pids()
        os.kill(before[label], signal.SIGKILL)
        took = node.await_restarted(label, before)
        assert took < 5, f"{label} was back after {took:.1f} s"
        killed += 1
    assert killed == 2 * KILLS
    if client is not None:
        client.close()
    found = bodies(node, "killed", len(acknowledged))
    assert set(acknowledged) <= set(found), "an acknowledged message is lost"
