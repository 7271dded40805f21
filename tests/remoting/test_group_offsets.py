"""What a consumer is told of offsets when serve does not tell them."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.processes.nodes import ending
from tests.processes.waiting import await_
from towline.format.remoting.codes import RequestCode, ResponseCode

from .conftest import RemotingNode, remoting_node
from .raw import WAIT_S, RawClient

OFFSET = {"consumerGroup": "readers", "topic": "kept", "queueId": 0}


@pytest.fixture
def node(tmp_path: Path) -> Iterator[RemotingNode]:
    """With a message in queue 0."""
    made = remoting_node(tmp_path / "store")
    with ending(made):
        made.start()
        with RawClient(made.port) as client:
            assert client.put("kept", b"x", e=0).code == ResponseCode.SUCCESS
        yield made


def test_an_offset_that_cannot_be_read_is_not_told_to_be_none(node: RemotingNode) -> None:
    """A client that is told so begins where it begins in a new group: at the end, or at the first message."""
    with RawClient(node.port) as client:
        assert client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, {**OFFSET, "commitOffset": 1}).code == 0
    assert node.stop()
    for name in ("consumerOffset.json", "consumerOffset.json.bak"):
        (node.store.config / name).write_bytes(b'{"offsetTable":')
    node.start()
    for more in ({}, {"setZeroIfNotFound": "false"}):
        with RawClient(node.port) as client:
            answer = client.ask(RequestCode.QUERY_CONSUMER_OFFSET, {**OFFSET, **more})
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "consumerOffset.json" in answer.remark


def test_bounds_of_a_queue_that_cannot_be_asked_for_are_not_told_to_be_0(node: RemotingNode) -> None:
    """Serve dies with the question: who took 0 for a queue's end would read all of it again."""
    asked = {"topic": "kept", "queueId": 0}
    with RawClient(node.port) as client:
        for code in (RequestCode.GET_MAX_OFFSET, RequestCode.GET_MIN_OFFSET, RequestCode.GET_EARLIEST_MSG_STORETIME):
            await_(lambda code=code: client.ask(code, asked).code == 0, WAIT_S, "an answer of serve")
            before = node.pids()
            serve = before["serve"]
            os.kill(serve, signal.SIGSTOP)
            opaque = client.send(code, asked)
            client.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "kept"})  # so the other one was asked too
            os.kill(serve, signal.SIGKILL)
            answer = client.read()
            assert (answer.opaque, answer.code) == (opaque, ResponseCode.SYSTEM_ERROR)
            node.await_restarted("serve", before)
