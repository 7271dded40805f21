"""A node with a dispatcher that its setting names: it is given every record, in order, again only after a kill."""

import os
import signal
from pathlib import Path

from tests.processes.counting import PLACE, counted
from tests.processes.nodes import TestNode, ending
from tests.processes.waiting import await_
from towline.client.message import Message
from towline.client.producer import Producer
from towline.runtime.positions import Position

COUNT = 500


def put(node: TestNode) -> list[int]:
    with Producer(node.endpoint) as producer:
        results = producer.send_batch(Message("counted", b"%d" % number) for number in range(COUNT))
    assert all(result.acknowledged for result in results)
    await_(lambda: node.at(Position.DISPATCHED) == node.at(Position.APPENDED), 60.0, "everything is dispatched")
    return sorted(result.physical_offset for result in results)


def test_a_dispatcher_that_a_setting_names_is_given_every_record_in_order(tmp_path: Path) -> None:
    node = TestNode("master", tmp_path / "store", ha_listen_port=0, dispatchers=PLACE)
    with ending(node):
        node.start()
        there = put(node)
        assert counted(node.store).tolist() == there, "each once"
        before = node.pids()
        os.kill(before["reput"], signal.SIGKILL)
        there += put(node)
        node.await_restarted("reput", before)
        assert list(dict.fromkeys(counted(node.store).tolist())) == there, "in order, those of a kill twice at most"
        assert node.stop()
        node.start()
        there += put(node)
        assert list(dict.fromkeys(counted(node.store).tolist())) == there
        assert node.stop()
