"""A node with a port for RocketMQ's clients rests as others do, also while clients are connected that say nothing."""

from contextlib import ExitStack

import pytest

from tests.processes.kills.test_idle import WATCHES_MAX, shares_of
from towline.format.remoting.codes import RequestCode, ResponseCode

from .raw import RawClient

pytestmark = pytest.mark.alone

CLIENTS = 200
# Put sleeps as long and looks as often: what a wake-up costs here and now is in both. Awake ten times a second,
# remoting took 3.7 times as much as put.
OF_PUT_MAX = 2.0


@pytest.mark.parametrize("clients", [0, CLIENTS])
def test_an_idle_remoting_process_takes_no_more_than_twice_what_put_takes(node, clients):
    pids, told = node.pids(), []
    with ExitStack() as opened:
        for _ in range(clients):
            connected = opened.enter_context(RawClient(node.port))
            answer = connected.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "nobody"})
            assert answer.code == ResponseCode.TOPIC_NOT_EXIST
        for _ in range(WATCHES_MAX):
            remoting, put = shares_of([pids["remoting"]], [pids["put"]])
            told.append(f"with {clients} clients remoting used {remoting:.2%} of a core, put {put:.2%}")
            print(told[-1])
            if remoting < OF_PUT_MAX * put:
                return
    pytest.fail("\n".join(told))
