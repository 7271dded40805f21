"""What brokers write in place of JSON is read, and nothing else."""

import json

import pytest

from towline.errors import MalformedFrame
from towline.format.remoting.admin_bodies import QueueStats, topic_stats
from towline.format.remoting.fastjson import loads


def test_plain_json_is_read_as_such():
    said = {"a": [1, -2.5, None, True, "x\u00e9\n{0:1}"], "b": {}}
    assert loads(json.dumps(said).encode()) == said


def test_keys_may_be_numbers():
    assert loads(b'{"brokerAddrs":{0:"127.0.0.1:10911",1 : "a,b}"},"x":[{2:3}]}') == {
        "brokerAddrs": {"0": "127.0.0.1:10911", "1": "a,b}"},
        "x": [{"2": 3}],
    }


def test_keys_may_be_objects_and_are_their_text():
    table = loads(topic_stats("b", {("T", 0): QueueStats(1, 5, 7)}, 0.0))["offsetTable"]
    ((key, row),) = table.items()
    assert json.loads(key) == {"brokerName": "b", "queueId": 0, "topic": "T"}
    assert row == {"lastUpdateTimestamp": 7, "maxOffset": 5, "minOffset": 1}


@pytest.mark.parametrize(
    "broken", [b"", b"{", b"{0:", b"{0:1", b"{0 1}", b"{0:1}x", b"{:1}", b"{0:1,,}", b"[1 2]", b"\xff", b"{0:nope}"]
)
def test_anything_else_is_refused(broken: bytes):
    with pytest.raises(MalformedFrame):
        loads(broken)


def test_depth_is_bounded():
    with pytest.raises(MalformedFrame):
        loads(b"{0:" * 10_000 + b"1" + b"}" * 10_000)
