"""What a consumer is told of its group's offset when serve does not tell it."""

from pathlib import Path

from tests.processes.nodes import ending
from towline.format.remoting.codes import RequestCode, ResponseCode

from .conftest import remoting_node
from .raw import RawClient

OFFSET = {"consumerGroup": "readers", "topic": "kept", "queueId": 0}


def test_an_offset_that_cannot_be_read_is_not_told_to_be_none(tmp_path: Path) -> None:
    """A client that is told so begins where it begins in a new group: at the end, or at the first message."""
    node = remoting_node(tmp_path / "store")
    with ending(node):
        node.start()
        with RawClient(node.port) as client:
            assert client.put("kept", b"x", e=0).code == ResponseCode.SUCCESS
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
