"""What `towline master status` says where messages are stored that no reader sees."""

from pathlib import Path

from tests.processes.nodes import Pair, ending
from tests.processes.waiting import await_
from tests.processes.wire import WireClient, records_of
from towline.format.wire.status import PutStatus
from towline.runtime.positions import Position

from .conftest import Towline

TOPIC = b"orders"
SAYS = "readers see nothing behind byte"


def test_its_text_names_the_slave_that_is_away(tmp_path: Path, towline: Towline) -> None:
    pair = Pair(tmp_path, broker_role="SYNC_MASTER", slave_timeout=1000)

    def text() -> str:
        done = towline("master", "status", "--store", pair.master.store.root)
        return " ".join(done.out.split())

    with ending(*pair.nodes):
        pair.start()
        client = WireClient(pair.master.endpoint)
        client.create_topic(TOPIC.decode(), 1)
        await_(lambda: client.put(records_of(TOPIC, 3)).status == PutStatus.PUT_OK, 60.0, "both have it")
        pair.await_caught_up()
        assert SAYS not in text()
        visible = pair.master.at(Position.REPLICATED)
        assert pair.slave.stop()
        answer = client.put(records_of(TOPIC, 1))
        assert answer.status in (PutStatus.SLAVE_NOT_AVAILABLE, PutStatus.FLUSH_SLAVE_TIMEOUT)
        client.close()
        said = await_(lambda: found if SAYS in (found := text()) else "", 60.0, "it is named")
        held = pair.master.at(Position.APPENDED) - visible
        why = "node 1 of the in-sync set is not connected"
        assert f"{SAYS} {visible:,} of the log, {held} B less than is stored: {why}" in said
